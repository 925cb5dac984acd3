//! Kubelet, agent and containerd die and come back; pods do not notice.

use crate::hand::until;
use crate::support::{node, ok, run_all, status};
use crate::{health, privileges};
use podrail_lab::Lab;
use podrail_lab::kube::{Kube, Pod};
use serde_json::{Value, json};

const RAIL: &str = "podrail.io/rail";
const RAILS: usize = 8;

#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn everything_comes_back_by_itself() {
    let Some(lab) = node("S8") else { return };
    run_all(
        &lab,
        &[
            ("pods_do_not_notice", pods_do_not_notice),
            ("rails_fail_and_recover", health::rails_fail_and_recover),
            ("state_file_locked", privileges::state_file_locked),
            ("without_capabilities", privileges::without_capabilities),
            ("as_a_pod", privileges::as_a_pod),
            ("uninstalled", privileges::uninstalled),
        ],
    );
}

/// Everything of a pod that a restart of somebody else must not change.
pub(crate) fn identity(lab: &Lab, name: &str) -> Value {
    let pod = lab.kube().get(name).unwrap();
    let seen = "ls /dev/infiniband; env | grep ^PCIDEVICE | sort; ip -o -4 addr | sort";
    json!({
        "sandbox": pod["sandbox"],
        "container": pod["containers"][0]["id"],
        "devices": pod["devices"],
        "inside": ok(lab.kube().exec(name, seen).unwrap()),
        "binding": binding(lab, name),
    })
}

