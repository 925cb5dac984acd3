//! Podrail for people: the commands of the program `podrail` and what they print.

pub mod cli;
pub mod commands;
pub mod failure;
pub mod output;
pub mod pod;
pub mod settings;
pub mod view;
