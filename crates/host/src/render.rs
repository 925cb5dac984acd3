//! Text of discovered facts, one line per thing: for expected-text tests and bug reports. Stable
//! order, no alignment; it is no format to parse.

use crate::{Discovery, Note};
use podrail_core::topology::{Excluded, Gpu, PciPath, Rail, Topology};
use std::fmt::{Display, Write as _};

/// Everything that was discovered.
#[must_use]
pub fn discovery(found: &Discovery) -> String {
    let node = &found.node;
    let mut text = format!(
        "netns_mode {:?}\nipvlan {:?}\n",
        node.netns_mode, node.ipvlan
    );
    let _ = writeln!(text, "kernel {}", or_dash(node.kernel_release.as_ref()));
    let _ = writeln!(text, "boot_id {}", or_dash(node.boot_id.as_ref()));
    let _ = writeln!(text, "ofed {}", or_dash(node.ofed.as_ref()));
    text + &topology(&found.topology) + &notes(&found.notes)
}

/// NUMA nodes, GPUs, rails, excluded ports.
#[must_use]
pub fn topology(found: &Topology) -> String {
    let mut text = String::new();
    for node in &found.numa {
        let _ = writeln!(text, "numa {} socket {}", node.id, or_dash(node.socket));
    }
    for (index, gpu) in found.gpus.iter().enumerate() {
        let _ = writeln!(text, "gpu {index} {}", gpu_line(gpu));
    }
    for rail in &found.rails {
        let _ = writeln!(text, "rail {}", rail_line(rail));
    }
    for port in &found.excluded {
        let _ = writeln!(text, "excluded {}", excluded_line(port));
    }
    text
}

/// One line per note.
#[must_use]
pub fn notes(notes: &[Note]) -> String {
    let mut text = String::new();
    for note in notes {
        let _ = writeln!(text, "note {note}");
    }
    text
}

fn gpu_line(gpu: &Gpu) -> String {
    let (uuid, model) = (or_dash(gpu.uuid.as_ref()), or_dash(gpu.model.as_ref()));
    format!(
        "{:?} {} uuid {uuid} model {model}",
        gpu.kind,
        place(&gpu.path)
    )
}

fn rail_line(rail: &Rail) -> String {
    let Rail {
        index,
        nic,
        port,
        link,
        ..
    } = rail;
    let (vendor, device) = rail.pci_id;
    let (netdev, ifindex) = (or_dash(rail.netdev.as_ref()), or_dash(rail.ifindex));
    let (rdma, uverbs) = (or_dash(rail.rdma.as_ref()), or_dash(rail.uverbs.as_ref()));
    let (guid, mac) = (or_dash(rail.guid.as_ref()), or_dash(rail.mac));
    let (mtu, speed) = (or_dash(rail.mtu), or_dash(rail.speed_mbps));
    let mut text = format!(
        "{index} {netdev} #{ifindex} {rdma}/{port} {uverbs} {} id {vendor:04x}:{device:04x} nic {nic} \
         guid {guid} mac {mac} mtu {mtu} speed {speed} link {link:?}",
        place(&rail.path)
    );
    for fault in &rail.faults {
        let _ = write!(text, " fault {fault:?}");
    }
    text
}

fn excluded_line(port: &Excluded) -> String {
    let (netdev, rdma) = (or_dash(port.netdev.as_ref()), or_dash(port.rdma.as_ref()));
    format!("{} {netdev} {rdma}: {}", place(&port.path), port.reason)
}

fn place(path: &PciPath) -> String {
    let mut text = path.root.to_string();
    for bridge in &path.bridges {
        let _ = write!(text, "/{bridge}");
    }
    let _ = write!(text, "/{} numa {}", path.function, or_dash(path.numa));
    text
}

fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
