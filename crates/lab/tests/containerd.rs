//! containerd with runc on a virtual node, by its own client: overlay, devices, the cluster's network, the
//! CRI; and what is left of a node after a power cut.
//!
//! The client of containerd 1.7 cannot ask for CDI devices: here they are only seen to be switched on.
//!
//! Without the assets these tests are skipped, and fail in CI.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a panic is the failure"
)]

use std::time::{Duration, Instant};

use podrail_lab::testing::lab_with_or_skip;
use podrail_lab::{Builder, Containerd, Lab, Output};

fn agent(builder: Builder) -> Builder {
    builder.agent(env!("CARGO_BIN_EXE_podrail-lab-agent"))
}

/// Says how long a step took, for whoever makes it quicker.
fn timed<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let outcome = step();
    println!("{what}: {:.1} s", started.elapsed().as_secs_f64());
    outcome
}

/// Runs a container of the pods' image to its end.
fn run(lab: &Lab, options: &str, id: &str, script: &str) -> Output {
    let words = format!(
        "ctr -n k8s.io run --rm {options} {} {id}",
        Containerd::IMAGE
    );
    let argv = words.split_whitespace().map(String::from);
    let command = ["bash", "-c", script].map(String::from);
    let command = lab.cmd(argv.chain(command));
    command.timeout(Duration::from_secs(120)).run_ok().unwrap()
}

#[test]
fn containers_have_their_devices_and_the_clusters_network() {
    let Some(lab) = lab_with_or_skip("B4.8", &[], |builder| agent(builder).containerd()) else {
        return;
    };
    println!("boot: {:.1} s", lab.boot_time().as_secs_f64());
    let containerd = lab.containerd();
    timed("containerd ready, images imported", || containerd.start()).unwrap();
    timed("started twice", || containerd.start()).unwrap();
    let plugins = lab.sh("ctr plugins ls").unwrap().text();
    for kind in [
        "io.containerd.grpc.v1 cri",
        "io.containerd.snapshotter.v1 overlayfs",
    ] {
        let words: Vec<_> = kind.split(' ').collect();
        let line = plugins.lines().find(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            columns.starts_with(&words)
        });
        assert!(
            line.is_some_and(|line| line.trim_end().ends_with("ok")),
            "{plugins}"
        );
    }
    let log = containerd.log().unwrap();
    let cdi = "EnableCDI:true CDISpecDirs:[/etc/cdi /var/run/cdi]";
    assert!(log.contains(cdi), "{log}");
    check_device(&lab);
    check_network(&lab);
    check_restarts(&lab);
}

/// The device that was asked for and no other, and a root of its own.
fn check_device(lab: &Lab) {
    let see = "ls /dev/infiniband; ibv_devinfo -d mlx5_5 | grep hca_id; \
               touch /new; grep ' / ' /proc/mounts";
    let with = "--device /dev/infiniband/uverbs5";
    let seen = timed("container with a device", || run(lab, with, "one", see)).text();
    let lines: Vec<_> = seen.lines().collect();
    assert_eq!(lines.first(), Some(&"uverbs5"), "{seen}");
    assert!(seen.contains("mlx5_5"), "{seen}");
    assert!(seen.contains("overlay"), "{seen}");
    let without = run(lab, "", "two", "ls /dev/infiniband 2>&1; id -un").text();
    assert!(without.contains("No such file"), "{without}");
    assert!(
        lab.sh("ls /new").is_err(),
        "the node's own root was written to"
    );
    let user = run(lab, "--user 1000", "three", "id -un").text();
    assert_eq!(user, "user");
}

fn check_network(lab: &Lab) {
    let see = "ip -br addr show eth0; ping -c1 -W2 10.244.0.1 >/dev/null && echo reached";
    let seen = timed("container with a network", || {
        run(lab, "--cni", "four", see)
    })
    .text();
    assert!(seen.contains("10.244.0."), "{seen}");
    assert!(seen.ends_with("reached"), "{seen}");
    // An installer's place: real, and in containerd's eyes.
    lab.sh("test -d /opt/cni/bin -a ! -L /opt/cni/bin; touch /opt/cni/bin/new")
        .unwrap();
}

/// A container outlives containerd, which finds it again.
fn check_restarts(lab: &Lab) {
    let containerd = lab.containerd();
    let image = Containerd::IMAGE;
    lab.sh(&format!("ctr -n k8s.io run -d {image} five sleep 1000"))
        .unwrap();
    // With its process id and state.
    let task = || lab.sh("ctr -n k8s.io tasks ls").unwrap().text();
    let before = task();
    assert!(before.contains("RUNNING"), "{before}");
    containerd.kill().unwrap();
    assert!(lab.sh("ctr version").is_err(), "killed, and answers");
    timed("started after a kill", || containerd.start()).unwrap();
    assert_eq!(task(), before);
    timed("restarted", || containerd.restart()).unwrap();
    assert_eq!(task(), before);
    let log = containerd.log().unwrap();
    assert_eq!(log.matches("successfully booted").count(), 3, "{log}");
}

#[test]
fn a_power_cut_keeps_the_disk_and_ends_everything_else() {
    let change = |builder| agent(builder).containerd().disk();
    let Some(mut lab) = lab_with_or_skip("S8", &[], change) else {
        return;
    };
    let path = "/var/lib/podrail/state";
    lab.write_file(path, 0o600, b"flushed").unwrap();
    lab.write_file("/run/gone", 0o600, b"").unwrap();
    lab.sh(&format!("sync {path}")).unwrap();
    lab.containerd().start().unwrap();
    let image = Containerd::IMAGE;
    lab.sh(&format!(
        "ctr -n k8s.io run -d {image} one sleep 1000; sync"
    ))
    .unwrap();
    timed("power cut and boot", || lab.power_cut_and_boot()).unwrap();
    assert_eq!(lab.read_file(path).unwrap(), b"flushed");
    assert_eq!(lab.sh(&format!("stat -c %a {path}")).unwrap().text(), "600");
    assert!(lab.read_file("/run/gone").is_err());
    timed("containerd after a power cut", || lab.containerd().start()).unwrap();
    let left = lab
        .sh("ctr -n k8s.io containers ls -q; ctr -n k8s.io tasks ls -q")
        .unwrap();
    assert_eq!(
        left.text(),
        "one",
        "the container is known, its task is gone"
    );
}
