//! The stand-in kubelet with containerd and runc on a virtual node: the runtime keeps the contract
//! that the fake keeps, and pods live, wait for their CDI files, and outlive the kubelet.
//!
//! Without the lab's assets these tests are skipped, and fail in CI.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use podrail_lab::testing::{cargo_binary, lab_with_or_skip};
use podrail_lab::{Containerd, Lab, Output, Process};
use podrail_testkit::status::PodStatus;
use std::time::Duration;

/// Under emulation and load.
const LIMIT: Duration = Duration::from_secs(240);

fn node() -> Option<Lab> {
    let agent = cargo_binary("podrail-lab", "podrail-lab-agent").unwrap();
    let lab = lab_with_or_skip("B4.8", &[], |builder| {
        builder
            .agent(agent)
            .program("standin-kubelet", env!("CARGO_BIN_EXE_standin-kubelet"))
            .program(
                "standin-gpu-plugin",
                env!("CARGO_BIN_EXE_standin-gpu-plugin"),
            )
            .containerd()
    })?;
    lab.containerd().start().unwrap();
    Some(lab)
}

fn kubelet(lab: &Lab) -> Process<'_> {
    let words = [
        "standin-kubelet",
        "run",
        "--seed",
        "7",
        "--set",
        "admission-delay-ms=0",
    ];
    let mut kubelet = lab.cmd(words).timeout(LIMIT).spawn().unwrap();
    kubelet.wait_for_output("seed 7").unwrap();
    kubelet
}

fn say(lab: &Lab, words: &str) -> Output {
    let words = words.split_whitespace().map(String::from);
    let command = ["standin-kubelet".to_owned()].into_iter().chain(words);
    lab.cmd(command).timeout(LIMIT).run_ok().unwrap()
}

fn get(lab: &Lab, pod: &str) -> PodStatus {
    say(lab, &format!("get {pod} -o json")).json().unwrap()
}

fn apply(lab: &Lab, name: &str, spec: &str) {
    let image = Containerd::IMAGE;
    let text = format!(
        "kind: Pod\nmetadata: {{name: {name}}}\nspec: {}",
        spec.replace("IMAGE", image)
    );
    let command = ["standin-kubelet", "apply", "-f", "-"];
    lab.cmd(command)
        .stdin(text)
        .timeout(LIMIT)
        .run_ok()
        .unwrap();
}

/// One node for both: most of the time is its start.
#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn containerd_is_driven_as_the_fake_is() {
    let Some(lab) = node() else { return };
    containerd_keeps_the_contract(&lab);
    pods_wait_for_cdi_files_and_outlive_the_kubelet(&lab);
}

fn containerd_keeps_the_contract(lab: &Lab) {
    let words = ["standin-kubelet", "contract", "--image", Containerd::IMAGE];
    let done = lab.cmd(words).timeout(LIMIT).run().unwrap();
    let log = || lab.containerd().log().unwrap();
    assert!(
        done.status.success(),
        "{}{}\n{}",
        done.text(),
        done.stderr_text(),
        log()
    );
}

fn pods_wait_for_cdi_files_and_outlive_the_kubelet(lab: &Lab) {
    let first = kubelet(lab);
    let words = "standin-gpu-plugin --resource test.io/rail --cdi test.io/rail slot-0";
    let plugin = lab.cmd(words.split(' ')).timeout(LIMIT).spawn().unwrap();
    say(lab, "wait-allocatable test.io/rail 1");
    apply(
        lab,
        "p",
        "{terminationGracePeriodSeconds: 1, containers: [{name: main, image: IMAGE, command: [sleep, infinity],
          securityContext: {runAsUser: 1000}, resources: {limits: {test.io/rail: 1}}}]}",
    );
    let refused = until(lab, |status| {
        status.containers[0].reason == "CreateContainerError"
    });
    let message = &refused.containers[0].message;
    assert!(
        message.contains("unresolvable CDI devices test.io/rail=slot-0"),
        "{message}"
    );
    write_cdi(lab);
    say(lab, "wait default/p --for ready --timeout 120");
    let before = get(lab, "default/p");
    assert_eq!(before.sandbox, refused.sandbox);
    assert!(!before.addresses.is_empty(), "{before:#?}");
    let script = "id -u; ls /dev/fuse";
    let words = [
        "standin-kubelet",
        "exec",
        "default/p",
        "--",
        "sh",
        "-c",
        script,
    ];
    let inside = lab.cmd(words).timeout(LIMIT).run_ok().unwrap().text();
    assert!(inside.starts_with("1000"), "{inside}");
    assert!(inside.contains("/dev/fuse"), "{inside}");

    first.signal(9).unwrap();
    let second = kubelet(lab);
    say(lab, "wait-allocatable test.io/rail 1");
    say(lab, "wait default/p --for ready");
    let after = get(lab, "default/p");
    assert_eq!(
        (&after.containers, &after.devices),
        (&before.containers, &before.devices)
    );
    say(lab, "delete default/p");
    say(lab, "wait default/p --for gone --timeout 120");
    let left = lab
        .sh("ctr -n k8s.io containers ls -q; ip netns")
        .unwrap()
        .text();
    assert_eq!(left.trim(), "");
    plugin.signal(9).unwrap();
    second.signal(9).unwrap();
}

fn until(lab: &Lab, met: impl Fn(&PodStatus) -> bool) -> PodStatus {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        // Each look is a program's start on the node, which paces this loop.
        let status = get(lab, "default/p");
        if met(&status) {
            return status;
        }
        assert!(std::time::Instant::now() < end, "last: {status:#?}");
    }
}

fn write_cdi(lab: &Lab) {
    let text = r#"{"cdiVersion":"0.6.0","kind":"test.io/rail","devices":[{"name":"slot-0",
        "containerEdits":{"deviceNodes":[{"path":"/dev/fuse","hostPath":"/dev/null","permissions":"rw"}]}}]}"#;
    lab.sh("mkdir -p /var/run/cdi").unwrap();
    lab.write_file("/var/run/cdi/rail.new", 0o644, text.as_bytes())
        .unwrap();
    lab.sh("mv /var/run/cdi/rail.new /var/run/cdi/rail.json")
        .unwrap();
}
