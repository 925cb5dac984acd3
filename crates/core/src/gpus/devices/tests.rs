//! Ids as the plugins of the three makers give them, and what is none.

use super::*;
use crate::ids::RootId;
use crate::topology::PciPath;
use proptest::prelude::*;

fn gpu(bus: &str, kind: GpuKind, uuid: Option<&str>, aliases: &[&str]) -> Gpu {
    Gpu {
        path: PciPath {
            root: RootId::parse("0000:0b").unwrap(),
            bridges: vec![],
            function: PciAddr::parse(&format!("0000:{bus}:00.0")).unwrap(),
            numa: None,
        },
        kind,
        uuid: uuid.map(|uuid| GpuUuid::parse(uuid).unwrap()),
        model: None,
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
    }
}

const FIRST: &str = "GPU-11111111-aaaa-bbbb-cccc-000000000001";
const SECOND: &str = "GPU-22222222-aaaa-bbbb-cccc-000000000002";
const MIG: &str = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f";

/// 0 and 4 NVIDIA, 1 and 2 AMD, 3 Intel: indexes and positions differ.
fn node() -> Topology {
    Topology {
        gpus: vec![
            gpu("0f", GpuKind::Nvidia, Some(FIRST), &["card0"]),
            gpu("19", GpuKind::Amd, None, &["card1", "amdgpu_xcp_1"]),
            gpu("1a", GpuKind::Amd, None, &["card2"]),
            gpu("1b", GpuKind::Intel, None, &["card3"]),
            gpu("51", GpuKind::Nvidia, Some(SECOND), &[]),
        ],
        ..Topology::default()
    }
}

#[test]
fn each_plugin_names_its_gpus_in_its_own_way() {
    for (resource, id, position) in [
        ("nvidia.com/gpu", FIRST, 0),
        ("nvidia.com/gpu", SECOND, 4),
        ("nvidia.com/gpu", &format!("{SECOND}::3"), 4),
        ("nvidia.com/gpu.shared", &format!("{FIRST}::0"), 0),
        ("nvidia.com/gpu", "0", 0),
        ("nvidia.com/gpu", "1", 4),
        ("nvidia.com/gpu.shared", "1::7", 4),
        ("nvidia.com/mig-3g.20gb", &format!("MIG-{SECOND}/2/0"), 4),
        ("nvidia.com/gpu", &format!("MIG-{SECOND}/2/0::1"), 4),
        ("nvidia.com/gpu", "0000:51:00.0", 4),
        ("nvidia.com/gpu", "00000000:51:00.0", 4),
        ("amd.com/gpu", "0000:19:00.0", 1),
        ("amd.com/gpu", "amdgpu_xcp_1", 1),
        ("amd.com/cpx_nps4", "amdgpu_xcp_1", 1),
        ("amd.com/spx_nps1", "0000:1a:00.0", 2),
        ("amd.com/gpu", "0000:1a:00.0-slice-2", 2),
        ("amd.com/gpu", "amdgpu_xcp_1-slice-10", 1),
        ("gpu.intel.com/i915", "card3-0", 3),
        ("gpu.intel.com/xe", "card3-11", 3),
        ("gpu.intel.com/xe", "card3", 3),
        ("gpu.intel.com/xe", "0000:1b:00.0", 3),
    ] {
        assert_eq!(
            lookup(&node(), resource, id),
            GpuId::Found(position),
            "{resource} {id}"
        );
    }
}

#[test]
fn only_the_driver_knows_the_gpu_of_a_mig_device() {
    for (resource, id) in [
        ("nvidia.com/mig-1g.5gb", MIG.to_owned()),
        ("nvidia.com/mig-1g.5gb.shared", format!("{MIG}::1")),
        ("nvidia.com/gpu", MIG.to_owned()),
    ] {
        assert_eq!(
            lookup(&node(), resource, &id),
            GpuId::NeedsMigParent(MIG.into())
        );
    }
    assert_eq!(lookup(&node(), "amd.com/gpu", MIG), GpuId::Unknown);
}

