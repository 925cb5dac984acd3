//! The program `podrail`: reads the command line and runs one command.

use clap::Parser;
use podrail::cli::Cli;
use podrail::failure::{Failure, in_words};
use std::process::ExitCode;

fn main() -> ExitCode {
    match podrail::commands::run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The check has said all there is to say.
            if !matches!(failure, Failure::Check) {
                eprintln!("{}", in_words(&failure));
            }
            ExitCode::from(failure.exit() as u8)
        }
    }
}
