//! The map by address, and the verdict, on what users met.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

fn interface(name: &str, addresses: &[&str]) -> RailInterface {
    RailInterface {
        name: IfName::parse(name).unwrap(),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

fn gid(device: &str, index: u32, gid: &str, v2: bool, netdev: Option<&str>) -> GidEntry {
    GidEntry {
        device: RdmaName::parse(device).unwrap(),
        port: 1,
        index,
        gid: gid.parse().unwrap(),
        roce_v2: v2,
        netdev: netdev.map(str::to_owned),
    }
}

fn lines(interfaces: &[RailInterface], gids: &[GidEntry]) -> Vec<String> {
    map(interfaces, gids)
        .iter()
        .map(|entry| entry.columns().join(" "))
        .collect()
}

#[test]
fn case_1_the_roce_v2_entry_of_the_pods_address() {
    let table = [
        gid("mlx5_5", 4, "fe80::1", false, Some("net1")),
        gid("mlx5_5", 5, "fe80::1", true, Some("net1")),
        gid("mlx5_5", 6, "::ffff:10.239.255.1", false, Some("net1")),
        gid("mlx5_5", 7, "::ffff:10.239.255.1", true, Some("net1")),
    ];
    assert_eq!(
        lines(&[interface("net1", &["10.239.255.1"])], &table),
        ["net1 10.239.255.1 mlx5_5 7"]
    );
}

#[test]
fn case_5_gids_of_other_pods_with_the_same_interface_name_are_not_taken() {
    let table = [
        gid("mlx5_5", 2, "::ffff:10.239.255.1", true, Some("net1")),
        gid("mlx5_5", 4, "::ffff:10.239.255.33", true, Some("net1")),
        gid("mlx5_6", 2, "::ffff:10.239.255.2", true, Some("net1")),
    ];
    let second_pod = [interface("net1", &["10.239.255.33"])];
    assert_eq!(lines(&second_pod, &table), ["net1 10.239.255.33 mlx5_5 4"]);
}

#[test]
fn an_entry_that_names_the_interface_wins_over_a_lower_index() {
    let table = [
        gid("mlx5_1", 1, "::ffff:10.0.0.1", true, Some("rdma0.1")),
        gid("mlx5_1", 3, "::ffff:10.0.0.1", true, Some("net1")),
    ];
    assert_eq!(
        lines(&[interface("net1", &["10.0.0.1"])], &table),
        ["net1 10.0.0.1 mlx5_1 3"]
    );
}

#[test]
fn natural_order_both_families_and_what_is_missing() {
    let pod = [
        interface("net10", &[]),
        interface("net2", &["fd00::2", "10.0.0.2"]),
    ];
    let table = [gid("mlx5_2", 9, "fd00::2", true, None)];
    assert_eq!(
        lines(&pod, &table),
        [
            "net2 10.0.0.2 none none",
            "net2 fd00::2 mlx5_2 9",
            "net10 none none none"
        ]
    );
}

fn good() -> Evidence {
    let device = RdmaName::parse("mlx5_5").unwrap();
    let table = vec![gid("mlx5_5", 5, "::ffff:10.0.0.1", true, Some("net1"))];
    Evidence {
        shared_mode: Some(true),
        map: map(&[interface("net1", &["10.0.0.1"])], &table),
        gids: table,
        openable: BTreeSet::from([device.clone()]),
        pci_of: BTreeMap::from([(device, "0000:0c:00.0".into())]),
        allocated: Some(BTreeSet::from(["0000:0c:00.0".into()])),
        expected: None,
        memlock: Memlock {
            uid: 0,
            limit: None,
            ipc_lock: false,
        },
    }
}

/// The findings as `severity: text`, or the summary when there is none.
fn verdict(change: impl FnOnce(&mut Evidence)) -> (bool, Vec<String>) {
    let mut evidence = good();
    change(&mut evidence);
    let report = judge(&evidence);
    let found = report
        .findings
        .iter()
        .map(|f| format!("{:?}: {}", f.severity, f.text))
        .collect();
    (report.pass, found)
}

#[test]
fn a_good_pod_passes_with_its_gid_index() {
    let report = judge(&good());
    assert!(report.pass && report.findings.is_empty(), "{report:?}");
    assert!(
        report.summary().starts_with("PASS: 1 IPvlan interfaces"),
        "{}",
        report.summary()
    );
    assert!(
        report.summary().ends_with("(GID index: 5)"),
        "{}",
        report.summary()
    );
}

#[test]
fn each_fault_fails_and_is_named() {
    let mib = 1 << 20;
    type Change = fn(&mut Evidence);
    let cases: [(Change, &str); 8] = [
        (|e| e.shared_mode = Some(false), "exclusive"),
        (|e| e.shared_mode = None, "ib_core is not loaded"),
        (
            |e| e.map.clear(),
            "0 rail interfaces in this namespace, 1 expected",
        ),
        (
            |e| e.expected = Some(2),
            "1 rail interfaces in this namespace, 2 expected",
        ),
        (
            |e| e.map[0].device = None,
            "net1 (10.0.0.1) has no RoCE v2 GID",
        ),
        (|e| e.map[0].address = None, "net1 has no address"),
        (|e| e.openable.clear(), "mlx5_5 of net1 cannot be opened"),
        (
            |e| e.allocated = Some(BTreeSet::from(["0000:16:00.0".into()])),
            "is not an allocated device",
        ),
    ];
    for (change, expected) in cases {
        let (pass, found) = verdict(change);
        assert!(
            !pass && found.iter().any(|f| f.contains(expected)),
            "{expected}: {found:?}"
        );
    }
    for (limit, words) in [(8 * mib, "8 MiB"), (mib / 16, "64 KiB")] {
        let (pass, found) = verdict(|e| {
            e.memlock = Memlock {
                uid: 1000,
                limit: Some(limit),
                ipc_lock: false,
            }
        });
        assert!(
            !pass && found[0].contains(&format!("uid 1000 may lock {words} of memory")),
            "{found:?}"
        );
    }
}

#[test]
fn what_only_warns_does_not_fail() {
    let other = RdmaName::parse("mlx5_0").unwrap();
    let (pass, found) = verdict(|e| _ = e.openable.insert(other));
    assert!(
        pass && found[0].starts_with("Warn: 1 RDMA devices can be opened"),
        "{found:?}"
    );
    let limited = Memlock {
        uid: 0,
        limit: Some(1 << 20),
        ipc_lock: true,
    };
    assert_eq!(verdict(|e| e.memlock = limited), (true, vec![]));
    let foreign = gid("mlx5_5", 1, "::ffff:10.224.0.1", true, None);
    let (pass, found) = verdict(|e| e.gids.push(foreign));
    assert!(pass && found[0].contains("not isolated"), "{found:?}");
}
