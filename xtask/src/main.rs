//! The project's own chores.

mod allocators;
mod bench;
mod demo;
mod fuzz;
mod generate;
mod lab;
mod tidy;
mod traces;
mod troubleshooting;

use std::process::ExitCode;

use clap::Parser;

/// The project's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// The virtual rail node.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Show the main job: two jobs on one virtual node, each with the rails next to its GPUs.
    Demo(demo::Options),
    /// Measure attach and detach on a virtual node and write docs/benchmarks.md.
    Bench(bench::Options),
    /// Write the files that are generated from the program (--check: compare only).
    Gen(generate::Options),
    /// Run the same pods under three allocators and write docs/allocators.md.
    Traces(traces::Options),
    /// Fuzz what reads bytes of others; exits 1 after a crash. The usual tests do a fixed part of it.
    Fuzz(fuzz::Options),
    /// Check the house rules: layers, sizes, purposes, paths.
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Lab(command) => lab::run(command),
        Task::Demo(options) => demo::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Gen(options) => generate::run(&options),
        Task::Traces(options) => traces::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Tidy => tidy::run(),
    };
    outcome.unwrap_or_else(|error| {
        for line in error.chain() {
            eprintln!("{line}");
        }
        ExitCode::FAILURE
    })
}
