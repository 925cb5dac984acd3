//! A node with everything on it, and scenarios that share it.

use podrail_lab::kube::PROGRAMS;
use podrail_lab::testing::lab_with_or_skip;
use podrail_lab::{Builder, Lab, Output};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Boots a node and starts everything; none where the lab is not set up (a counted skip).
pub(crate) fn node(shape: &str) -> Option<Lab> {
    let lab = bare_node(shape, |builder| builder)?;
    lab.kube().start().unwrap();
    Some(lab)
}

/// Boots a node and starts nothing.
pub(crate) fn bare_node(shape: &str, change: impl FnOnce(Builder) -> Builder) -> Option<Lab> {
    lab_with_or_skip(shape, &PROGRAMS, |builder| change(builder.containerd()))
}

/// A scenario's name and what it does.
pub(crate) type Scenario = (&'static str, fn(&Lab));

/// Runs scenarios one after the other on one node, since a boot costs more than most of them. All
/// are run; each must leave the node without pods, slots and rails of its own, which is checked.
pub(crate) fn run_all(lab: &Lab, scenarios: &[Scenario]) {
    let only = std::env::var("PODRAIL_SCENARIO").unwrap_or_default();
    let mut failed = Vec::new();
    let wanted = |name: &str| only.split(',').any(|part| name.contains(part));
    for (name, scenario) in scenarios.iter().filter(|(name, _)| wanted(name)) {
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            scenario(lab);
            clean(lab);
        }));
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{name}: {word} ({:.1} s)", started.elapsed().as_secs_f64());
        if outcome.is_err() {
            failed.push(*name);
            tell(lab);
            // The next one starts on clean ground whatever this one left.
            let _ = catch_unwind(AssertUnwindSafe(|| clean(lab)));
        }
    }
    assert!(failed.is_empty(), "failed scenarios: {failed:?}");
}

/// Deletes all pods, and sees that nothing of Podrail is left.
fn clean(lab: &Lab) {
    let kube = lab.kube();
    let pods = kube.kubelet("get").unwrap();
    let pods = pods.as_array().into_iter().flatten();
    let names: Vec<&str> = pods.filter_map(|pod| pod["name"].as_str()).collect();
    // All at once: a pod takes seconds to end.
    for name in &names {
        let words = format!("delete default/{name} --grace 0");
        kube.kubelet(&words).unwrap();
    }
    for name in names {
        kube.wait(name, "gone").unwrap();
    }
    assert_eq!(status(lab), Value::Array(vec![]), "rails are held");
    let left =
        "ls /var/run/cdi/ | grep podrail || true; ls /var/lib/podrail/waiting 2>/dev/null || true";
    assert_eq!(lab.sh(left).unwrap().text(), "", "files are left");
}

/// `podrail status -o json`.
pub(crate) fn status(lab: &Lab) -> Value {
    let text = lab.kube().podrail("status -o json").unwrap();
    serde_json::from_str(&text).unwrap()
}

fn tell(lab: &Lab) {
    let script = "tail -n 40 /run/log/*; podrail status; tail -n 15 /var/log/containerd.log";
    if let Ok(output) = lab.sh(script) {
        println!("{}", output.text());
    }
}

/// Standard output of a command that must have succeeded.
pub(crate) fn ok(output: Output) -> String {
    assert_eq!(
        output.status.shell_code(),
        0,
        "{} {}",
        output.text(),
        output.stderr_text()
    );
    output.text()
}
