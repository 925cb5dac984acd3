//! `cargo xtask lab`: sets the virtual node up, and gives a person or a script a way in.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use podrail_lab::{Assets, Lab, LabError, Shape, shell};

/// What to do with the virtual node.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch QEMU, a kernel and the guest's programs, once.
    Setup,
    /// Boot a node and open a shell on it; without a terminal, commands come from standard input.
    Shell(Node),
    /// Boot a node, run one command and exit with its code.
    Run {
        #[command(flatten)]
        node: Node,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// The node to boot.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// A known shape (B4.8, H100.8, S8) or the path of a .toml file.
    #[arg(long, default_value = "B4.8")]
    shape: String,
    /// A program of this machine to put into the node's /usr/bin; may be repeated.
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,
    /// A word for the kernel's command line; may be repeated.
    #[arg(long, value_name = "WORD")]
    kernel_arg: Vec<String>,
    /// A kernel module to leave out; may be repeated.
    #[arg(long, value_name = "NAME")]
    without_module: Vec<String>,
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Setup => {
            Assets::ensure(&mut |line| println!("lab setup: {line}")).map_err(report)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Shell(node) => attach(&node, &["bash".into(), "--login".into()]),
        Command::Run { node, command } => attach(&node, &command),
    }
}

fn attach(node: &Node, argv: &[String]) -> anyhow::Result<ExitCode> {
    let lab = Arc::new(boot(node)?);
    eprintln!(
        "lab {}: up after {:.1} s",
        lab.shape().name,
        lab.boot_time().as_secs_f64()
    );
    let status = shell::attach(&lab, argv).map_err(report)?;
    Ok(ExitCode::from(
        u8::try_from(status.shell_code()).unwrap_or(u8::MAX),
    ))
}

fn boot(node: &Node) -> anyhow::Result<Lab> {
    let shape = Shape::named(&node.shape).map_err(report)?;
    let mut builder = Lab::builder(shape);
    for path in &node.program {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} names no program", path.display()))?;
        builder = builder.program(name, path);
    }
    for word in &node.kernel_arg {
        builder = builder.kernel_arg(word);
    }
    for name in &node.without_module {
        builder = builder.without_module(name);
    }
    builder.boot().map_err(report)
}

fn report(error: LabError) -> anyhow::Error {
    anyhow::anyhow!(error.report())
}