#[test]
fn what_is_not_understood_is_not_guessed() {
    for (resource, id) in [
        ("nvidia.com/gpu", "GPU-33333333"),
        ("nvidia.com/gpu", "2"),
        ("nvidia.com/gpu", "+1"),
        ("nvidia.com/gpu", "99999999999999999999999"),
        ("nvidia.com/gpu", "card0"),
        ("nvidia.com/gpu", "nvidia0"),
        ("nvidia.com/gpu", &format!("{FIRST}::x")),
        ("nvidia.com/gpu", "MIG-"),
        ("nvidia.com/gpu", ""),
        ("nvidia.com/gpu", &"1".repeat(1 << 20)),
        ("amd.com/gpu", "1"),
        ("amd.com/gpu", "amdgpu_xcp_2"),
        ("amd.com/gpu", "card3"),
        ("gpu.intel.com/i915", "card1-0"),
        ("gpu.intel.com/i915", "card3-"),
        ("gpu.intel.com/i915", "all"),
        ("gpu.intel.com/i915", "0000:ff:00.0"),
    ] {
        assert_eq!(
            lookup(&node(), resource, id),
            GpuId::Unknown,
            "{resource} {id:.40}"
        );
    }
}

#[test]
fn other_resources_are_no_gpus() {
    for resource in [
        "nvidia.com/hostdev",
        "podrail.io/rail",
        "gpu.intel.com/i915_monitoring",
        "gpu.intel.com/millicores",
        "amd.com/cpx_npsx",
        "amd.com/foo_nps1",
        "example.com/gpu",
        "gpu",
        "",
    ] {
        assert_eq!(
            lookup(&node(), resource, FIRST),
            GpuId::NotAGpu,
            "{resource}"
        );
    }
}

fn grant(resource: &str, ids: &[&str]) -> DeviceGrant {
    DeviceGrant {
        container: "main".into(),
        resource: resource.into(),
        ids: ids.iter().map(|&id| id.to_owned()).collect(),
    }
}

#[test]
fn shares_and_parts_of_one_gpu_count_once() {
    let mig2 = "MIG-00000000-42e4-5de3-91c7-45d71c87eb3f";
    let grants = [
        grant(
            "nvidia.com/gpu",
            &[&format!("{SECOND}::1"), &format!("{SECOND}::2")],
        ),
        grant("podrail.io/rail", &["slot-00"]),
        grant("nvidia.com/mig-1g.5gb", &[MIG, mig2]),
        grant("amd.com/gpu", &["0000:19:00.0", "amdgpu_xcp_1"]),
    ];
    let first = granted(&node(), &grants, &MigParents::new());
    assert_eq!(first.gpus, [1, 4]);
    assert_eq!(first.mig, [MIG, mig2].map(String::from).into());
    assert!(first.unknown.is_empty() && !first.is_complete());
    let function = |bus: &str| PciAddr::parse(&format!("0000:{bus}:00.0")).unwrap();
    let parents = [(MIG, "0f"), (mig2, "51")].map(|(id, bus)| (id.to_owned(), function(bus)));
    let second = granted(&node(), &grants, &parents.into());
    assert_eq!(second.gpus, [0, 1, 4]);
    assert!(second.is_complete());
    let gone = [
        (MIG.to_owned(), function("77")),
        (mig2.to_owned(), function("0f")),
    ];
    let third = granted(&node(), &grants, &gone.into());
    let text: Vec<String> = third.unknown.iter().map(UnknownGpu::to_string).collect();
    assert_eq!(text, [format!("nvidia.com/mig-1g.5gb {MIG:?}")]);
}

#[test]
fn a_flood_of_unknown_ids_stays_small() {
    let ids: Vec<String> = (0..10_000)
        .map(|n| format!("{n}{}", "x".repeat(300)))
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = granted(
        &node(),
        &[grant("nvidia.com/gpu", &ids)],
        &MigParents::new(),
    );
    assert_eq!(found.unknown.len(), MOST_UNKNOWN);
    assert!(
        found
            .unknown
            .iter()
            .all(|unknown| unknown.id.chars().count() == LONGEST_ID)
    );
}

proptest! {
    /// Any text: an answer, and a found position exists.
    #[test]
    fn any_id(id in "\\PC{0,80}", resource in prop::sample::select(vec![
        "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "gpu.intel.com/xe",
    ])) {
        if let GpuId::Found(position) = lookup(&node(), resource, &id) {
            prop_assert!(position < node().gpus.len());
        }
    }
}
