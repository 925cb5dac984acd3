//! Trees of fixtures/sysfs, and what a file system can do to a reader.

use super::tree_text::expand;
use super::{expect, files};
use crate::{HostError, KernelAnswers, Memlock, Selectors, discover, memlock, render};
use podrail_core::topology::RailFault;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn trees() {
    for path in files("sysfs", "txt") {
        let tree = expand(&std::fs::read_to_string(&path).unwrap());
        let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
        for (index, rail) in found.topology.rails.iter().enumerate() {
            assert_eq!(usize::from(rail.index.0), index);
            let same = found
                .topology
                .rails
                .iter()
                .filter(|other| other.netdev == rail.netdev);
            assert_eq!(same.count(), 1, "{rail:?}");
        }
        expect(&path, &render::discovery(&found));
    }
}

#[test]
fn no_sysfs_is_an_error_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let error = discover(
        dir.path(),
        &KernelAnswers::default(),
        &Selectors::default(),
        None,
    )
    .unwrap_err();
    assert!(matches!(error, HostError::NoSysfs { .. }));
    assert!(error.to_string().ends_with("/sys") && error.hint().contains("/sys"));
}

#[test]
fn this_machine_is_read() {
    let found = discover(
        std::path::Path::new("/"),
        &KernelAnswers::default(),
        &Selectors::default(),
        None,
    );
    // Containers without sysfs exist; what must not happen is a panic.
    if let Ok(found) = found {
        assert!(found.node.kernel_release.is_some());
    }
}

/// A pipe, a loop, a link out of sysfs and a file that never ends: noted, not waited for.
#[test]
fn hostile_files() {
    let tree = expand(include_str!("../../../../fixtures/sysfs/sriov.txt"));
    let function = tree
        .dir
        .path()
        .join("sys/devices/pci0000:0b/0000:0b:00.0/0000:0c:00.0");
    let net = function.join("net/rdma0");
    let replace = |name: &str| {
        let path = net.join(name);
        let _ = std::fs::remove_file(&path);
        path
    };
    assert!(
        Command::new("mkfifo")
            .arg(replace("mtu"))
            .status()
            .unwrap()
            .success()
    );
    symlink("address", replace("address")).unwrap();
    std::fs::write(replace("ifindex"), "7".repeat(100_000)).unwrap();
    symlink("/dev/zero", replace("speed")).unwrap();
    symlink(
        "/tmp",
        tree.dir.path().join("sys/bus/pci/devices/0000:77:00.0"),
    )
    .unwrap();
    let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
    let rail = &found.topology.rails[0];
    assert_eq!((rail.mtu, rail.ifindex, rail.mac), (None, None, None));
    let notes = render::notes(&found.notes);
    for part in [
        "/mtu: cannot be read",
        "/address: cannot be read",
        "/ifindex: larger than",
        "leads out of sysfs",
    ] {
        assert!(notes.contains(part), "{part} in\n{notes}");
    }
}

#[test]
fn memory_limits() {
    let tree = expand(
        "file proc/7/limits Limit   Soft  Hard Units\\nMax locked memory   8388608   unlimited   bytes\n\
         file proc/8/limits nothing",
    );
    let limit = memlock(tree.dir.path(), 7).unwrap();
    assert_eq!(
        limit,
        Memlock {
            soft: Some(8_388_608),
            hard: None
        }
    );
    assert!(matches!(
        memlock(tree.dir.path(), 8),
        Err(HostError::NoLine { .. })
    ));
    assert!(matches!(
        memlock(tree.dir.path(), 9),
        Err(HostError::Read { .. })
    ));
}

/// The same tree with the defaults set the wrong way: every selector's reason names it.
#[test]
fn each_selector_gives_its_reason() {
    for (line, reason) in [
        ("select vendors 1234", "not selected by rails.vendors"),
        ("select devices 1234", "not selected by rails.devices"),
        ("select drivers bnxt_en", "not selected by rails.drivers"),
        ("select pci 0000:ff:*", "not selected by rails.pci"),
        ("select rdma x*", "not selected by rails.rdma"),
        ("select netdevs x*", "not selected by rails.netdevs"),
        (
            "select link-types infiniband",
            "not selected by rails.linkTypes",
        ),
        ("select exclude rdma*", "excluded by rails.exclude rdma*"),
        ("kernel default-route rdma0", "carries the default route"),
    ] {
        let text = include_str!("../../../../fixtures/sysfs/sriov.txt");
        let tree = expand(&format!("{text}\n{line}"));
        let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
        let excluded = found.topology.excluded;
        assert!(
            excluded.iter().any(|port| port.reason == reason),
            "{reason}: {excluded:?}"
        );
    }
}

#[test]
fn a_macvlan_in_a_pod_is_known_from_netlink_only() {
    let text = include_str!("../../../../fixtures/sysfs/sriov.txt");
    let tree = expand(&format!("{text}\nkernel macvlan rdma0"));
    let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
    assert_eq!(found.topology.rails[0].faults, [RailFault::MacvlanParent]);
}
