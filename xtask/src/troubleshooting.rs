//! docs/troubleshooting.md: every error of the library crates, its cause and the next step, read from
//! the source, so that a new error without a next step fails the check.

mod errors;
mod hints;
mod plugin;
mod words;

use anyhow::{Context, Result, bail};
use errors::{Entry, Source};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::generate::File;

/// Crates whose errors reach users, and what one was doing when they do.
const CRATES: [(&str, &str); 9] = [
    ("podrail", "Commands"),
    (
        "core",
        "Choosing rails and addresses, names, the annotation",
    ),
    ("host", "Looking at the node"),
    ("netlink", "Asking the kernel"),
    ("attach", "Attaching, taking away, device files"),
    ("store", "The state file"),
    ("node", "One sandbox on the node"),
    ("kubelet", "Talking to the kubelet"),
    ("agent", "The agent"),
];

const HEAD: &str = "\
# Troubleshooting

Generated from the errors in the source by `cargo xtask gen`; do not edit.

An error is one line, then `because:` lines down to the first cause, then a `hint:`. Look for the line that you have;
`<words>` stand for names and numbers. Where it is seen:

- commands: on standard error, with an [exit code](exit-codes.md);
- pods: in the event `FailedCreatePodSandBox`, with a [code](kubernetes.md#what-a-pods-events-say);
- the agent: in its log, and at `/readyz` with the condition that it spoils.

All faults of a configuration are told together, each with its field: see [configuration](configuration.md).
";

/// The page.
pub(crate) fn file() -> Result<File> {
    Ok(File {
        path: "docs/troubleshooting.md",
        text: page(&read()?)?,
    })
}

/// The errors of each crate, with next steps.
fn read() -> Result<BTreeMap<&'static str, Vec<Entry>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut sources = BTreeMap::new();
    for (name, _) in CRATES {
        sources.insert(name, errors::sources(&root.join(name).join("src"))?);
    }
    let all: Vec<&Source> = sources.values().flatten().collect();
    let steps = hints::Steps::read(&all);
    let entries = sources.iter().map(|(name, sources)| {
        let found = sources
            .iter()
            .flat_map(|source| errors::entries(source, &steps));
        (*name, found.collect())
    });
    Ok(entries.collect())
}

fn page(crates: &BTreeMap<&'static str, Vec<Entry>>) -> Result<String> {
    let without: Vec<String> = crates
        .values()
        .flatten()
        .filter(|entry| entry.steps.is_empty())
        .map(|entry| format!("{}::{}", entry.of, entry.variant))
        .collect();
    if !without.is_empty() {
        bail!(
            "errors without a next step in a hint: {}",
            without.join(", ")
        );
    }
    let mut page = HEAD.to_owned();
    for (name, title) in CRATES {
        let entries = crates.get(name).context("a crate that was not read")?;
        section(&mut page, title, entries)?;
    }
    page.push_str(&plugin::section()?);
    Ok(page)
}

fn section(page: &mut String, title: &str, entries: &[Entry]) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    writeln!(
        page,
        "\n## {title}\n\n| message | cause | next step |\n| --- | --- | --- |"
    )?;
    for entry in entries {
        let steps: Vec<String> = entry.steps.iter().map(|step| words::cell(step)).collect();
        let (message, cause) = (words::code(&entry.message), words::cell(&entry.cause));
        writeln!(page, "| {message} | {cause} | {} |", steps.join("; or: "))?;
    }
    Ok(())
}
