//! The device manager's books, and the checkpoint.

use super::{Books, Grant, Want, checkpoint};
use podrail_kubelet::proto::deviceplugin::{CdiDevice, ContainerAllocateResponse, Device};
use podrail_kubelet::proto::deviceplugin::{NumaNode, TopologyInfo};
use std::collections::BTreeSet;

fn device(id: &str, health: &str, node: Option<i64>) -> Device {
    let topology = node.map(|id| TopologyInfo {
        nodes: vec![NumaNode { id }],
    });
    Device {
        id: id.into(),
        health: health.into(),
        topology,
    }
}

fn books() -> Books {
    let mut books = Books::default();
    books.update(
        "a/b",
        &[
            device("s0", "Healthy", None),
            device("s1", "Healthy", Some(1)),
            device("s2", "Unhealthy", None),
        ],
    );
    books
}

fn want(pod: &'static str, count: usize) -> Want<'static> {
    Want {
        pod,
        container: "main",
        resource: "a/b",
        count,
    }
}

fn give(books: &mut Books, pod: &str, ids: &[&str]) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let devices = books.by_numa("a/b", &ids);
    books.grants.push(Grant {
        pod: pod.into(),
        container: "main".into(),
        resource: "a/b".into(),
        devices,
        answer: ContainerAllocateResponse {
            cdi_devices: vec![CdiDevice {
                name: "a/b=s0".into(),
            }],
            ..Default::default()
        },
    });
}

#[test]
fn only_healthy_free_devices_are_given() {
    let mut books = books();
    let none = BTreeSet::new();
    let all = books.candidates(want("p", 2), &none).unwrap().unwrap();
    assert_eq!(all.free, ["s0", "s1"]);
    give(&mut books, "p", &["s0"]);
    assert!(
        books.candidates(want("p", 1), &none).unwrap().is_none(),
        "it has them"
    );
    let refusal = books.candidates(want("q", 2), &none).unwrap_err();
    assert!(refusal.ends_with("Requested: 2, Available: 1"), "{refusal}");
    books.free("p");
    assert!(books.candidates(want("q", 2), &none).is_ok());
}

#[test]
fn devices_of_plain_init_containers_go_first() {
    let mut books = books();
    give(&mut books, "p", &["s1"]);
    let reusable = BTreeSet::from(["s1".to_owned()]);
    let main = Want {
        container: "other",
        ..want("p", 1)
    };
    let candidates = books.candidates(main, &reusable).unwrap().unwrap();
    for seed in 0..20 {
        let picked = candidates
            .clone()
            .pick(1, &mut fastrand::Rng::with_seed(seed));
        assert_eq!(picked, ["s1"]);
    }
}

#[test]
fn readmission_speaks_as_the_kubelet() {
    let mut books = books();
    give(&mut books, "p", &["s0"]);
    let none = BTreeSet::new();
    books.update(
        "a/b",
        &[
            device("s0", "Unhealthy", None),
            device("s1", "Healthy", None),
        ],
    );
    let unhealthy = books.candidates(want("p", 1), &none).unwrap_err();
    assert!(unhealthy.starts_with("previously allocated devices are no longer healthy"));
    books.lose("a/b");
    let absent = books.candidates(want("p", 1), &none).unwrap_err();
    assert!(absent.starts_with("no healthy devices present"));
    assert_eq!(books.amounts()["a/b"].allocatable, 0);
    assert_eq!(books.amounts()["a/b"].capacity, 2);
    books.pools.clear();
    let unknown = books.candidates(want("p", 1), &none).unwrap_err();
    assert_eq!(unknown, "cannot allocate unregistered device a/b");
}

#[test]
fn the_checkpoint_brings_grants_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = books();
    give(&mut before, "p", &["s0", "s1"]);
    checkpoint::write(folder.path(), &before).unwrap();
    let text = std::fs::read_to_string(folder.path().join(checkpoint::FILE)).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entry = &document["Data"]["PodDeviceEntries"][0];
    assert_eq!(
        entry["DeviceIDs"],
        serde_json::json!({"-1": ["s0"], "1": ["s1"]})
    );
    assert!(document["Checksum"].is_u64());
    let mut after = Books::default();
    checkpoint::read(folder.path(), &mut after).unwrap();
    assert_eq!(after.grants, before.grants);
    assert_eq!(after.amounts()["a/b"].capacity, 0, "until the plugin comes");
}

#[test]
fn no_checkpoint_is_no_fault_and_a_broken_one_is() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::read(folder.path(), &mut Books::default()).unwrap();
    std::fs::write(folder.path().join(checkpoint::FILE), "{").unwrap();
    assert!(checkpoint::read(folder.path(), &mut Books::default()).is_err());
}
