//! Documents as a runtime reads them: strictly, with no field that CDI 0.6.0 does not have.

use super::*;
use crate::ids::{IfName, KubeName, PciAddr, PodUid, RootId};
use crate::plan::AttachPlan;
use crate::topology::{LinkState, PciPath, Rail};
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// CDI 0.6.0, as far as its fields go: the runtimes' reader refuses any other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    cdi_version: String,
    kind: String,
    annotations: BTreeMap<String, String>,
    devices: Vec<Device>,
    container_edits: Option<Edits>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    container_edits: Edits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    hooks: Vec<serde_json::Value>,
    mounts: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DeviceNode {
    path: String,
    host_path: Option<String>,
    r#type: Option<String>,
    major: Option<i64>,
    minor: Option<i64>,
    file_mode: Option<u32>,
    permissions: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// What the runtimes' own validation asks besides the fields.
fn read(file: &SlotFile) -> Spec {
    let spec: Spec = serde_json::from_str(&file.text).unwrap();
    assert_eq!(spec.cdi_version, "0.6.0");
    assert_eq!(spec.kind, "podrail.io/rail");
    assert!(spec.container_edits.is_none());
    assert!(
        spec.annotations
            .keys()
            .all(|key| key.starts_with("podrail.io/"))
    );
    let [device] = spec.devices.as_slice() else {
        panic!("{spec:?}")
    };
    assert_eq!(device.name, file.slot.to_string());
    assert!(device.annotations.is_empty());
    let edits = &device.container_edits;
    assert!(edits.hooks.is_empty() && edits.mounts.is_empty());
    assert!(!edits.device_nodes.is_empty());
    for node in &edits.device_nodes {
        assert!(node.path.starts_with("/dev/infiniband/"), "{node:?}");
        assert_eq!(node.permissions.as_deref(), Some("rw"));
        let left_out = (&node.host_path, &node.r#type, node.major, node.minor);
        assert_eq!(left_out, (&None, &None, None, None));
        assert_eq!((node.file_mode, node.uid, node.gid), (None, None, None));
    }
    for line in &edits.env {
        let (name, _) = line.split_once('=').unwrap();
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        );
    }
    spec
}

fn env(file: &SlotFile) -> BTreeMap<String, String> {
    let spec = read(file);
    let lines = spec.devices[0].container_edits.env.iter();
    lines
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn nodes(file: &SlotFile) -> Vec<String> {
    let mut spec = read(file);
    let nodes = spec.devices.remove(0).container_edits.device_nodes;
    nodes.into_iter().map(|node| node.path).collect()
}

fn options(resource: &str) -> Options {
    Options {
        resource: ResourceName::parse(resource).unwrap(),
        umad: false,
        issm: false,
    }
}

fn pci(index: u16) -> PciAddr {
    let (bus, function) = (0x0c + index / 2, index % 2);
    PciAddr::parse(&format!("0000:{bus:02x}:00.{function}")).unwrap()
}

fn held(index: u16, slot: Option<u16>, containers: &[&str]) -> HeldRail {
    HeldRail {
        index: RailIndex(index),
        pci: pci(index),
        port: 1,
        netdev: IfName::parse(&format!("rdma{index}")).unwrap(),
        rdma: RdmaName::parse(&format!("mlx5_{}", index + 1)).ok(),
        uverbs: Some(format!("uverbs{}", index + 1)),
        interface: RailIndex(index).default_interface(),
        addresses: vec![],
        gpu: None,
        distance: None,
        slot: slot.map(SlotId),
        containers: containers.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn attachment(rails: Vec<HeldRail>) -> Attachment {
    Attachment {
        gpus: vec![],
        rails,
        exact: true,
        plan: AttachPlan::new(SandboxId::parse("5f0c").unwrap(), vec![], None).unwrap(),
    }
}

fn pod() -> PodRef {
    PodRef {
        uid: PodUid::parse("0f2b1c5e-1111").unwrap(),
        namespace: KubeName::parse("default").unwrap(),
        name: KubeName::parse("job-worker-0").unwrap(),
    }
}

fn rails(of: std::ops::Range<u16>, umad: bool) -> Topology {
    let rail = |index| Rail {
        index: RailIndex(index),
        path: PciPath {
            root: RootId::parse("0000:0b").unwrap(),
            bridges: vec![],
            function: pci(index),
            numa: None,
        },
        pci_id: (0x15b3, 0x101d),
        nic: pci(index).nic(),
        netdev: None,
        ifindex: None,
        rdma: RdmaName::parse(&format!("mlx5_{}", index + 1)).ok(),
        port: 1,
        uverbs: None,
        umad: umad.then(|| format!("umad{}", index + 1)),
        issm: None,
        guid: None,
        mac: None,
        mtu: None,
        speed_mbps: None,
        link: LinkState::Up,
        faults: vec![],
    };
    Topology {
        rails: of.map(rail).collect(),
        ..Topology::default()
    }
}

fn made(resource: &str, rails: Vec<HeldRail>) -> Vec<SlotFile> {
    let none = Topology::default();
    files(&options(resource), &none, &attachment(rails), Some(&pod())).unwrap()
}

#[test]
fn two_slots_of_one_container() {
    let files = made(
        "nvidia.com/hostdev",
        vec![held(4, Some(7), &["worker"]), held(5, Some(0), &["worker"])],
    );
    let names: Vec<String> = files.iter().map(SlotFile::name).collect();
    assert_eq!(
        names,
        [
            "podrail.io-rail_slot-07.json",
            "podrail.io-rail_slot-00.json"
        ]
    );
    assert_eq!(
        nodes(&files[0]),
        ["/dev/infiniband/uverbs5", "/dev/infiniband/rdma_cm"]
    );
    assert_eq!(
        nodes(&files[1]),
        ["/dev/infiniband/uverbs6", "/dev/infiniband/rdma_cm"]
    );
    assert_eq!(nodes(&files[0]), files[0].nodes);
    assert_eq!(env(&files[0]), env(&files[1]));
    let env = env(&files[0]);
    assert_eq!(
        env["PCIDEVICE_NVIDIA_COM_HOSTDEV"],
        "0000:0e:00.0,0000:0e:00.1"
    );
    assert_eq!(
        env["PCIDEVICE_NVIDIA_COM_HOSTDEV_INFO"],
        concat!(
            r#"{"0000:0e:00.0":{"generic":{"deviceID":"0000:0e:00.0"},"#,
            r#""rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_5","#,
            r#""uverbs":"/dev/infiniband/uverbs5"}},"#,
            r#""0000:0e:00.1":{"generic":{"deviceID":"0000:0e:00.1"},"#,
            r#""rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_6","#,
            r#""uverbs":"/dev/infiniband/uverbs6"}}}"#
        )
    );
}

#[test]
fn umad_and_issm_by_option_and_never_silently_left_out() {
    let rail = || attachment(vec![held(0, Some(0), &["a"])]);
    let mut options = options("podrail.io/rail");
    options.umad = true;
    let found = files(&options, &rails(0..1, true), &rail(), None).unwrap();
    assert_eq!(
        nodes(&found[0]),
        [
            "/dev/infiniband/uverbs1",
            "/dev/infiniband/umad1",
            "/dev/infiniband/rdma_cm"
        ]
    );
    assert!(
        env(&found[0])["PCIDEVICE_PODRAIL_IO_RAIL_INFO"]
            .contains(r#""umad":"/dev/infiniband/umad1","uverbs""#)
    );
    let refused = |options: &Options, topology: &Topology, held: HeldRail| {
        files(options, topology, &attachment(vec![held]), None).unwrap_err()
    };
    let error = refused(&options, &rails(0..1, false), held(0, Some(0), &["a"]));
    assert_eq!(error.to_string(), "rail 0 has no umad device");
    assert!(error.hint().contains("ib_umad"));
    // The index is another device's by now: its umad is not given.
    let error = refused(&options, &rails(1..2, true), held(0, Some(0), &["a"]));
    assert_eq!(error.to_string(), "rail 0 has no umad device");
    options.issm = true;
    let error = refused(&options, &rails(0..1, true), held(0, Some(0), &["a"]));
    assert!(error.hint().contains("RoCE"), "{error}");
}

#[test]
fn a_rail_without_its_device_has_no_file() {
    let mut rail = held(3, Some(0), &["a"]);
    rail.uverbs = None;
    let none = Topology::default();
    let options = options("podrail.io/rail");
    let error = files(&options, &none, &attachment(vec![rail.clone()]), None).unwrap_err();
    assert_eq!(error.to_string(), "rail 3 has no uverbs device");
    rail.rdma = None;
    let error = files(&options, &none, &attachment(vec![rail.clone()]), None).unwrap_err();
    assert_eq!(error.to_string(), "rail 3 has no RDMA device");
    rail.slot = None;
    assert_eq!(
        files(&options, &none, &attachment(vec![rail]), None),
        Ok(vec![])
    );
}

#[test]
fn containers_see_their_own_rails() {
    let files = made(
        "podrail.io/rail",
        vec![
            held(0, Some(0), &["a"]),
            held(1, Some(1), &["a"]),
            held(2, Some(2), &["b"]),
        ],
    );
    let lists: Vec<String> = files
        .iter()
        .map(|file| env(file)["PCIDEVICE_PODRAIL_IO_RAIL"].clone())
        .collect();
    let a = "0000:0c:00.0,0000:0c:00.1";
    assert_eq!(lists, [a, a, "0000:0d:00.0"]);
}

/// An init container has slots 0-2, the main container 0 and 1 of them, and another main
/// container's init has fewer than it.
#[test]
fn a_slot_that_an_init_container_passes_on_has_the_list_of_the_main_container() {
    let files = made(
        "podrail.io/rail",
        vec![
            held(0, Some(0), &["main", "init"]),
            held(1, Some(1), &["main", "init"]),
            held(2, Some(2), &["init"]),
            held(3, Some(3), &["second", "init2"]),
            held(4, Some(4), &["second"]),
        ],
    );
    let lists: Vec<usize> = files
        .iter()
        .map(|file| env(file)["PCIDEVICE_PODRAIL_IO_RAIL"].split(',').count())
        .collect();
    assert_eq!(lists, [2, 2, 3, 2, 2]);
}

#[test]
fn two_ports_of_one_function_are_one_device_of_the_environment() {
    let mut second = held(1, Some(1), &["a"]);
    second.pci = pci(0);
    second.port = 2;
    let files = made("podrail.io/rail", vec![held(0, Some(0), &["a"]), second]);
    assert_eq!(env(&files[0])["PCIDEVICE_PODRAIL_IO_RAIL"], "0000:0c:00.0");
    assert_eq!(files.len(), 2);
}

#[test]
fn the_owner_is_read_back() {
    let rails = || attachment(vec![held(0, Some(12), &["a"])]);
    let none = Topology::default();
    for pod in [None, Some(pod())] {
        let files = files(&options("podrail.io/rail"), &none, &rails(), pod.as_ref()).unwrap();
        let owner = parse(&files[0].text).unwrap();
        assert_eq!(owner.slot, SlotId(12));
        assert_eq!(owner.sandbox.as_str(), "5f0c");
        assert_eq!(owner.pod, pod);
    }
}

#[test]
fn what_is_not_ours_is_refused_with_the_reason() {
    let with = |kind: &str, annotations: &str, devices: &str| {
        format!(r#"{{"kind":"{kind}","annotations":{{{annotations}}},"devices":[{devices}]}}"#)
    };
    let (sandbox, slot) = (r#""podrail.io/sandbox":"s""#, r#"{"name":"slot-00"}"#);
    assert!(parse(&with(KIND, sandbox, slot)).is_ok());
    let pod = format!(r#"{sandbox},"podrail.io/pod":"ns/name""#);
    let bad_pod = format!(r#"{sandbox},"podrail.io/pod":"ns","podrail.io/pod-uid":"u""#);
    for (text, reason) in [
        (String::new(), "this is no CDI document"),
        ("[".repeat(100_000), "this is no CDI document"),
        ("{}".into(), "this is no CDI document"),
        (" ".repeat(LARGEST + 1), "has 262145 bytes, more than"),
        (
            with("nvidia.com/gpu", sandbox, slot),
            "kind \"nvidia.com/gpu\"",
        ),
        (with(KIND, sandbox, ""), "0 devices"),
        (with(KIND, sandbox, &format!("{slot},{slot}")), "2 devices"),
        (
            with(KIND, "", slot),
            "lacks the annotation podrail.io/sandbox",
        ),
        (
            with(KIND, &pod, slot),
            "lacks the annotation podrail.io/pod-uid",
        ),
        (
            with(KIND, sandbox, r#"{"name":"slot-7"}"#),
            "name that is not valid",
        ),
        (
            with(KIND, r#""podrail.io/sandbox":"../x""#, slot),
            "name that is not valid",
        ),
        (with(KIND, &bad_pod, slot), "name that is not valid"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error} for {text:.100}");
    }
}

#[test]
fn file_names_are_ours_or_not() {
    assert_eq!(device_name(SlotId(7)), "podrail.io/rail=slot-07");
    for name in [
        "podrail.io-rail_slot-7.json",
        "podrail.io-rail_slot-07.yaml",
        ".podrail.io-rail_slot-07.json",
        "podrail.io-rail_slot-07.json.tmp",
        "nvidia.com-gpu.json",
        "",
    ] {
        assert_eq!(slot_of_file(name), None, "{name}");
    }
}

/// Rails with distinct slots in any order, each with one to three of five containers.
fn any_rails() -> impl Strategy<Value = Vec<HeldRail>> {
    let names = ["a", "b", "c", "d", "e"];
    let containers = proptest::sample::subsequence(names.to_vec(), 0..=3).prop_shuffle();
    proptest::collection::btree_map(0u16..200, containers, 0..24)
        .prop_map(|slots| slots.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|slots| {
            let each = slots.iter().zip(0u16..);
            each.map(|((slot, containers), index)| held(index, Some(*slot), containers))
                .collect()
        })
}

proptest! {
    #[test]
    fn every_file_is_valid_and_lists_the_rails_of_its_container(
        rails in any_rails(),
        resource in "[a-z]{1,8}\\.[a-z]{2,3}/[a-zA-Z]([a-zA-Z0-9._-]{0,20}[a-z])?",
    ) {
        let files = made(&resource, rails.clone());
        prop_assert_eq!(files.len(), rails.len());
        let names: BTreeSet<String> = files.iter().map(SlotFile::name).collect();
        prop_assert_eq!(names.len(), files.len());
        for (file, rail) in files.iter().zip(&rails) {
            prop_assert_eq!(Some(file.slot), rail.slot);
            prop_assert_eq!(slot_of_file(&file.name()), rail.slot);
            prop_assert_eq!(parse(&file.text).unwrap().slot, file.slot);
            let env = env(file);
            prop_assert_eq!(env.len(), 2);
            let (name, list) = env.iter().next().unwrap();
            let listed: Vec<String> = list.split(',').map(str::to_owned).collect();
            let wanted: Vec<String> = rails
                .iter()
                .filter(|other| match rail.containers.first() {
                    Some(first) => other.containers.contains(first),
                    None => other.containers.is_empty(),
                })
                .map(|other| other.pci.to_string())
                .collect();
            prop_assert_eq!(&listed, &wanted);
            let information: BTreeMap<String, serde_json::Value> =
                serde_json::from_str(&env[&format!("{name}_INFO")]).unwrap();
            prop_assert_eq!(
                information.keys().collect::<BTreeSet<_>>(),
                wanted.iter().collect::<BTreeSet<_>>()
            );
        }
    }

    #[test]
    fn any_text_is_an_owner_or_an_error(text in "\\PC{0,200}") {
        prop_assert!(parse(&text).is_err());
    }
}

#[test]
fn two_ports_of_one_function_are_listed_once_and_in_order() {
    let function = |text: &str| PciAddr::parse(text).unwrap();
    let (a, b) = (function("0000:0c:00.0"), function("0000:0a:00.0"));
    let resource = ResourceName::parse("nvidia.com/hostdev").unwrap();
    assert_eq!(
        device_list(&resource, [a, a, b].into_iter()),
        "PCIDEVICE_NVIDIA_COM_HOSTDEV=0000:0c:00.0,0000:0a:00.0"
    );
}
