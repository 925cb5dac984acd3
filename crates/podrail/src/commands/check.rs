//! `podrail map` and `podrail check`: what a process in the pod can do with its rails.

use crate::cli::{CheckArgs, Format, MapArgs};
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::pod::{inside, look};
use podrail_core::verify::{Evidence, Finding, Memlock, Report, Severity, judge};

/// Prints the map.
///
/// # Errors
/// The namespace cannot be looked at. An interface without a GID is a line with `none`.
pub(super) fn map(args: &MapArgs) -> Result<(), Failure> {
    let evidence = inside(args.netns.as_deref(), look)?;
    match args.output.output {
        Format::Json => print_json(&evidence.map),
        Format::Text => print(&map_lines(&evidence)),
    }
}

/// Prints the verdict.
///
/// # Errors
/// [`Failure::Check`] if anything is wrong.
pub(super) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let mut evidence = inside(args.netns.as_deref(), look)?;
    evidence.expected = args.rails;
    let report = judge(&evidence);
    match args.output.output {
        Format::Json => print_json(&report)?,
        Format::Text => print(&in_words(&evidence, &report))?,
    }
    if report.pass {
        Ok(())
    } else {
        Err(Failure::Check)
    }
}

fn map_lines(evidence: &Evidence) -> String {
    evidence
        .map
        .iter()
        .map(|entry| entry.columns().join(" ") + "\n")
        .collect()
}

/// The lines of the post's check pod, and what it leaves out.
fn in_words(evidence: &Evidence, report: &Report) -> String {
    let mode = match evidence.shared_mode {
        Some(true) => "Y",
        Some(false) => "N",
        None => "none",
    };
    let allocated = match &evidence.allocated {
        Some(allocated) => allocated.len().to_string(),
        None => "not told (no PCIDEVICE_* variable)".into(),
    };
    let openable: Vec<&str> = report
        .openable
        .iter()
        .map(|device| device.as_str())
        .collect();
    let mut text = format!(
        "RDMA netns mode: {mode} (Y = shared, N = exclusive)\n\
         Allocated RDMA PFs: {allocated}\n\
         RDMA devices this process can open: {} ({})\n\
         Locked memory: {}\n\
         interface address device gid_index\n{}",
        openable.len(),
        if openable.is_empty() {
            "none".into()
        } else {
            openable.join(" ")
        },
        memlock(&report.memlock),
        map_lines(evidence),
    );
    report
        .findings
        .iter()
        .for_each(|finding| text.push_str(&finding_lines(finding)));
    text + &report.summary() + "\n"
}

fn finding_lines(finding: &Finding) -> String {
    let word = match finding.severity {
        Severity::Fail => "FAIL",
        Severity::Warn => "WARN",
        Severity::Note => "NOTE",
    };
    let hint = finding
        .hint
        .as_ref()
        .map(|hint| format!("      hint: {hint}\n"));
    format!("{word}: {}\n{}", finding.text, hint.unwrap_or_default())
}

fn memlock(memlock: &Memlock) -> String {
    let limit = memlock.limit_in_words();
    let right = if memlock.ipc_lock { "with" } else { "without" };
    let verdict = if memlock.limit.is_none() || memlock.ipc_lock {
        "enough"
    } else {
        "limited"
    };
    format!(
        "{verdict} (limit {limit}, uid {}, {right} IPC_LOCK)",
        memlock.uid
    )
}
