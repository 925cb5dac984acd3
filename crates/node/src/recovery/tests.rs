//! What is reconstructed, what is doubted, and what the comparison finds.

use super::*;
use podrail_core::attachment::Attachment;
use podrail_core::ids::{MacAddr, PciAddr, RailIndex, SandboxId};
use podrail_core::plan::Alias;
use podrail_core::pods::PodRef;
use podrail_core::topology::{Gpu, GpuKind, LinkState, PciPath, Rail};
use podrail_store::{
    Binding, BootId, BoundRail, Decision, ReadOnly, Request, State, Store, StoreError,
};
use std::net::IpAddr;

fn path(bus: u16) -> PciPath {
    PciPath {
        root: format!("0000:{:02x}", bus & 0xf0).parse().unwrap(),
        bridges: vec![],
        function: format!("0000:{bus:02x}:00.0").parse().unwrap(),
        numa: None,
    }
}

fn mac(rail: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, u8::try_from(rail).unwrap()])
}

fn rail(index: u16) -> Rail {
    Rail {
        index: RailIndex(index),
        path: path(0x11 + 0x10 * index),
        pci_id: (0x15b3, 0x101d),
        nic: serde_json::from_value(serde_json::json!(format!(
            "0000:{:02x}:00",
            0x11 + 0x10 * index
        )))
        .unwrap(),
        netdev: Some(format!("rdma{index}").parse().unwrap()),
        ifindex: Some(100 + u32::from(index)),
        rdma: Some(format!("mlx5_{index}").parse().unwrap()),
        port: 1,
        uverbs: Some(format!("uverbs{index}")),
        umad: None,
        issm: None,
        guid: None,
        mac: Some(mac(index)),
        mtu: Some(4220),
        speed_mbps: None,
        link: LinkState::Up,
        faults: vec![],
    }
}

/// Four roots, each with a GPU and a rail.
fn topology() -> Topology {
    let gpu = |index: u16| Gpu {
        path: path(0x12 + 0x10 * index),
        kind: GpuKind::Nvidia,
        uuid: None,
        model: None,
        aliases: vec![],
    };
    Topology {
        gpus: (0..4).map(gpu).collect(),
        rails: (0..4).map(rail).collect(),
        excluded: vec![],
        numa: vec![],
    }
}

fn sandbox(name: &str) -> SandboxId {
    SandboxId::parse(name).unwrap()
}

/// As the kernel shows it after an attach.
fn child(of: &str, rail: u16, address: &str) -> Child {
    Child {
        name: format!("net{}", rail + 1),
        alias: Some(Alias {
            sandbox: sandbox(of),
            rail: RailIndex(rail),
        }),
        parent: Some(100 + u32::from(rail)),
        mac: Some(mac(rail)),
        mtu: 4220,
        addresses: vec![address.parse().unwrap()],
        gateways: vec!["10.239.0.254".parse().unwrap()],
    }
}

fn netns(number: u64, children: Vec<Child>) -> SeenNetns {
    SeenNetns {
        id: NetnsId {
            dev: 4,
            ino: number,
        },
        path: format!("/run/netns/n{number}").into(),
        children,
    }
}

fn pod(name: &str) -> PodRef {
    crate::testing::pod(name)
}

fn file(slot: u16, of: &str, pod: Option<PodRef>, rail: u16) -> Owner {
    Owner {
        slot: SlotId(slot),
        sandbox: sandbox(of),
        pod,
        uverbs: Some(format!("uverbs{rail}")),
    }
}

#[derive(Default)]
struct Scene {
    namespaces: Vec<SeenNetns>,
    files: Vec<Owner>,
    marked: BTreeSet<SlotId>,
    kubelet: Kubelet,
}

impl Scene {
    fn of(namespaces: Vec<SeenNetns>) -> Self {
        Self {
            namespaces,
            ..Self::default()
        }
    }

