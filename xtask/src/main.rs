//! The project's own chores.

mod lab;

use std::process::ExitCode;

use clap::Parser;

/// The project's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// The virtual rail node.
    #[command(subcommand)]
    Lab(lab::Command),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Lab(command) => lab::run(command),
    };
    outcome.unwrap_or_else(|error| {
        for line in error.chain() {
            eprintln!("{line}");
        }
        ExitCode::FAILURE
    })
}
