//! Podrail for people: the commands of the program `podrail` and what they print.

pub mod view;