    fn recovered(&self) -> Recovered {
        reconstruct(&Evidence {
            namespaces: &self.namespaces,
            files: &self.files,
            marked: &self.marked,
            topology: &topology(),
            kubelet: &self.kubelet,
        })
    }

    fn census(&self) -> Census {
        Census {
            namespaces: self.namespaces.clone(),
            files: self.files.clone(),
            waiting: self.marked.clone(),
            ..Census::default()
        }
    }
}

fn says(findings: &[Finding], about: &str, part: &str) -> bool {
    let mut findings = findings.iter();
    findings.any(|found| found.about == about && found.finding.contains(part))
}

#[test]
fn a_job_comes_back_with_its_plan() {
    let scene = Scene::of(vec![netns(
        1,
        vec![
            child("job", 2, "10.239.0.3/24"),
            child("job", 0, "10.239.0.2/24"),
        ],
    )]);
    let found = scene.recovered();
    let [job] = found.bindings.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(job.doubts, Vec::<String>::new());
    assert_eq!(job.sandbox().as_str(), "job");
    assert_eq!((job.netns.ino, job.pod.clone()), (1, None));
    let rails = &job.attachment.rails;
    let indexes: Vec<u16> = rails.iter().map(|rail| rail.index.0).collect();
    assert_eq!(indexes, [0, 2]);
    assert_eq!(rails[1].pci.to_string(), "0000:31:00.0");
    assert_eq!(rails[1].interface.as_str(), "net3");
    assert_eq!(rails[1].uverbs.as_deref(), Some("uverbs2"));
    let plan = &job.attachment.plan;
    assert_eq!(plan.rails[1].parent.as_str(), "rdma2");
    assert_eq!(plan.rails[1].routes().len(), 2, "subnet and gateway");
    assert_eq!(plan.rails[1].rule_priority(), 30_102);
    assert!(says(&found.findings, "job", "which GPUs"));
    assert_eq!(found.findings.len(), 1, "{:?}", found.findings);
}

fn pod_scene() -> Scene {
    let part = Part {
        containers: vec!["main".into()],
        gpus: vec![2, 1],
        slots: vec![SlotId(5), SlotId(7)],
        rails: 2,
        ..Part::default()
    };
    Scene {
        namespaces: vec![netns(
            1,
            vec![
                child("p", 1, "10.239.0.2/24"),
                child("p", 2, "10.239.0.3/24"),
            ],
        )],
        // The file names say which slot became which rail, whatever their order.
        files: vec![
            file(7, "p", Some(pod("p")), 1),
            file(5, "p", Some(pod("p")), 2),
        ],
        marked: BTreeSet::new(),
        kubelet: Kubelet {
            parts: BTreeMap::from([(pod("p").uid, vec![part])]),
            allocated: [5, 7, 9].map(SlotId).into(),
        },
    }
}

#[test]
fn a_pod_comes_back_with_slots_gpus_and_containers() {
    let found = pod_scene().recovered();
    let [one] = found.bindings.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!((one.pod.as_ref(), one.doubts.len()), (Some(&pod("p")), 0));
    let rails = &one.attachment.rails;
    let slots: Vec<Option<u16>> = rails.iter().map(|rail| rail.slot.map(|s| s.0)).collect();
    assert_eq!(slots, [Some(7), Some(5)]);
    let gpus: Vec<Option<PciAddr>> = rails.iter().map(|rail| rail.gpu).collect();
    let at = |bus: &str| Some(PciAddr::parse(bus).unwrap());
    assert_eq!(gpus, [at("0000:22:00.0"), at("0000:32:00.0")]);
    assert_eq!((one.attachment.near(), one.attachment.gpus.len()), (2, 2));
    assert_eq!(rails[0].containers, ["main"]);
    // Slot 9 was given out, and nobody is bound to it.
    assert_eq!(found.waiting, [SlotId(9)].into());
    assert_eq!(found.findings, []);
}

