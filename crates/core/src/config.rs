//! The configuration of one node: every field checked, all faults reported together.
//!
//! Parsing of YAML is the program's; this reads the neutral document that comes out of it.

use crate::ids::{NicId, PciAddr, ResourceName};
use crate::topology::Level;
use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Value, json};
use std::net::IpAddr;

mod doc;
mod networks;
pub use doc::{Fault, Faults};
use doc::{FaultList, Section};
pub use networks::{NetworkNames, RailNetwork, RailRef};

/// Largest number of pods that may share a rail.
const MOST_SHARES: u32 = 64;

/// Settings of a node. `Config::default()` discovers everything and has no pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What the kubelet counts slots as; `podrail.io/rail` unless given.
    pub resource: ResourceName,
    /// Where addresses come from.
    pub pool: Option<PoolSettings>,
    /// Which ports are rails, and how they are handed out.
    pub rails: RailSettings,
    /// Whether any display-class function counts as a GPU (virtual nodes).
    pub generic_gpus: bool,
    /// Networks of the pods' annotation that are rails; no network can be two of them.
    pub networks: Vec<RailNetwork>,
    /// What containers are given besides their verbs devices.
    pub cdi: CdiSettings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resource: default_resource(),
            pool: None,
            rails: RailSettings::default(),
            generic_gpus: false,
            networks: vec![],
            cdi: CdiSettings::default(),
        }
    }
}

fn default_resource() -> ResourceName {
    ResourceName::parse("podrail.io/rail")
        .unwrap_or_else(|_| unreachable!("podrail.io/rail is a valid resource name"))
}

/// Device nodes that a container is given only if the operator says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CdiSettings {
    /// `/dev/infiniband/umadN`: management datagrams (subnet tools).
    pub umad: bool,
    /// `/dev/infiniband/issmN`: acting as a subnet manager.
    pub issm: bool,
}

/// The address pool, as written; `ipam` checks how the parts fit together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSettings {
    /// Name, for messages.
    pub name: String,
    /// At most one subnet per family.
    pub subnets: Vec<IpNet>,
    /// Addresses per node; absent: the whole subnet.
    pub block_size: Option<u32>,
    /// Which block of the subnet is this node's.
    pub block: u32,
    /// Addresses, `first-last` ranges or CIDRs that are never handed out.
    pub exclude: Vec<String>,
    /// At most one gateway per family.
    pub gateways: Vec<IpAddr>,
}

/// Which ports are rails, and how they are handed out. Empty lists match everything; patterns have
/// `*` and `?` as wildcards and are checked by `host`, which matches them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RailSettings {
    /// PCI vendor ids, four hexadecimal digits.
    pub vendors: Vec<HexId>,
    /// PCI device ids, four hexadecimal digits.
    pub devices: Vec<HexId>,
    /// Kernel drivers (`mlx5_core`).
    pub drivers: Vec<String>,
    /// Patterns of PCI addresses.
    pub pci: Vec<String>,
    /// Patterns of network interfaces.
    pub netdevs: Vec<String>,
    /// Patterns of RDMA devices.
    pub rdma: Vec<String>,
    /// Patterns of PCI addresses, interfaces or RDMA devices that are never rails.
    pub exclude: Vec<String>,
    /// SR-IOV virtual functions may be rails.
    pub virtual_functions: bool,
    /// NICs that carry the default route or the node's address may be rails.
    pub front_ends: bool,
    /// Pods that may hold one rail at the same time.
    pub shares: u16,
    /// MTU of the children; absent: that of the rail.
    pub mtu: Option<u32>,
    /// Distances that the PCIe tree does not show.
    pub overrides: Vec<Override>,
}

impl Default for RailSettings {
    fn default() -> Self {
        Self {
            vendors: vec![],
            devices: vec![],
            drivers: vec![],
            pci: vec![],
            netdevs: vec![],
            rdma: vec![],
            exclude: vec![],
            virtual_functions: false,
            front_ends: false,
            shares: 1,
            mtu: None,
            overrides: vec![],
        }
    }
}

