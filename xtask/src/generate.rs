//! `cargo xtask gen`: files that come out of the program itself, so that they cannot go stale.

use anyhow::{Context, Result, bail};
use clap::Args;
use podrail_lab::testing;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The commands, in the order of the reference.
const COMMANDS: [&str; 6] = ["topo", "attach", "detach", "status", "map", "check"];

/// Options of `gen`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Change nothing; fail if a file is not what it would be.
    #[arg(long)]
    check: bool,
}

/// Writes the generated files, or checks them.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let wanted = cli_reference()?;
    let is_fresh = std::fs::read_to_string(&path).is_ok_and(|text| text == wanted);
    match (is_fresh, options.check) {
        (true, _) => println!("gen: docs/cli.md is fresh"),
        (false, true) => bail!("docs/cli.md is stale: run 'cargo xtask gen'"),
        (false, false) => {
            std::fs::write(&path, wanted).context("write docs/cli.md")?;
            println!("gen: docs/cli.md written");
        }
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
            &help(&program, &[command])?,
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