#[test]
fn marked_slots_wait_unless_they_are_bound() {
    let mut scene = pod_scene();
    scene.kubelet = Kubelet::default();
    scene.marked = [5, 11].map(SlotId).into();
    let found = scene.recovered();
    assert_eq!(found.waiting, [SlotId(11)].into());
    assert!(says(&found.findings, "p", "which GPUs"));
}

/// Whoever has another parent than its index says must not get that rail: the index was used again.
#[test]
fn a_child_on_no_rail_is_left_and_the_rest_is_reserved() {
    let mut odd = child("job", 3, "10.239.0.9/24");
    odd.mac = Some(mac(9));
    let mut orphan = child("job", 2, "10.239.0.8/24");
    orphan.parent = None;
    let rest = child("job", 0, "10.239.0.2/24");
    let found = Scene::of(vec![netns(1, vec![odd, orphan, rest])]).recovered();
    let [job] = found.bindings.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(job.attachment.rails.len(), 1);
    assert_eq!(job.doubts.len(), 2);
    for name in ["net4 (10.239.0.9/24)", "net3 (10.239.0.8/24)"] {
        assert!(says(&found.findings, "job", name), "{:?}", found.findings);
    }
}

#[test]
fn a_sandbox_without_any_known_rail_is_told_and_not_bound() {
    let mut odd = child("job", 3, "10.239.0.9/24");
    odd.parent = Some(999);
    let found = Scene::of(vec![netns(1, vec![odd])]).recovered();
    assert_eq!(found.bindings, []);
    assert!(says(&found.findings, "job", "net4 (10.239.0.9/24)"));
}

#[test]
fn a_child_without_an_alias_is_told() {
    let mut half = child("x", 3, "10.239.0.9/24");
    (half.alias, half.addresses) = (None, vec![]);
    let found = Scene::of(vec![netns(1, vec![half])]).recovered();
    assert_eq!(found.bindings, []);
    assert!(says(&found.findings, "/run/netns/n1", "net4 has no alias"));
}

#[test]
fn what_is_not_whole_is_doubted() {
    let mut bare = child("job", 0, "10.239.0.2/24");
    bare.addresses.clear();
    let mut two = child("job", 1, "10.239.0.3/24");
    two.addresses.push("10.239.0.4/24".parse().unwrap());
    two.addresses.push("fd00::4/64".parse().unwrap());
    let found = Scene::of(vec![netns(1, vec![bare, two])]).recovered();
    let job = &found.bindings[0];
    assert_eq!(job.doubts.len(), 2, "{:?}", job.doubts);
    assert_eq!(job.attachment.rails[1].addresses.len(), 2, "one per family");
    assert!(says(&found.findings, "job", "net1 has no address"));
    assert!(says(&found.findings, "job", "second address 10.239.0.4/24"));
}

#[test]
fn two_namespaces_or_two_holders_of_an_address() {
    let scene = Scene::of(vec![
        netns(1, vec![child("a", 0, "10.239.0.2/24")]),
        netns(
            2,
            vec![
                child("a", 1, "10.239.0.3/24"),
                child("a", 2, "10.239.0.4/24"),
            ],
        ),
        netns(3, vec![child("b", 3, "10.239.0.4/24")]),
    ]);
    let found = scene.recovered();
    let [a, b] = found.bindings.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!((a.netns.ino, a.attachment.rails.len()), (2, 2));
    assert_eq!(a.doubts, ["it has rails in /run/netns/n1 too: net1"]);
    assert_eq!(b.attachment.rails[0].addresses, []);
    assert!(says(&found.findings, "b", "which another one has too"));
    assert!(b.doubts.len() == 2, "{:?}", b.doubts);
}

#[test]
fn the_order_of_the_evidence_is_of_no_consequence() {
    let mut scene = pod_scene();
    scene.namespaces.push(netns(
        2,
        vec![
            child("a", 0, "10.239.0.4/24"),
            child("a", 3, "10.239.0.5/24"),
        ],
    ));
    let one = scene.recovered();
    scene.namespaces.reverse();
    scene.files.reverse();
    for netns in &mut scene.namespaces {
        netns.children.reverse();
    }
    assert_eq!(scene.recovered(), one);
}

