//! What `podrail state` prints.

use crate::cli::{Format, StateCheckArgs, StateRebuildArgs};
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::view;
use podrail_node::recovery::{Finding, Rebuilt, Recovered, Restored};
use serde_json::{Value, json};

/// A finding about something that has a name.
pub(super) fn finding(about: impl ToString, finding: impl Into<String>, hint: &str) -> Finding {
    Finding {
        about: about.to_string(),
        finding: finding.into(),
        hint: hint.to_owned(),
    }
}

/// The result of `state check`.
pub(super) fn checked(
    args: &StateCheckArgs,
    found: bool,
    sandboxes: usize,
    findings: &[Finding],
) -> Result<(), Failure> {
    let path = args.state.state.display();
    if args.output.output == Format::Json {
        return print_json(&json!({
            "file": args.state.state, "exists": found, "sandboxes": sandboxes, "findings": findings,
        }));
    }
    let what = match found {
        true => format!("{path}: sound, {sandboxes} sandboxes"),
        false => format!("{path}: there is none"),
    };
    let verdict = match findings {
        [] if found => ", and the node is as it says\n",
        [] => ", and nothing of Podrail's is on this node\n",
        _ => "\n",
    };
    print(&format!("{what}{verdict}{}", table(findings)))
}

/// The result of `state rebuild`; nothing was written if there is no `restored`.
pub(super) fn rebuilt(
    args: &StateRebuildArgs,
    recovered: &Recovered,
    restored: Option<&Restored>,
) -> Result<(), Failure> {
    let aside = restored.map(|restored| restored.aside.as_slice());
    if args.output.output == Format::Json {
        let bindings: Vec<Value> = recovered.bindings.iter().map(value).collect();
        return print_json(&json!({
            "file": args.state.state, "written": restored.is_some(),
            "aside": aside.unwrap_or_default(), "sandboxes": bindings,
            "waiting": recovered.waiting, "findings": recovered.findings,
        }));
    }
    let mut text = String::new();
    for file in aside.unwrap_or_default() {
        text.push_str(&format!("kept: {}\n", file.display()));
    }
    text.push_str(&format!(
        "{}: {} sandboxes and {} waiting slots {}\n",
        args.state.state.display(),
        recovered.bindings.len(),
        recovered.waiting.len(),
        match restored {
            Some(_) => "written",
            None => "would be written (--dry-run)",
        }
    ));
    if !recovered.bindings.is_empty() {
        let headers = ["SANDBOX", "POD", "STATE", "RAILS", "ADDRESSES", "NETNS"];
        let rows: Vec<_> = recovered.bindings.iter().map(row).collect();
        text.push_str(&view::table(&headers, &rows));
    }
    text.push_str(&table(&recovered.findings));
    if restored.is_some() {
        text.push_str("next: start the agent, if this node has one; then 'podrail state check'\n");
    }
    print(&text)
}

fn state(binding: &Rebuilt) -> &'static str {
    match binding.doubts.is_empty() {
        true => "ready",
        false => "pending",
    }
}

fn value(binding: &Rebuilt) -> Value {
    json!({
        "sandbox": binding.sandbox(), "pod": binding.pod, "state": state(binding),
        "netns": binding.path, "doubts": binding.doubts, "rails": binding.attachment.rails,
    })
}

fn row(binding: &Rebuilt) -> Vec<String> {
    let rails = &binding.attachment.rails;
    let list = |texts: Vec<String>| texts.join(",");
    let addresses = rails.iter().flat_map(|rail| &rail.addresses);
    let pod = binding.pod.as_ref().map(ToString::to_string);
    vec![
        binding.sandbox().to_string(),
        pod.unwrap_or_else(|| "-".into()),
        state(binding).to_owned(),
        list(rails.iter().map(|rail| rail.index.to_string()).collect()),
        list(addresses.map(|net| net.addr().to_string()).collect()),
        binding.path.display().to_string(),
    ]
}

fn table(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let row = |found: &Finding| {
        let Finding {
            about,
            finding,
            hint,
        } = found;
        vec![about.clone(), finding.clone(), hint.clone()]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    format!("\n{}", view::table(&["ABOUT", "FINDING", "HINT"], &rows))
}