/// A PCI vendor or device id, `15b3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HexId(pub u16);

impl Serialize for HexId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04x}", self.0))
    }
}

impl std::str::FromStr for HexId {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let fits = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let id = fits.then(|| u16::from_str_radix(digits, 16).ok()).flatten();
        id.map(Self)
            .ok_or("expected four hexadecimal digits, as in \"15b3\"")
    }
}

/// A distance that the operator knows better than the PCIe tree (ConnectX-8 Data Direct hides the
/// real root).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Override {
    /// The GPU.
    pub gpu: PciAddr,
    /// The NIC, all ports of it.
    pub nic: NicId,
    /// Their distance.
    pub level: Level,
}

impl Config {
    /// Reads a document.
    pub fn from_document(document: Value) -> Result<Self, Faults> {
        let faults = FaultList::default();
        let mut root = Section::new("", document, &faults);
        let resource = root.parsed("resource").unwrap_or_else(default_resource);
        let pool = root.section("pool").and_then(read_pool);
        let rails = root.section("rails").map(read_rails).unwrap_or_default();
        let generic_gpus = root.section("gpus").map(read_gpus).unwrap_or_default();
        let networks = networks::read(root.sections("networks"), &faults);
        let cdi = root.section("cdi").map(read_cdi).unwrap_or_default();
        root.finish();
        faults.result(Self {
            resource,
            pool,
            rails,
            generic_gpus,
            networks,
            cdi,
        })
    }

    /// The document that reads as these settings: what the agent keeps for the plugin.
    #[must_use]
    pub fn document(&self) -> Value {
        json!({
            "resource": self.resource,
            "pool": self.pool,
            "rails": self.rails,
            "gpus": { "generic": self.generic_gpus },
            "networks": self.networks,
            "cdi": self.cdi,
        })
    }
}

fn read_pool(mut section: Section<'_>) -> Option<PoolSettings> {
    let name = section.parsed("name").unwrap_or_else(|| "local".to_owned());
    let subnets: Vec<IpNet> = section.list("subnets");
    let block_size = section.number("blockSize", 1..=u32::MAX);
    let block = section.number("block", 0..=u32::MAX).unwrap_or(0);
    let exclude = section.list("exclude");
    let gateways = section.list("gateways");
    if subnets.is_empty() {
        section.missing("subnets");
    }
    section.finish();
    Some(PoolSettings {
        name,
        subnets,
        block_size,
        block,
        exclude,
        gateways,
    })
}

fn read_rails(mut section: Section<'_>) -> RailSettings {
    let shares = section
        .number("shares", 1..=MOST_SHARES)
        .and_then(|n| u16::try_from(n).ok());
    let overrides = section
        .sections("overrides")
        .into_iter()
        .filter_map(read_override)
        .collect();
    let settings = RailSettings {
        vendors: section.quoted_list("vendors"),
        devices: section.quoted_list("devices"),
        drivers: section.list("drivers"),
        pci: section.list("pci"),
        netdevs: section.list("netdevs"),
        rdma: section.list("rdma"),
        exclude: section.list("exclude"),
        virtual_functions: section.flag("virtualFunctions").unwrap_or(false),
        front_ends: section.flag("frontEnds").unwrap_or(false),
        shares: shares.unwrap_or(1),
        mtu: section.number("mtu", 68..=65_535),
        overrides,
    };
    section.finish();
    settings
}

fn read_override(mut section: Section<'_>) -> Option<Override> {
    let gpu = section.required("gpu");
    let nic = section.required("nic");
    let level = section.required("level");
    section.finish();
    Some(Override {
        gpu: gpu?,
        nic: nic?,
        level: level?,
    })
}

fn read_gpus(mut section: Section<'_>) -> bool {
    let generic = section.flag("generic").unwrap_or(false);
    section.finish();
    generic
}

fn read_cdi(mut section: Section<'_>) -> CdiSettings {
    let umad = section.flag("umad").unwrap_or(false);
    let issm = section.flag("issm").unwrap_or(false);
    section.finish();
    CdiSettings { umad, issm }
}

#[cfg(test)]
mod tests;
