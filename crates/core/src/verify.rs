//! What a pod sees of its rails, and the verdict on it.
//!
//! GIDs are found by the pod's own addresses. On mainline kernels a pod sees the GIDs of every
//! other pod, all of them with an interface called `net1`; on DOCA-OFED the others read as zero.

use crate::ids::{IfName, RdmaName};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};

mod verdict;
pub use verdict::{Evidence, Finding, Memlock, Report, Severity, judge};

/// An interface of the pod that is a rail's child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailInterface {
    /// Its name in the pod.
    pub name: IfName,
    /// Its addresses that are not link-local.
    pub addresses: Vec<IpAddr>,
}

/// One entry of an RDMA port's GID table, as the pod reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GidEntry {
    /// RDMA device.
    pub device: RdmaName,
    /// Port, from 1.
    pub port: u32,
    /// Index in the port's table.
    pub index: u32,
    /// The GID; IPv4 addresses are mapped (`::ffff:a.b.c.d`).
    pub gid: Ipv6Addr,
    /// `RoCE v2`; v1 and InfiniBand entries are of no use to a routed fabric.
    pub roce_v2: bool,
    /// Interface that the entry names, in the namespace of whoever owns it; may be unreadable.
    pub netdev: Option<String>,
}

/// One line of the map: an address of a rail interface and the GID that carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapEntry {
    /// Interface in the pod.
    pub interface: IfName,
    /// Its address; absent for an interface that has none.
    pub address: Option<IpAddr>,
    /// RDMA device.
    pub device: Option<RdmaName>,
    /// Port of the device.
    pub port: Option<u32>,
    /// Index of the RoCE v2 GID.
    pub gid_index: Option<u32>,
}

impl MapEntry {
    /// The four columns: interface, address, device, GID index, each `none` where absent.
    #[must_use]
    pub fn columns(&self) -> [String; 4] {
        [
            self.interface.to_string(),
            text(self.address.as_ref()),
            text(self.device.as_ref()),
            text(self.gid_index.as_ref()),
        ]
    }
}

fn text(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "none".into(), ToString::to_string)
}

/// Maps every address of every rail interface to its GID.
///
/// Interfaces come in natural order (`net2` before `net10`), IPv4 before IPv6.
#[must_use]
pub fn map(interfaces: &[RailInterface], gids: &[GidEntry]) -> Vec<MapEntry> {
    let mut sorted: Vec<&RailInterface> = interfaces.iter().collect();
    sorted.sort_by_key(|interface| natural_key(interface.name.as_str()));
    sorted
        .into_iter()
        .flat_map(|interface| map_one(interface, gids))
        .collect()
}

fn map_one(interface: &RailInterface, gids: &[GidEntry]) -> Vec<MapEntry> {
    let mut addresses = interface.addresses.clone();
    addresses.sort_by_key(|address| !address.is_ipv4());
    if addresses.is_empty() {
        return vec![entry(interface, None, None)];
    }
    let found = |address| find_gid(&interface.name, address, gids);
    addresses
        .into_iter()
        .map(|address| entry(interface, Some(address), found(address)))
        .collect()
}

fn entry(interface: &RailInterface, address: Option<IpAddr>, gid: Option<&GidEntry>) -> MapEntry {
    MapEntry {
        interface: interface.name.clone(),
        address,
        device: gid.map(|gid| gid.device.clone()),
        port: gid.map(|gid| gid.port),
        gid_index: gid.map(|gid| gid.index),
    }
}

/// The RoCE v2 entry of an address: one that names this interface first, then the lowest index.
fn find_gid<'a>(name: &IfName, address: IpAddr, gids: &'a [GidEntry]) -> Option<&'a GidEntry> {
    let wanted = gid_of(address);
    gids.iter()
        .filter(|entry| entry.roce_v2 && entry.gid == wanted)
        .min_by_key(|entry| (entry.netdev.as_deref() != Some(name.as_str()), entry.index))
}

/// The GID of an address: the address itself, IPv4 mapped.
#[must_use]
pub fn gid_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Sort key that puts `net2` before `net10`: pairs of a text and the number behind it.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut in_number = true;
    for c in name.chars() {
        let digit = c.to_digit(10);
        if digit.is_none() && in_number {
            parts.push((String::new(), 0));
        }
        if parts.is_empty() {
            parts.push((String::new(), 0));
        }
        in_number = digit.is_some();
        let Some((text, number)) = parts.last_mut() else {
            continue;
        };
        match digit {
            Some(digit) => *number = number.saturating_mul(10).saturating_add(digit.into()),
            None => text.push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests;
