//! Boots each shape once and compares it with what the shape promises, by other programs' eyes.
//!
//! A boot costs about ten seconds of CPU, so each test checks much on one node. Without the assets
//! these tests are skipped, and fail in CI.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: a panic is the failure"
)]

use std::path::PathBuf;
use std::time::Duration;

use podrail_lab::testing::{assets_or_skip, lab_with_or_skip};
use podrail_lab::{Builder, Lab, LabError, Port, Shape, Status, TerminalSize};
use serde_json::Value;

fn agent(builder: Builder) -> Builder {
    builder.agent(env!("CARGO_BIN_EXE_podrail-lab-agent"))
}

fn lab(shape: &str) -> Option<Lab> {
    let lab = lab_with_or_skip(shape, &[], agent)?;
    let (host, guest) = (lab.boot_time(), lab.report());
    println!(
        "{shape}: up after {:.1} s (guest clock: agent {} ms, ready {} ms, kernel {})",
        host.as_secs_f64(),
        guest.agent_ms,
        guest.ready_ms,
        guest.kernel
    );
    Some(lab)
}

/// PCI place, NUMA node and names of all functions, read with `ip -j`, `rdma -j` and sysfs.
fn check_tree(lab: &Lab) {
    let shape = lab.shape();
    let (rails, front_ends) = (shape.rails(), shape.front_ends());
    let ports: Vec<&Port> = rails.iter().chain(&front_ends).collect();
    let links: Vec<Value> = lab
        .run_ok(["ip", "-j", "-d", "link"])
        .unwrap()
        .json()
        .unwrap();
    let rdma: Vec<Value> = lab.run_ok(["rdma", "-j", "link"]).unwrap().json().unwrap();
    let numa = numa_nodes(lab);
    for port in &ports {
        let of = |list: &'_ [Value], key: &str, name: &str| {
            list.iter()
                .find(|entry| entry[key] == name)
                .cloned()
                .unwrap_or_else(|| panic!("no {name}"))
        };
        let link = of(&links, "ifname", &port.netdev);
        assert_eq!(
            of(&rdma, "ifname", &port.rdma)["netdev"],
            port.netdev.as_str()
        );
        assert_eq!(numa[&port.pci], port.numa_node.to_string(), "{}", port.pci);
        let mtu = if port.netdev.starts_with("rdma") {
            shape.mtu
        } else {
            1500
        };
        assert_eq!(link["mtu"], mtu, "{}", port.netdev);
        assert!(
            link["flags"].as_array().unwrap().contains(&"UP".into()),
            "{link}"
        );
    }
    assert_eq!(rdma.len(), ports.len());
    let speeds = lab.sh("cat /sys/class/net/rdma*/speed").unwrap().text();
    let speed = shape.rail_speed_mbit.to_string();
    assert!(speeds.lines().all(|rail| rail == speed), "{speeds}");
    assert_eq!(speeds.lines().count(), rails.len());
    for gpu in shape.gpus() {
        assert_eq!(numa[&gpu.pci], gpu.numa_node.to_string(), "{}", gpu.pci);
        let path = format!("/lab/root/proc/driver/nvidia/gpus/{}/information", gpu.pci);
        let text = String::from_utf8(lab.read_file(&path).unwrap()).unwrap();
        assert!(
            text.contains(&format!("GPU UUID: \t {}\n", gpu.uuid)),
            "{text}"
        );
    }
    check_pci_order(lab, &rails);
}

/// Address to `numa_node`, of all PCI functions.
fn numa_nodes(lab: &Lab) -> std::collections::HashMap<String, String> {
    let text = lab
        .sh("cd /sys/bus/pci/devices; grep . */numa_node")
        .unwrap()
        .text();
    let pairs = text
        .lines()
        .filter_map(|line| line.split_once("/numa_node:"));
    pairs
        .map(|(pci, node)| (pci.to_owned(), node.to_owned()))
        .collect()
}

