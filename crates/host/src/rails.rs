//! From RDMA ports to rails: what is left out and why, what is kept and its facts.

use crate::front_end;
use crate::kernel::KernelAnswers;
use crate::known;
use crate::netdev;
use crate::pci::{Function, Functions};
use crate::rdma::{self, Port};
use crate::select::{Candidate, Selectors};
use crate::tree::Tree;
use podrail_core::ids::{IfName, NicId, PciAddr, RailIndex};
use podrail_core::topology::{Excluded, LinkState, Rail, RailFault};
use std::collections::{BTreeMap, BTreeSet};

/// What every port is judged by.
pub(crate) struct Judge<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) functions: &'a Functions,
    kernel: &'a KernelAnswers,
    pub(crate) select: &'a Selectors,
    pub(crate) front_ends: BTreeMap<IfName, String>,
}

/// Rails in PCI order with their indexes, and the ports that are none. `before`: rails of an earlier
/// look in this boot.
pub(crate) fn find(
    tree: &Tree,
    functions: &Functions,
    kernel: &KernelAnswers,
    select: &Selectors,
    before: &[Rail],
) -> (Vec<Rail>, Vec<Excluded>) {
    let judge = Judge {
        tree,
        functions,
        kernel,
        select,
        front_ends: front_end::find(tree, kernel, select),
    };
    let ports = rdma::ports(tree, kernel);
    let (mut rails, mut excluded) = judge.sort_out(&ports);
    rails.extend(judge.without_rdma(&ports));
    known::add(&judge, before, &ports, &mut rails, &mut excluded);
    number(&mut rails);
    excluded.sort_by(|a, b| (a.path.function, &a.rdma).cmp(&(b.path.function, &b.rdma)));
    (rails, excluded)
}

/// PCI order, then port; the index follows. Ports beyond the largest index are dropped: no node has
/// so many, and two rails must not share one.
pub(crate) fn number(rails: &mut Vec<Rail>) {
    rails.sort_by(|a, b| {
        let key = |rail: &Rail| (rail.path.function, rail.port, rail.rdma.clone());
        key(a).cmp(&key(b))
    });
    rails.truncate(usize::from(u16::MAX) + 1);
    for (index, rail) in (0..=u16::MAX).zip(rails) {
        rail.index = RailIndex(index);
    }
}

