//! Names that device plugins use: DRM cards, compute partitions, MIG devices; `umad` and `issm`.

use super::tree_text::expand;
use crate::{discover, mig_parents};
use podrail_core::gpus::devices::{GpuId, lookup};
use podrail_core::ids::PciAddr;
use std::collections::BTreeSet;

/// An MI300X in four partitions beside one that is not, and an Intel GPU.
const GPUS: &str = r"
pci pci0000:0b/0000:0b:01.0/0000:0c:00.0 1002:74a1 0x120000 | driver=amdgpu
pci pci0000:0b/0000:0b:02.0/0000:19:00.0 1002:74a1 0x120000 | driver=amdgpu
pci pci0000:0b/0000:0b:03.0/0000:1b:00.0 8086:0bd5 0x038000 | driver=xe
file sys/devices/pci0000:0b/0000:0b:01.0/0000:0c:00.0/drm/card1/dev 226:1
file sys/devices/pci0000:0b/0000:0b:01.0/0000:0c:00.0/drm/renderD128/dev 226:128
file sys/devices/pci0000:0b/0000:0b:02.0/0000:19:00.0/drm/card2/dev 226:2
file sys/devices/pci0000:0b/0000:0b:03.0/0000:1b:00.0/drm/card17/dev 226:17
file sys/devices/platform/amdgpu_xcp_0/drm/renderD129/dev 226:129
file sys/devices/platform/amdgpu_xcp_1/drm/renderD130/dev 226:130
file sys/devices/platform/amdgpu_xcp_2/drm/renderD131/dev 226:131
file sys/devices/platform/amdgpu_xcp_3/drm/renderD132/dev 226:132
file sys/class/kfd/kfd/topology/nodes/0/properties cpu_cores_count 96\ndrm_render_minor 0
file sys/class/kfd/kfd/topology/nodes/1/properties location_id 3072\ndomain 0\ndrm_render_minor 128
file sys/class/kfd/kfd/topology/nodes/2/properties location_id 268438528\ndomain 0\ndrm_render_minor 129
file sys/class/kfd/kfd/topology/nodes/3/properties location_id 3074\ndomain 0\ndrm_render_minor 130
file sys/class/kfd/kfd/topology/nodes/4/properties location_id 4294967296\ndomain 0\ndrm_render_minor 131
";

#[test]
fn cards_and_partitions_are_names_of_their_gpu() {
    let tree = expand(GPUS);
    let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
    for (resource, id, answer) in [
        ("gpu.intel.com/xe", "card17-0", GpuId::Found(2)),
        ("amd.com/gpu", "0000:19:00.0", GpuId::Found(1)),
        ("amd.com/cpx_nps1", "amdgpu_xcp_0", GpuId::Found(0)),
        ("amd.com/gpu", "amdgpu_xcp_1", GpuId::Found(0)),
        ("amd.com/gpu", "amdgpu_xcp_2", GpuId::Unknown),
        ("amd.com/gpu", "amdgpu_xcp_3", GpuId::Unknown),
    ] {
        assert_eq!(lookup(&found.topology, resource, id), answer, "{id}");
    }
    let subjects: BTreeSet<&str> = found.notes.iter().map(|n| n.subject.as_str()).collect();
    assert!(
        subjects.is_superset(&["amdgpu_xcp_2", "amdgpu_xcp_3"].into()),
        "{subjects:?}"
    );
}

#[test]
fn a_port_has_its_own_umad_and_issm() {
    let text = include_str!("../../../../fixtures/sysfs/sriov.txt");
    let plain = expand(text);
    let before = discover(plain.dir.path(), &plain.kernel, &plain.select, None).unwrap();
    let device = before.topology.rails[0].rdma.clone().unwrap();
    assert_eq!(before.topology.rails[0].umad, None);
    let class = "sys/class/infiniband_mad";
    let more = format!(
        "file {class}/umad4/ibdev {device}\nfile {class}/umad4/port 1\n\
         file {class}/umad5/ibdev {device}\nfile {class}/umad5/port 2\n\
         file {class}/issm4/ibdev {device}\nfile {class}/issm4/port 1\n\
         file {class}/umadx/ibdev {device}\nfile {class}/abi_version 5"
    );
    let tree = expand(&format!("{text}\n{more}"));
    let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
    let rail = &found.topology.rails[0];
    assert_eq!(rail.umad.as_deref(), Some("umad4"));
    assert_eq!(rail.issm.as_deref(), Some("issm4"));
    let others = found.topology.rails.iter().skip(1);
    assert!(others.into_iter().all(|rail| rail.umad.is_none()));
}

#[test]
fn the_only_split_gpu_is_the_parent_and_among_several_none_is_guessed() {
    let gpus = "nvidia 0000:0f:00.0 | Device Minor=1\nnvidia 0000:15:00.0 | Device Minor=0";
    let gi = |minor: u32, name: &str| {
        format!(
            "file proc/driver/nvidia/capabilities/gpu{minor}/mig/{name}/access DeviceFileMinor: 3"
        )
    };
    let ids: BTreeSet<String> = ["MIG-1".to_owned(), "MIG-2".to_owned()].into();
    let asked = |text: String| {
        let tree = expand(&text);
        mig_parents(tree.dir.path(), &ids).unwrap()
    };
    let (parents, notes) = asked(format!("{gpus}\n{}\n{}", gi(1, "gi7"), gi(0, "other")));
    let gpu = PciAddr::parse("0000:0f:00.0").unwrap();
    assert_eq!(parents.into_values().collect::<Vec<_>>(), [gpu, gpu]);
    assert_eq!(notes, []);
    for text in [
        gpus.to_owned(),
        format!("{gpus}\n{}\n{}", gi(1, "gi7"), gi(0, "gi1")),
    ] {
        let (parents, notes) = asked(text);
        assert!(parents.is_empty());
        assert_eq!(notes.len(), 2, "{notes:?}");
    }
}