#[test]
fn files_of_nobody_are_told_and_a_slot_of_no_rail_is_a_doubt() {
    let mut scene = pod_scene();
    scene.files.push(file(3, "gone", None, 0));
    scene.files.push(file(4, "p", Some(pod("p")), 3));
    let found = scene.recovered();
    assert!(says(&found.findings, "slot-03", "sandbox gone"));
    assert_eq!(
        found.bindings[0].doubts,
        ["slot-04 is of none of its rails"]
    );
}

/// What was rebuilt is what the store takes, and what `status` and `detach` read.
#[test]
fn it_is_written_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.db");
    std::fs::write(&state, "damaged. ".repeat(999)).unwrap();
    let mut scene = pod_scene();
    scene.namespaces.push(netns(
        2,
        // The same rail as the pod's: another share of it.
        vec![child("job", 1, "10.239.0.9/24")],
    ));
    let recovered = scene.recovered();
    let pool = podrail_core::ipam::PoolName::parse("rails").unwrap();
    let means = (&pool, &topology());
    let done = restore(&state, &recovered, means, ".damaged-1", Default::default()).unwrap();
    assert_eq!(done.aside, [dir.path().join("state.db.damaged-1")]);
    assert!(
        std::fs::read_to_string(&done.aside[0])
            .unwrap()
            .starts_with("damaged")
    );
    let read = Store::open_read_only(&state).unwrap();
    let [job, p] = read.list() else {
        panic!("{read:?}")
    };
    assert_eq!((job.state, p.state), (State::Ready, State::Ready));
    assert_eq!((job.rails[0].share, p.rails[0].share), (0, 1));
    let attachment: Attachment = crate::attachment(p).unwrap();
    assert_eq!(&attachment, &recovered.bindings[1].attachment);
    assert_eq!(p.request.pod, Some(pod("p")));
    assert_eq!(
        read.waiting().keys().copied().collect::<Vec<_>>(),
        [SlotId(9)]
    );
    assert_eq!(read.slots(), 10);
    let highest = read.snapshot().cursors(&pool).v4;
    assert_eq!(highest.map(IpAddr::V4), Some("10.239.0.9".parse().unwrap()));
    let markers = crate::Markers::at(dir.path());
    assert!(markers.knows(Some(&pod("p").uid)).unwrap());
    assert_eq!(markers.waiting().unwrap(), [SlotId(9)].into());
    // A second time the new one is moved aside as well.
    let again = restore(&state, &recovered, means, ".damaged-1", Default::default()).unwrap();
    assert_eq!(again.aside, [dir.path().join("state.db.damaged-1-2")]);
}

#[test]
fn a_file_that_is_open_elsewhere_stays() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.db");
    // A lock of an open file stands against SQLite's, even in the same process.
    let open = crate::testing::store(dir.path());
    let pool = podrail_core::ipam::PoolName::parse("rails").unwrap();
    let refused = restore(
        &state,
        &Recovered::default(),
        (&pool, &topology()),
        ".old",
        Default::default(),
    );
    let words = crate::in_words(&refused.unwrap_err(), None);
    assert!(words.contains("is open in process"), "{words}");
    assert_eq!(open.list().unwrap(), []);
    drop(open);
    restore(
        &state,
        &Recovered::default(),
        (&pool, &topology()),
        ".old",
        Default::default(),
    )
    .unwrap();
}

fn boot() -> BootId {
    BootId::parse("00000000-0000-4000-8000-000000000001").unwrap()
}

/// A sandbox, the number of its namespace, and its rails with their slots.
type Holds<'a> = (&'a str, u64, &'a [(u16, Option<u16>)]);

