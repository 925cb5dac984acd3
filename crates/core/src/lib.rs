//! The decisions of Podrail: pure values and functions.
//!
//! Nothing here reads a file, a clock or the environment, and nothing is async. The edges (`host`,
//! `netlink`, `store`, `attach`) bring facts in and carry plans out.

pub mod attachment;
pub mod binding;
pub mod cdi;
pub mod config;
pub mod explain;
pub mod gpus;
pub mod health;
pub mod ids;
pub mod ipam;
pub mod networks;
pub mod plan;
pub mod pods;
pub mod topology;
pub mod verify;
pub mod words;
