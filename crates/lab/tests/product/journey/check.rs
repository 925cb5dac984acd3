//! `podrail check` in pods that are as they should be, and in others.

use super::{attach, detach, in_pod, settled_map};
use crate::support::{Node, code};
use podrail_lab::Output;
use serde_json::Value;

/// A pod whose container has the device nodes and the environment that `attach` asks for.
pub(super) fn whole_rails_pass(node: &Node) {
    let job = attach(node, "pod1", "--rails 4");
    settled_map(node, "pod1");
    let environment = job["environment"][0].as_str().unwrap();
    let container = container(&devices(&job));
    let text = passes(node, &format!("{container}; {environment} podrail check"));
    assert!(text.contains("\nPASS: 4 IPvlan interfaces"), "{text}");
    assert!(!text.contains("WARN") && !text.contains("FAIL"), "{text}");
    let text = passes(node, "podrail check --rails 4 -o json");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["pass"], true, "{report}");
    assert_eq!(report["map"].as_array().unwrap().len(), 4, "{report}");
    let inside = node.podrail("check --netns /run/netns/pod1 --rails 4");
    assert_eq!(code(&inside), 0, "{}", inside.text());
    detach(node, "pod1");
}

pub(super) fn what_is_missing_is_named(node: &Node) {
    let job = attach(node, "pod1", "--rails 4");
    let map = settled_map(node, "pod1");
    let (lost, hidden) = (&map[1].interface, &map[3]);
    assert_fails(
        node,
        "pod1",
        "podrail check --rails 5",
        "4 rail interfaces in this namespace, 5 expected",
    );
    // Devices of another pod: their number differs. rxe devices have no PCI address to compare.
    let stale = "PCIDEVICE_NVIDIA_COM_HOSTDEV=0000:13:00.0,0000:15:00.0 podrail check";
    assert_fails(
        node,
        "pod1",
        stale,
        "4 rail interfaces in this namespace, 2 expected",
    );
    // A container without the device node of one rail.
    let devices = devices(&job);
    let container = container(&devices[..3]);
    let text = format!(
        "{} of {} cannot be opened by this process",
        hidden.device, hidden.interface
    );
    assert_fails(node, "pod1", &format!("{container}; podrail check"), &text);
    // An interface without its address, and then none at all.
    in_pod(node, "pod1", &format!("ip -4 addr flush dev {lost}"));
    assert_fails(
        node,
        "pod1",
        "podrail check",
        &format!("{lost} has no address"),
    );
    in_pod(node, "pod1", &format!("ip link del {lost}"));
    assert_fails(
        node,
        "pod1",
        "podrail check --rails 4",
        "3 rail interfaces in this namespace, 4 expected",
    );
    assert_fails(
        node,
        "pod2",
        "podrail check",
        "no rail interface in this namespace",
    );
    detach(node, "pod1");
}

pub(super) fn case_06_little_memory_to_lock_is_named(node: &Node) {
    attach(node, "pod1", "--rails 1");
    settled_map(node, "pod1");
    let user = "setpriv --reuid 1000 --clear-groups --inh-caps=-all --bounding-set=-all";
    let limited = |limit: &str| format!("prlimit --memlock={limit}:{limit} {user} podrail check");
    let words = "uid 1000 may lock 64 KiB of memory and has no IPC_LOCK";
    assert_fails(node, "pod1", &limited("65536"), words);
    passes(node, &limited("unlimited"));
    // Root has IPC_LOCK, and with it no limit counts.
    passes(node, "prlimit --memlock=65536:65536 podrail check");
    detach(node, "pod1");
}

/// Runs a script in the first pod, which must succeed; its standard output.
fn passes(node: &Node, script: &str) -> String {
    let output = check(node, "pod1", script);
    let text = output.text();
    assert_eq!(
        code(&output),
        0,
        "{script}: {text} {}",
        output.stderr_text()
    );
    text
}

fn assert_fails(node: &Node, pod: &str, script: &str, what: &str) {
    let output = check(node, pod, script);
    let text = output.text();
    assert_eq!(
        code(&output),
        1,
        "{script}: {text} {}",
        output.stderr_text()
    );
    assert!(
        text.contains(&format!("FAIL: {what}")),
        "{script}: no '{what}' in {text}"
    );
    assert!(
        text.lines().last().unwrap().starts_with("FAIL: "),
        "{script}: {text}"
    );
}

fn check(node: &Node, pod: &str, script: &str) -> Output {
    node.lab
        .in_netns(pod)
        .run(["bash", "-euc", script])
        .unwrap()
}

/// The uverbs device files that `attach` asks for, in the order of the rails.
fn devices(job: &Value) -> Vec<String> {
    let rails = job["rails"].as_array().unwrap().iter();
    let files: Vec<String> = rails
        .map(|rail| format!("/dev/infiniband/{}", rail["uverbs"].as_str().unwrap()))
        .collect();
    let asked = job["devices"].as_array().unwrap();
    assert!(
        files
            .iter()
            .all(|file| asked.contains(&file.as_str().into())),
        "{job}"
    );
    files
}

/// Leaves only these device files to what comes behind it, as a container runtime does: nodes made
/// anew, with the numbers of the host's.
fn container(devices: &[String]) -> String {
    let files = devices.join(" ");
    format!(
        "made=$(stat -c 'mknod -m 666 %n c $((0x%t)) $((0x%T));' {files}); \
         mount -t tmpfs none /dev/infiniband; eval \"$made\""
    )
}