impl Judge<'_> {
    fn sort_out(&self, ports: &[Port]) -> (Vec<Rail>, Vec<Excluded>) {
        let (mut rails, mut excluded) = (Vec::<Rail>::new(), Vec::new());
        for port in hardware_first(ports) {
            let Some(function) = port.function.and_then(|at| self.functions.get(at)) else {
                let what = match port.netdev {
                    Some(_) => "is not on a PCI function",
                    None => "has no PCI function and no interface in the host's network namespace",
                };
                let text = format!("port {} {what}, no rail", port.port);
                self.tree.note(&port.device, text);
                continue;
            };
            let twin = rails
                .iter()
                .find(|rail| port.netdev.is_some() && rail.netdev == port.netdev);
            let reason = match twin.and_then(|rail| rail.rdma.as_ref()) {
                Some(device) => Some(format!("its interface is already the rail of {device}")),
                None => self.reason_against(port, function),
            };
            match reason {
                None => rails.push(self.rail(port, function)),
                Some(reason) => excluded.push(Excluded {
                    path: function.path.clone(),
                    netdev: port.netdev.clone(),
                    rdma: Some(port.device.clone()),
                    reason,
                }),
            }
        }
        (rails, excluded)
    }

    /// Why the port is no rail; the hardest reason first.
    fn reason_against(&self, port: &Port, function: &Function) -> Option<String> {
        match port.link_layer.as_deref() {
            Some("Ethernet") => {}
            Some(other) => return Some(format!("its link layer is {other}, not Ethernet")),
            None => return Some("its link layer is not known".to_owned()),
        }
        let Some(netdev) = &port.netdev else {
            return Some("has no interface in the host's network namespace".to_owned());
        };
        let front_end = self
            .front_ends
            .get(netdev)
            .filter(|_| !self.select.front_ends);
        if let Some(reason) = front_end {
            return Some(reason.clone());
        }
        if let Some(physical) = function.physical.filter(|_| !self.select.virtual_functions) {
            return Some(format!(
                "virtual function of {physical}, not selected by rails.virtualFunctions"
            ));
        }
        self.select.refuses(&Candidate {
            rdma: Some(&port.device),
            ..candidate(function, netdev)
        })
    }

    fn rail(&self, port: &Port, function: &Function) -> Rail {
        let rail = self.bare_rail(function, port.netdev.as_ref());
        if let (LinkState::Up, Some(state)) = (rail.link, rdma::inactive(self.tree, port)) {
            let text = format!(
                "port {} is {state:?} although its interface is up",
                port.port
            );
            self.tree.note(&port.device, text);
        }
        Rail {
            ifindex: rail.ifindex.or(port.ifindex),
            rdma: Some(port.device.clone()),
            port: port.port,
            uverbs: port.uverbs.clone(),
            umad: port.umad.clone(),
            issm: port.issm.clone(),
            guid: port.guid.clone(),
            speed_mbps: rail.speed_mbps.or_else(|| rdma::rate(self.tree, port)),
            ..rail
        }
    }

    /// All facts that do not come from the RDMA device.
    pub(crate) fn bare_rail(&self, function: &Function, netdev: Option<&IfName>) -> Rail {
        let tree = self.tree;
        let parents = &self.kernel.macvlan_parents;
        Rail {
            index: RailIndex::default(),
            path: function.path.clone(),
            pci_id: function.id,
            nic: nic(function),
            netdev: netdev.cloned(),
            ifindex: netdev.and_then(|name| netdev::ifindex(tree, name)),
            rdma: None,
            port: 1,
            uverbs: None,
            umad: None,
            issm: None,
            guid: None,
            mac: netdev.and_then(|name| netdev::mac(tree, name)),
            mtu: netdev.and_then(|name| netdev::mtu(tree, name)),
            speed_mbps: netdev.and_then(|name| netdev::speed(tree, name)),
            link: netdev.map_or(LinkState::Unknown, |name| netdev::link(tree, name)),
            faults: netdev.map_or_else(Vec::new, |name| netdev::faults(tree, name, parents)),
        }
    }

    /// Ethernet interfaces that the selectors name and that have no RDMA device: rails with a
    /// fault, so that the others keep their indexes while a driver is missing.
    fn without_rdma(&self, ports: &[Port]) -> Vec<Rail> {
        let used: BTreeSet<PciAddr> = ports.iter().filter_map(|port| port.function).collect();
        netdev::all(self.tree)
            .iter()
            .filter_map(|name| self.rail_without_rdma(name, &used))
            .collect()
    }

    fn rail_without_rdma(&self, name: &IfName, used: &BTreeSet<PciAddr>) -> Option<Rail> {
        let function = self.functions.get(rdma::function_of(self.tree, name)?)?;
        let wanted = !used.contains(&function.path.function)
            && self.select.names_exactly(&candidate(function, name))
            && (self.select.virtual_functions || function.physical.is_none())
            && (self.select.front_ends || !self.front_ends.contains_key(name))
            && netdev::is_ethernet(self.tree, name)
            && !netdev::is_representor(self.tree, name);
        wanted.then(|| {
            let mut rail = self.bare_rail(function, Some(name));
            rail.faults.push(RailFault::NoRdmaDevice);
            rail.port = netdev::dev_port(self.tree, name)
                .unwrap_or(0)
                .saturating_add(1);
            rail
        })
    }
}

/// The NIC of a virtual function is that of its physical one.
fn nic(function: &Function) -> NicId {
    function.physical.unwrap_or(function.path.function).nic()
}

fn candidate<'a>(function: &'a Function, netdev: &'a IfName) -> Candidate<'a> {
    Candidate {
        pci: function.path.function,
        pci_id: function.id,
        driver: function.driver.as_deref(),
        netdev: Some(netdev),
        rdma: None,
        unknown_fits: false,
    }
}

/// Where a software device stands on the interface of a real one, the real one is the rail.
fn hardware_first(ports: &[Port]) -> Vec<&Port> {
    let (software, hardware): (Vec<_>, Vec<_>) = ports.iter().partition(|port| port.software);
    hardware.into_iter().chain(software).collect()
}