/// What a state file says that has these.
fn books(of: &[Holds<'_>], waiting: &[u16]) -> ReadOnly {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.db");
    let mut store = Store::open(&state, &boot()).unwrap().store;
    for (name, ino, rails) in of {
        let request = Request {
            pod: None,
            netns_id: Some(NetnsId { dev: 4, ino: *ino }),
            ..crate::testing::request(&store, name)
        };
        let rails = rails.iter().map(|(index, slot)| BoundRail {
            index: RailIndex(*index),
            pci: rail(*index).path.function,
            port: 1,
            netdev: rail(*index).netdev.unwrap(),
            share: 0,
            slot: slot.map(SlotId),
        });
        let decision = Decision {
            rails: rails.collect(),
            ..Decision::default()
        };
        let reserved = store.reserve(&request, |_| Ok::<_, StoreError>(decision));
        let binding: Binding = reserved.unwrap().binding().clone();
        store.mark_ready(&binding.request.sandbox).unwrap();
    }
    let slots: Vec<SlotId> = waiting.iter().copied().map(SlotId).collect();
    store.allocate(&slots, 1).unwrap();
    drop(store);
    Store::open_read_only(&state).unwrap()
}

fn compared(state: &ReadOnly, scene: &Scene, differences: &[(&str, &str)]) -> Vec<Finding> {
    let words = |(of, what): &(&str, &str)| (sandbox(of), vec![(*what).to_owned()]);
    let differences = differences.iter().map(words).collect();
    let books = Books {
        state,
        boot: &boot(),
        differences: &differences,
    };
    compare(&books, &scene.census(), &scene.kubelet)
}

#[test]
fn a_file_that_tells_the_truth_gives_no_finding() {
    let mut scene = pod_scene();
    scene.marked = [SlotId(9)].into();
    let state = books(&[("p", 1, &[(1, Some(7)), (2, Some(5))])], &[9]);
    assert_eq!(compared(&state, &scene, &[]), []);
    assert_eq!(compared(&ReadOnly::default(), &Scene::default(), &[]), []);
}

#[test]
fn each_difference_is_found() {
    let mut scene = pod_scene();
    // The kubelet has 5, 7 and 9; the file of 5 is another's; a rail of a stranger is there.
    scene.files = vec![file(5, "stranger", None, 2)];
    scene
        .namespaces
        .push(netns(3, vec![child("stranger", 3, "10.239.0.9/24")]));
    let state = books(
        &[
            ("p", 1, &[(1, Some(7)), (2, Some(5))]),
            ("gone", 9, &[(0, None)]),
        ],
        &[2],
    );
    let found = compared(&state, &scene, &[("p", "rail 1: is down")]);
    for (about, part) in [
        ("p", "rail 1: is down"),
        ("p", "the CDI file of slot-05 is of stranger"),
        ("p", "the CDI file of slot-07 is missing"),
        ("gone", "none of its rails is in any network namespace"),
        ("stranger", "net4 in /run/netns/n3 is rail 3 of it"),
        ("slot-05", "its CDI file is of sandbox stranger"),
        ("slot-02", "it waits and has no marker"),
        ("slot-09", "the kubelet has given it out"),
    ] {
        assert!(says(&found, about, part), "{about}: {part}: {found:#?}");
    }
    assert_eq!(found.len(), 8, "{found:#?}");
    assert!(found.iter().all(|found| !found.hint.is_empty()));
}

/// A file that is gone is an empty one: everything in the kernel is unknown to it.
#[test]
fn with_no_file_every_rail_is_unknown() {
    let found = compared(&ReadOnly::default(), &pod_scene(), &[]);
    let rails = found.iter().filter(|found| found.about == "p");
    assert_eq!(rails.count(), 2, "{found:#?}");
}

#[test]
fn what_is_pending_or_of_another_boot_is_told() {
    let state = books(&[("p", 1, &[(1, None)])], &[]);
    let other = BootId::parse("00000000-0000-4000-8000-000000000002").unwrap();
    let books = Books {
        state: &state,
        boot: &other,
        differences: &BTreeMap::new(),
    };
    let found = compare(&books, &Census::default(), &Kubelet::default());
    assert!(says(&found, "p", "of an earlier boot"), "{found:?}");
}
