//! The page of exit codes, `podrail --help` and the program's own list agree.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use clap::CommandFactory;
use podrail::cli::Cli;
use podrail::failure::Exit;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../docs/exit-codes.md");

/// Every code that the program can end with; a new one does not compile until it is here.
fn codes() -> Vec<u8> {
    let all = [
        Exit::Check,
        Exit::Usage,
        Exit::Config,
        Exit::Exhausted,
        Exit::Conflict,
        Exit::NotReady,
        Exit::Namespace,
        Exit::State,
        Exit::Kernel,
    ];
    let number = |exit: Exit| match exit {
        Exit::Check
        | Exit::Usage
        | Exit::Config
        | Exit::Exhausted
        | Exit::Conflict
        | Exit::NotReady
        | Exit::Namespace
        | Exit::State
        | Exit::Kernel => exit as u8,
    };
    std::iter::once(0).chain(all.map(number)).collect()
}

/// `code -> meaning` of the help's last paragraph.
fn of_the_help() -> BTreeMap<u8, String> {
    let help = Cli::command().get_after_help().unwrap().to_string();
    let (title, list) = help.split_once('\n').unwrap();
    assert_eq!(title, "Exit codes:");
    list.lines()
        .map(|line| {
            let (code, meaning) = line.trim().split_once("  ").unwrap();
            (code.parse().unwrap(), meaning.to_owned())
        })
        .collect()
}

/// `code -> meaning` of the page's table; all but success have a message and a next step.
fn of_the_page() -> BTreeMap<u8, String> {
    let rows = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, code, meaning, message, next, _] = cells[..] else {
            return None;
        };
        let code: u8 = code.parse().ok()?;
        let is_explained = !message.is_empty() && !next.is_empty();
        assert!(code == 0 || is_explained, "{line}");
        Some((code, meaning.to_owned()))
    });
    rows.collect()
}

#[test]
fn page_help_and_program_have_the_same_exit_codes() {
    assert_eq!(of_the_page(), of_the_help());
    assert_eq!(of_the_help().into_keys().collect::<Vec<_>>(), codes());
}

#[test]
fn an_error_that_nobody_can_read_keeps_its_exit_code() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_podrail"))
        .args(["topo", "--config", "/nonexistent/config.yaml"])
        .stderr(full.unwrap())
        .status();
    assert_eq!(status.unwrap().code(), Some(i32::from(Exit::Config as u8)));
}

#[test]
fn output_that_cannot_be_written_undoes_nothing_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_podrail"))
        .arg("status")
        .arg("--state")
        .arg(directory.path().join("state.db"))
        .stdout(full.unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(i32::from(Exit::Kernel as u8)));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot write the output"), "{said}");
    assert!(said.contains("hint: what the command did stands"), "{said}");
    assert!(PAGE.contains("`cannot write the output`"));
}
