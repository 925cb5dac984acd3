//! Which RDMA ports are rails, and which display functions are GPUs: the operator's word on it.

use crate::Pattern;
use podrail_core::ids::{IfName, PciAddr, RdmaName};
use std::fmt;
use std::net::IpAddr;

/// The operator's choice. An empty list takes everything; the default takes every Ethernet RDMA
/// port of a physical function that is no front-end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selectors {
    /// PCI vendor ids.
    pub vendors: Vec<u16>,
    /// PCI device ids.
    pub devices: Vec<u16>,
    /// Kernel drivers of the PCI function (`mlx5_core`).
    pub drivers: Vec<String>,
    /// PCI addresses as sysfs prints them (`0000:0c:00.*`).
    pub pci: Vec<Pattern>,
    /// Network interfaces (`rdma*`).
    pub netdevs: Vec<Pattern>,
    /// RDMA devices (`mlx5_*`).
    pub rdma: Vec<Pattern>,
    /// Link types. InfiniBand ports are never rails: IPvlan wants Ethernet.
    pub link_types: Vec<LinkType>,
    /// PCI addresses, interfaces or RDMA devices that are never rails.
    pub exclude: Vec<Pattern>,
    /// SR-IOV virtual functions may be rails.
    pub virtual_functions: bool,
    /// Front-end NICs (default route, node's address) may be rails.
    pub front_ends: bool,
    /// Display functions and accelerators of any vendor count as GPUs (the lab).
    pub generic_gpus: bool,
    /// Addresses of the node as the cluster knows it; the NIC that holds one is a front-end.
    pub node_addresses: Vec<IpAddr>,
}

/// Link layer of an RDMA port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// RoCE, iWARP.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::InfiniBand => "InfiniBand",
        })
    }
}

/// What selectors look at. `None` is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) pci: PciAddr,
    pub(crate) pci_id: (u16, u16),
    pub(crate) driver: Option<&'a str>,
    pub(crate) netdev: Option<&'a IfName>,
    pub(crate) rdma: Option<&'a RdmaName>,
    /// A dump does not know drivers and interfaces, nor does anybody of a device that is gone: what is
    /// not known then fits.
    pub(crate) unknown_fits: bool,
}

impl Selectors {
    /// Why the selectors do not take this port; `None` if they do.
    pub(crate) fn refuses(&self, port: &Candidate<'_>) -> Option<String> {
        if let Some(pattern) = self
            .exclude
            .iter()
            .find(|p| names(port).any(|n| p.matches(&n)))
        {
            return Some(format!("excluded by rails.exclude {pattern}"));
        }
        let (vendor, device) = port.pci_id;
        let pci = port.pci.to_string();
        let netdev = port.netdev.map(IfName::as_str);
        let rdma = port.rdma.map(RdmaName::as_str);
        let glob = |list: &[Pattern], text: Option<&str>| {
            fits(list, text, port.unknown_fits, |pattern, text| {
                pattern.matches(text)
            })
        };
        let checks = [
            (
                "vendors",
                fits(&self.vendors, Some(vendor), false, |a, b| *a == b),
            ),
            (
                "devices",
                fits(&self.devices, Some(device), false, |a, b| *a == b),
            ),
            (
                "drivers",
                fits(&self.drivers, port.driver, port.unknown_fits, |a, b| a == b),
            ),
            ("pci", glob(&self.pci, Some(&pci))),
            ("netdevs", glob(&self.netdevs, netdev)),
            ("rdma", glob(&self.rdma, rdma)),
            (
                "linkTypes",
                self.link_types.is_empty() || self.link_types.contains(&LinkType::Ethernet),
            ),
        ];
        let (name, _) = checks.iter().find(|(_, fits)| !fits)?;
        Some(format!("not selected by rails.{name}"))
    }

    /// Whether a pattern names this function or interface: its lack of an RDMA device is then a
    /// fault to show, and not just another Ethernet port.
    pub(crate) fn names_exactly(&self, port: &Candidate<'_>) -> bool {
        !(self.pci.is_empty() && self.netdevs.is_empty()) && self.refuses(port).is_none()
    }
}

fn fits<A, B>(
    list: &[A],
    value: Option<B>,
    unknown_fits: bool,
    same: impl Fn(&A, B) -> bool,
) -> bool
where
    B: Copy,
{
    match value {
        _ if list.is_empty() => true,
        Some(value) => list.iter().any(|entry| same(entry, value)),
        None => unknown_fits,
    }
}

fn names<'a>(port: &'a Candidate<'_>) -> impl Iterator<Item = String> + use<'a> {
    let netdev = port.netdev.map(ToString::to_string);
    let rdma = port.rdma.map(ToString::to_string);
    [Some(port.pci.to_string()), netdev, rdma]
        .into_iter()
        .flatten()
}
