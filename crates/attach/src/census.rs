//! What of ours is in a namespace, whoever knows of it: children, their addresses and gateways.

use crate::error::AttachError;
use ipnet::IpNet;
use podrail_core::ids::MacAddr;
use podrail_core::ipam::Family;
use podrail_core::plan::{Alias, ROUTE_PROTOCOL, is_link_group};
use podrail_netlink::{Address, Link, NetNs, Route, Rtnl};
use std::net::IpAddr;

/// An IPvlan child that carries our mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its name in the namespace.
    pub name: String,
    /// Whose it is; none if it was not finished, and only its group tells that it is ours.
    pub alias: Option<Alias>,
    /// Index of its parent, in the namespace of the parent.
    pub parent: Option<u32>,
    /// Ethernet address, which is its parent's.
    pub mac: Option<MacAddr>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Its addresses without those of the link alone, IPv4 first.
    pub addresses: Vec<IpNet>,
    /// Gateways of the routes that we made on it, IPv4 first.
    pub gateways: Vec<IpAddr>,
}

/// Our children in a namespace, by name.
///
/// # Errors
/// The namespace cannot be read.
pub fn children(pod: &NetNs) -> Result<Vec<Child>, AttachError> {
    let mut inside = Rtnl::open_in(pod)?;
    let mut links = inside.links()?;
    links.retain(is_ours);
    if links.is_empty() {
        return Ok(vec![]);
    }
    let addresses = inside.addresses()?;
    let mut routes = inside.routes(Family::V4)?;
    routes.extend(inside.routes(Family::V6)?);
    links.sort_by(|a, b| a.name.cmp(&b.name));
    let found = links.iter().map(|link| child(link, &addresses, &routes));
    Ok(found.collect())
}

fn alias(link: &Link) -> Option<Alias> {
    Alias::parse(link.alias.as_deref()?).ok()
}

fn is_ours(link: &Link) -> bool {
    let marked = match &link.alias {
        Some(_) => alias(link).is_some(),
        None => is_link_group(link.group),
    };
    link.ipvlan.is_some() && marked
}

fn child(link: &Link, addresses: &[Address], routes: &[Route]) -> Child {
    let mut addresses: Vec<IpNet> = addresses
        .iter()
        .filter(|address| address.ifindex == link.index && !is_of_link(&address.net))
        .map(|address| address.net)
        .collect();
    addresses.sort_by_key(|net| (net.addr().is_ipv6(), net.addr()));
    let ours = routes
        .iter()
        .filter(|route| route.oif == Some(link.index) && route.protocol == ROUTE_PROTOCOL);
    let mut gateways: Vec<IpAddr> = ours.filter_map(|route| route.gateway).collect();
    gateways.sort_unstable();
    gateways.dedup();
    Child {
        name: link.name.clone(),
        alias: alias(link),
        parent: link.parent.map(|parent| parent.index),
        mac: link.mac,
        mtu: link.mtu,
        addresses,
        gateways,
    }
}

/// The kernel makes these by itself.
fn is_of_link(net: &IpNet) -> bool {
    match net.addr() {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