/// What `podrail status` says of a pod's sandbox.
pub(crate) fn binding(lab: &Lab, name: &str) -> Value {
    let all = status(lab);
    let mut all = all.as_array().unwrap().iter();
    let found = all.find(|binding| binding["pod"]["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

/// Applies a pod and has the kubelet stop before its sandbox.
pub(crate) fn admit(lab: &Lab, pod: &Pod) {
    let kube = lab.kube();
    kube.kubelet("set hold-sandboxes true").unwrap();
    kube.apply(pod).unwrap();
    until("the pod waits for its sandbox", || {
        let seen = kube.get(&pod.name()).unwrap();
        let held = seen["events"].to_string().contains("SandboxHeld");
        held.then_some(()).ok_or(seen)
    });
}

/// Pods that were admitted go on to their sandbox.
pub(crate) fn go_on(lab: &Lab) {
    lab.kube().kubelet("set hold-sandboxes false").unwrap();
}

/// What the stand-in kubelet has written since `from`.
fn log_since(kube: Kube<'_>, from: usize) -> String {
    let log = kube.log("standin-kubelet").unwrap();
    log.get(from..).unwrap_or_default().to_owned()
}

fn log_length(kube: Kube<'_>) -> usize {
    kube.log("standin-kubelet").unwrap().len()
}

/// When a line was written that contains `text`, in seconds.
fn when(log: &str, text: &str) -> f64 {
    let line = log.lines().find(|line| line.contains(text));
    let line = line.unwrap_or_else(|| panic!("no {text:?} in {log}"));
    line.split_once(' ').unwrap().0.parse().unwrap()
}

/// No list of the agent was empty.
fn never_empty(log: &str) {
    assert!(
        log.contains(&format!("plugin of {RAIL} lists {RAILS},")),
        "{log}"
    );
    assert!(
        !log.contains(&format!("plugin of {RAIL} lists 0,")),
        "{log}"
    );
}

/// One pod sees them all die: its containers, slots, rails and devices stay.
fn pods_do_not_notice(lab: &Lab) {
    let kube = lab.kube();
    kube.run(&Pod::sleeping(kube, "stays", &[0, 1], 2)).unwrap();
    kubelet_restart(lab);
    agent_killed(lab);
    agent_ends(lab);
    containerd_killed(lab);
}

/// Case 24: the agent registers within a second of the socket's return; nothing is allocated anew.
fn kubelet_restart(lab: &Lab) {
    let (kube, before) = (lab.kube(), identity(lab, "stays"));
    kube.kill("standin-kubelet").unwrap();
    health::tells_of_a_dead_kubelet(lab);
    let mark = log_length(kube);
    kube.start_kubelet("").unwrap();
    kube.wait_slots(RAIL, RAILS).unwrap();
    kube.wait_slots("nvidia.com/gpu", RAILS).unwrap();
    kube.wait("stays", "ready").unwrap();
    let log = log_since(kube, mark);
    let took = |resource: &str| {
        let registered = format!("plugin of {resource} registered");
        when(&log, &registered) - when(&log, "takes registrations")
    };
    // The kubelet's own part of it takes long under emulation: as long as for the other plugin.
    let (ours, other) = (took(RAIL), took("nvidia.com/gpu"));
    println!("registered {ours:.3} s after the kubelet's socket; the GPU plugin {other:.3} s");
    assert!(ours < 1.0 + other, "{log}");
    assert_eq!(identity(lab, "stays"), before);
    assert!(!log.contains("Allocated"), "{log}");
    never_empty(&log);
}

/// Cases 13, 25: with the agent dead a pod that has its slots starts, and so does one that wants
/// none; one that comes then is refused; containers start anew with what they had; pods end.
fn agent_killed(lab: &Lab) {
    let (kube, before) = (lab.kube(), identity(lab, "stays"));
    admit(lab, &Pod::sleeping(kube, "admitted", &[7], 1));
    let mark = log_length(kube);
    kube.kill("podrail-agent").unwrap();
    kube.wait_slots(RAIL, 0).unwrap();
    go_on(lab);
    kube.apply(&Pod::sleeping(kube, "late", &[4], 1)).unwrap();
    kube.wait("admitted", "ready").unwrap();
    let rails = "ls /dev/infiniband | grep -c uverbs";
    assert_eq!(ok(kube.exec("admitted", rails).unwrap()), "1");
    assert_eq!(identity(lab, "stays"), before);
    kube.signal("sleep", "KILL").unwrap();
    let restarted = |pod: &Value| pod["ready"] == true && pod["containers"][0]["restarts"] == 1;
    until("the container runs again", || {
        let pod = kube.get("stays").unwrap();
        restarted(&pod).then_some(()).ok_or(pod)
    });
    let after = identity(lab, "stays");
    for same in ["sandbox", "devices", "inside", "binding"] {
        assert_eq!(after[same], before[same]);
    }
    kube.delete("admitted").unwrap();
    assert_eq!(binding(lab, "admitted"), Value::Null, "DEL without it");
    kube.run(&Pod::sleeping(kube, "plain", &[], 0)).unwrap();
    kube.wait("late", "failed").unwrap();
    assert_eq!(
        kube.get("late").unwrap()["reason"],
        "UnexpectedAdmissionError"
    );
    kube.start_agent().unwrap();
    kube.wait_slots(RAIL, RAILS).unwrap();
    let log = log_since(kube, mark);
    assert!(!log.contains("Allocated: main podrail"), "{log}");
    never_empty(&log);
    assert_eq!(identity(lab, "stays"), after);
}

/// Case 25: told to end, the agent takes nothing back.
fn agent_ends(lab: &Lab) {
    let (kube, before) = (lab.kube(), identity(lab, "stays"));
    let mark = log_length(kube);
    kube.end("podrail-agent", "TERM").unwrap();
    kube.wait_slots(RAIL, 0).unwrap();
    let log = log_since(kube, mark);
    assert!(!log.contains("lists"), "a list at the end: {log}");
    kube.start_agent().unwrap();
    kube.wait_slots(RAIL, RAILS).unwrap();
    never_empty(&log_since(kube, mark));
    assert_eq!(identity(lab, "stays"), before);
}

/// Nothing happens to pods, and those that end afterwards are cleaned up.
fn containerd_killed(lab: &Lab) {
    let (kube, before) = (lab.kube(), identity(lab, "stays"));
    lab.containerd().kill().unwrap();
    lab.containerd().start().unwrap();
    kube.wait("stays", "ready").unwrap();
    assert_eq!(identity(lab, "stays"), before);
    kube.delete("stays").unwrap();
    assert_eq!(binding(lab, "stays"), Value::Null);
}