/// `rdma0`, `rdma1`... by walking sysfs in address order.
fn check_pci_order(lab: &Lab, rails: &[Port]) {
    let script = "cd /lab/root/sys/bus/pci/devices; for d in */virtio*/net/rdma*; do echo $d; done";
    let found = lab.sh(script).unwrap().text();
    let found: Vec<_> = found
        .lines()
        .map(|line| {
            (
                line.split('/').next().unwrap(),
                line.rsplit('/').next().unwrap(),
            )
        })
        .collect();
    let expected: Vec<_> = rails
        .iter()
        .map(|rail| (rail.pci.as_str(), rail.netdev.as_str()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn b4_8_is_the_posts_node_and_runs_commands() {
    let Some(lab) = lab("B4.8") else { return };
    assert!(
        lab.boot_time() < Duration::from_secs(60),
        "{:?}",
        lab.boot_time()
    );
    check_tree(&lab);
    let path = lab
        .sh("readlink /sys/bus/pci/devices/0000:0c:00.0")
        .unwrap()
        .text();
    assert_eq!(
        path,
        "../../../devices/pci0000:0b/0000:0b:00.0/0000:0c:00.0"
    );
    let parent = lab
        .read_file("/sys/class/infiniband/mlx5_5/parent")
        .unwrap();
    assert_eq!(parent.trim_ascii(), b"rdma0");
    assert_eq!(
        lab.sh("cat /sys/bus/pci/devices/0000:0f:00.0/class")
            .unwrap()
            .text(),
        "0x038000"
    );
    let route = lab
        .run_ok(["ip", "route", "show", "default"])
        .unwrap()
        .text();
    assert_eq!(route, "default via 10.140.66.1 dev fe0");
    let uverbs = "cat /sys/class/infiniband_verbs/uverbs5/ibdev; ls /dev/infiniband/rdma_cm";
    assert_eq!(
        lab.sh(uverbs).unwrap().text(),
        "mlx5_5\n/dev/infiniband/rdma_cm"
    );
    check_commands(&lab);
    check_files(&lab);
    check_background(&lab);
    check_pods(&lab);
    // The command that was late has kept the console.
    let kept = lab.console_path();
    drop(lab);
    std::fs::remove_dir_all(kept.parent().unwrap()).unwrap();
}

fn check_commands(lab: &Lab) {
    let out = lab
        .run(["bash", "-c", "echo out; echo err >&2; exit 3"])
        .unwrap();
    assert_eq!(
        (out.status, out.text().as_str(), out.stderr_text().as_str()),
        (Status::Code(3), "out", "err")
    );
    assert_eq!(
        lab.run(["bash", "-c", "kill -9 $$"]).unwrap().status,
        Status::Signal(9)
    );
    let failed = lab
        .run_ok(["bash", "-c", "echo why >&2; exit 7"])
        .unwrap_err();
    assert_eq!(
        failed.to_string(),
        "bash -c echo why >&2; exit 7: exit code 7\nwhy\n"
    );
    let missing = lab.run(["no-such-program"]).unwrap_err();
    assert!(matches!(&missing, LabError::Agent { message } if message.contains("no-such-program")));
    let refined = lab.cmd(["bash", "-c", "read x; echo $x $Y $PWD"]);
    let refined = refined
        .stdin("one\n")
        .env("Y", "two")
        .cwd("/tmp")
        .run_ok()
        .unwrap();
    assert_eq!(refined.text(), "one two /tmp");
    // A process left behind must not hold the answer back.
    lab.sh("sleep 60 & echo started").unwrap();
    assert!(lab.sh("false | true; echo not reached").is_err());
    assert_eq!(lab.console().matches("Oops").count(), 0);
}

fn check_files(lab: &Lab) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    lab.write_file("/var/lib/deep/er/file", 0o750, &bytes)
        .unwrap();
    assert_eq!(lab.read_file("/var/lib/deep/er/file").unwrap(), bytes);
    assert_eq!(
        lab.sh("stat -c %a /var/lib/deep/er/file").unwrap().text(),
        "750"
    );
    let missing = lab.read_file("/nowhere").unwrap_err();
    assert!(missing.to_string().contains("read /nowhere"), "{missing}");
}

fn check_background(lab: &Lab) {
    let mut server = lab
        .cmd(["bash", "-c", "echo listening; cat"])
        .keep_stdin()
        .spawn()
        .unwrap();
    server.wait_for_output("listening").unwrap();
    server.send(b"hello\n").unwrap();
    server.wait_for_output("hello").unwrap();
    let alive = format!("kill -0 {}", server.pid());
    lab.sh(&alive).unwrap();
    server.signal(15).unwrap();
    assert_eq!(server.wait().unwrap().status, Status::Signal(15));
    let terminal = lab.cmd(["bash", "-c", "tty; stty size; exit 6"]);
    let output = terminal
        .terminal(TerminalSize {
            rows: 30,
            columns: 99,
        })
        .run()
        .unwrap();
    assert_eq!(output.status, Status::Code(6));
    assert_eq!(output.text().replace('\r', ""), "/dev/pts/0\n30 99");
    let late = lab
        .cmd(["sleep", "50"])
        .timeout(Duration::from_millis(300))
        .run()
        .unwrap_err();
    assert!(matches!(late, LabError::Timeout { .. }), "{late}");
    let console = lab.console_path();
    assert!(
        late.to_string().contains(&console.display().to_string()),
        "{late}"
    );
}

/// Two namespaces with an IPvlan child each of `rdma0`: the kernel loads ipvlan by itself, and each
/// child's address is a GID of the rail's device.
fn check_pods(lab: &Lab) {
    for (pod, address) in [("pod1", "10.239.255.1"), ("pod2", "10.239.255.2")] {
        lab.run_ok(["ip", "netns", "add", pod]).unwrap();
        lab.sh(&format!(
            "ip link add link rdma0 name net1 netns {pod} type ipvlan mode l2"
        ))
        .unwrap();
        let inside = lab.in_netns(pod);
        inside
            .sh(&format!(
                "ip addr add {address}/24 dev net1; ip link set net1 up"
            ))
            .unwrap();
        assert_eq!(inside.sh("ls /sys/class/net").unwrap().text(), "lo\nnet1");
    }
    let inside = lab.in_netns("/run/netns/pod2");
    let gids = inside
        .run_ok(["ibv_devinfo", "-v", "-d", "mlx5_5"])
        .unwrap()
        .text();
    assert!(gids.contains("::ffff:10.239.255.2"), "{gids}");
    assert!(lab.in_netns("nowhere").run(["true"]).is_err());
}

#[test]
fn h100_8_has_four_roots_per_numa_node() {
    let Some(lab) = lab("H100.8") else { return };
    check_tree(&lab);
    let roots = lab.sh("ls -d /sys/devices/pci0000:*").unwrap().text();
    assert_eq!(roots.lines().count(), 9, "eight and the chipset's: {roots}");
    lab.load_module("8021q").unwrap();
    assert!(
        lab.load_module("no_such")
            .unwrap_err()
            .to_string()
            .contains("no_such")
    );
}

#[test]
fn s8_has_switches_and_boots_beside_another_node() {
    let changed = || {
        lab_with_or_skip("S8", &[], |builder| {
            agent(builder).rdma_exclusive().without_module("ipvlan")
        })
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(changed);
        (lab("S8"), other.join().unwrap())
    });
    let (Some(one), Some(other)) = (one, other) else {
        return;
    };
    check_tree(&one);
    let path = one
        .sh("readlink /sys/bus/pci/devices/0000:15:00.0")
        .unwrap()
        .text();
    let expected =
        "../../../devices/pci0000:10/0000:10:00.0/0000:11:00.0/0000:12:02.0/0000:15:00.0";
    assert_eq!(path, expected);
    other.write_file("/tmp/here", 0o644, b"").unwrap();
    assert!(
        one.read_file("/tmp/here").is_err(),
        "two nodes share nothing"
    );
    let mode = |lab: &Lab| lab.sh("rdma system show").unwrap().text();
    assert!(mode(&one).starts_with("netns shared"), "{}", mode(&one));
    assert!(
        mode(&other).starts_with("netns exclusive"),
        "{}",
        mode(&other)
    );
    let add = "ip link add link rdma0 name child type ipvlan mode l2";
    one.sh(add).unwrap();
    let refused = other.sh(add).unwrap_err();
    assert!(
        refused.to_string().contains("Unknown device type"),
        "{refused}"
    );
}

#[test]
fn a_failed_boot_keeps_its_console() {
    if assets_or_skip().is_none() {
        return;
    }
    // A PID 1 that ends is a kernel panic.
    let shape = Shape::named("S8").unwrap();
    let started = Lab::builder(shape)
        .agent("/bin/true")
        .boot_limit(Duration::from_secs(60), 1);
    let error = started.boot().unwrap_err();
    let LabError::Boot {
        console, reason, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(reason.contains("ended"), "{reason}");
    let text = std::fs::read_to_string(console).unwrap();
    assert!(
        text.contains("Attempted to kill init") || text.contains("panic"),
        "{text}"
    );
    assert!(error.hint().is_some());
    std::fs::remove_dir_all(console.parent().unwrap()).unwrap();
}

#[test]
fn a_node_that_dies_says_so_and_leaves_nothing() {
    let Some(lab) = lab("S8") else { return };
    let dir: PathBuf = lab.console_path().parent().unwrap().into();
    let error = lab
        .sh("echo b > /proc/sysrq-trigger; sleep 30")
        .unwrap_err();
    assert!(matches!(error, LabError::Gone { .. }), "{error}");
    drop(lab);
    assert!(dir.join("console").exists(), "kept on failure");
    assert!(!dir.join("initrd").exists());
    std::fs::remove_dir_all(dir).unwrap();
}
