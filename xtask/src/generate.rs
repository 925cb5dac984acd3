//! `cargo xtask gen`: files that come out of the program itself, so that they cannot go stale.

use anyhow::{Context, Result, bail};
use clap::Args;
use podrail_lab::testing;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The commands, in the order of the reference.
const COMMANDS: [&str; 12] = [
    "topo",
    "attach",
    "detach",
    "status",
    "explain",
    "map",
    "check",
    "state",
    "state check",
    "state rebuild",
    "agent",
    "uninstall",
];

/// Options of `gen`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Change nothing; fail if a file is not what it would be.
    #[arg(long)]
    check: bool,
}

/// A file that is made, not written.
pub(crate) struct File {
    /// Below the workspace's root.
    pub(crate) path: &'static str,
    /// What must be in it.
    pub(crate) text: String,
}

/// Writes the generated files, or checks them.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cli = File {
        path: "docs/cli.md",
        text: cli_reference()?,
    };
    let files = [cli, crate::traces::file()?, crate::troubleshooting::file()?];
    keep(&files, options.check)
}

/// Writes the files that are not as they must be, or names all of them in an error.
pub(crate) fn keep(files: &[File], only_check: bool) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut stale = vec![];
    for File { path, text } in files {
        if std::fs::read_to_string(root.join(path)).is_ok_and(|found| found == *text) {
            println!("gen: {path} is fresh");
        } else if only_check {
            stale.push(*path);
        } else {
            std::fs::write(root.join(path), text).with_context(|| format!("write {path}"))?;
            println!("gen: {path} written");
        }
    }
    if !stale.is_empty() {
        bail!("stale: {}; run 'cargo xtask gen'", stale.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

/// The `--help` of the program and of each command, as a page.
fn cli_reference() -> Result<String> {
    let program = testing::cargo_binary("podrail", "podrail")
        .map_err(|error| anyhow::anyhow!(error.report()))?;
    let mut page = String::from(
        "# Commands\n\nGenerated from `podrail --help` by `cargo xtask gen`; do not edit.\n",
    );
    page.push_str(&section("podrail", &help(&program, &[])?));
    for command in COMMANDS {
        page.push_str(&section(
            &format!("podrail {command}"),
            &help(&program, &command.split(' ').collect::<Vec<_>>())?,
        ));
    }
    Ok(page)
}

fn section(title: &str, text: &str) -> String {
    format!("\n## {title}\n\n```text\n{}\n```\n", text.trim_end())
}

fn help(program: &PathBuf, words: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(words)
        .arg("--help")
        .env_remove("COLUMNS")
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    anyhow::ensure!(output.status.success(), "podrail {words:?} --help failed");
    String::from_utf8(output.stdout).context("help that is not UTF-8")
}
