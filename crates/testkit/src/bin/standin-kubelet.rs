//! The program `standin-kubelet`.

use clap::Parser;
use podrail_testkit::cli::{Cli, run};
use podrail_testkit::error::in_words;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Cli::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {}", in_words(&error));
        ExitCode::FAILURE
    })
}
