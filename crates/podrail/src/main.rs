//! The program `podrail`: reads the command line and runs one command.

use clap::Parser;
use podrail::cli::Cli;
use podrail::failure::{Failure, in_words};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match podrail::commands::run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The check has said all there is to say.
            if !matches!(failure, Failure::Check) {
                // Nobody may be there to read it; the exit code still tells.
                let _ = writeln!(std::io::stderr(), "{}", in_words(&failure));
            }
            ExitCode::from(failure.exit() as u8)
        }
    }
}
