//! A node as Podrail sees it: GPUs, rails and the PCIe tree between them.

use crate::ids::{GpuUuid, IfName, MacAddr, NicId, PciAddr, RailIndex, RdmaName, RootId};
use serde::{Deserialize, Serialize};

mod distance;
pub use distance::{Distance, Level};

/// All facts of a node that the choice of rails needs.
///
/// `gpus` and `rails` are in PCI order; `rails[i].index` is `i`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// GPUs in PCI order: position is the index that users type (`--gpus 0,1`).
    pub gpus: Vec<Gpu>,
    /// Rails in PCI order.
    pub rails: Vec<Rail>,
    /// RDMA ports that are no rails, with the reason.
    pub excluded: Vec<Excluded>,
    /// Socket (physical package) of each NUMA node that is known.
    pub numa: Vec<NumaNode>,
}

/// A NUMA node and the socket that it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// Number of the node.
    pub id: u32,
    /// Physical package of its CPUs; a node without CPUs has none.
    pub socket: Option<u32>,
}

/// Where a PCI function hangs: the root, the bridges below it in order, the function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciPath {
    /// Root complex: the first `pciDDDD:BB` of the sysfs path.
    pub root: RootId,
    /// Bridges from the root port downwards; the ports of a switch are two of them.
    pub bridges: Vec<PciAddr>,
    /// The function itself.
    pub function: PciAddr,
    /// NUMA node; absent where sysfs says -1.
    pub numa: Option<u32>,
}

/// Who made a GPU, and so how it is named by its device plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuKind {
    /// Vendor 10de, class 0302 or 0300.
    Nvidia,
    /// Vendor 1002.
    Amd,
    /// Vendor 8086.
    Intel,
    /// Any other display-class function; only where the configuration asks for it.
    Generic,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its place in the PCIe tree.
    pub path: PciPath,
    /// Maker.
    pub kind: GpuKind,
    /// UUID as the driver gives it; absent without a driver.
    pub uuid: Option<GpuUuid>,
    /// Model name as the driver gives it.
    pub model: Option<String>,
    /// Other names that device plugins use for it: its DRM card (`card0`, Intel), its compute
    /// partitions (`amdgpu_xcp_30`, AMD).
    #[serde(default)]
    pub aliases: Vec<String>,
}

/// State of a rail's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Carrier is there and the interface is up.
    Up,
    /// Administratively down, or no carrier.
    Down,
    /// The source does not say (a topology dump).
    Unknown,
}

/// One port of the back-end fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rail {
    /// Place in PCI order among the node's rails.
    pub index: RailIndex,
    /// Place in the PCIe tree of the function that carries the port.
    pub path: PciPath,
    /// PCI vendor and device id.
    pub pci_id: (u16, u16),
    /// The device that is handed out whole: functions of one slot, or ports of one function.
    pub nic: NicId,
    /// Its network interface; absent in a topology dump.
    pub netdev: Option<IfName>,
    /// Interface index in the host's network namespace.
    pub ifindex: Option<u32>,
    /// Its RDMA device.
    pub rdma: Option<RdmaName>,
    /// Port of the RDMA device, from 1.
    pub port: u32,
    /// `uverbsN` of the RDMA device.
    pub uverbs: Option<String>,
    /// `umadN` of the port: management datagrams. Absent without the module `ib_umad`.
    #[serde(default)]
    pub umad: Option<String>,
    /// `issmN` of the port, for a subnet manager. Kernels that ask `rdma_cap_ib_smi` first give
    /// none to a RoCE port.
    #[serde(default)]
    pub issm: Option<String>,
    /// Node GUID of the RDMA device, `0002:c903:0010:abcd`.
    pub guid: Option<String>,
    /// Ethernet address; the IPvlan children share it.
    pub mac: Option<MacAddr>,
    /// Largest packet of the interface, in bytes.
    pub mtu: Option<u32>,
    /// Link speed in Mbit/s; absent where the driver does not say.
    pub speed_mbps: Option<u32>,
    /// State of the link.
    pub link: LinkState,
    /// What keeps this rail from being used, beyond its link state.
    pub faults: Vec<RailFault>,
}

/// What keeps a rail from getting IPvlan children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RailFault {
    /// A macvlan (or macvtap) hangs on it: the kernel refuses IPvlan beside it (one rx handler).
    MacvlanParent,
    /// It is a port of a bridge, bond or team.
    Enslaved(IfName),
    /// Its link layer is not Ethernet.
    NotEthernet,
    /// It has no RDMA device.
    NoRdmaDevice,
    /// Its RDMA device is there, and its interface is in another network namespace.
    NoInterface,
    /// Neither its RDMA device nor its interface is there any more, in the boot in which they were.
    Gone,
}

/// An RDMA port that is no rail, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excluded {
    /// Place in the PCIe tree.
    pub path: PciPath,
    /// Its network interface.
    pub netdev: Option<IfName>,
    /// Its RDMA device.
    pub rdma: Option<RdmaName>,
    /// Why, in words: `carries the default route`, `not selected by rails.netdevs`.
    pub reason: String,
}

impl Topology {
    /// Socket of a NUMA node, where known.
    #[must_use]
    pub fn socket_of(&self, numa: u32) -> Option<u32> {
        self.numa
            .iter()
            .find(|node| node.id == numa)
            .and_then(|node| node.socket)
    }

    /// Distance between two places of this node.
    #[must_use]
    pub fn distance(&self, a: &PciPath, b: &PciPath) -> Distance {
        distance::between(a, b, |numa| self.socket_of(numa))
    }

    /// The rail with this index.
    #[must_use]
    pub fn rail(&self, index: RailIndex) -> Option<&Rail> {
        self.rails.iter().find(|rail| rail.index == index)
    }
}
