//! Front-end NICs: those that carry the node's own traffic and must not become rails.

use crate::kernel::KernelAnswers;
use crate::netdev;
use crate::select::Selectors;
use crate::tree::Tree;
use podrail_core::ids::IfName;
use std::collections::BTreeMap;

/// `RTF_UP` and `RTF_REJECT` of `linux/route.h` and `linux/ipv6_route.h`.
const RTF_UP: u32 = 0x1;
const RTF_REJECT: u32 = 0x200;

/// Interface -> why it is a front-end. Interfaces below a bond, VLAN or bridge are meant too.
pub(crate) fn find(
    tree: &Tree,
    kernel: &KernelAnswers,
    select: &Selectors,
) -> BTreeMap<IfName, String> {
    let mut found = BTreeMap::new();
    let routes = kernel.default_route.clone();
    for interface in routes.unwrap_or_else(|| default_routes(tree)) {
        mark(tree, &mut found, &interface, "carries the default route");
    }
    for address in &select.node_addresses {
        let Some(addresses) = &kernel.addresses else {
            tree.note(
                address,
                "the node's address cannot be placed: interface addresses were not given",
            );
            continue;
        };
        let holders = addresses.iter().filter(|held| held.address == *address);
        for holder in holders {
            let reason = format!("holds the node's address {address}");
            mark(tree, &mut found, &holder.interface, &reason);
        }
    }
    found
}

/// Marks the interface and all below it; the first reason stays.
fn mark(tree: &Tree, found: &mut BTreeMap<IfName, String>, interface: &IfName, reason: &str) {
    let all = netdev::with_lowers(tree, interface);
    for name in &all {
        let through = if name == interface {
            String::new()
        } else {
            format!(" (through {interface})")
        };
        found
            .entry(name.clone())
            .or_insert_with(|| format!("{reason}{through}"));
    }
    let virtual_only = |name: &IfName| crate::rdma::function_of(tree, name).is_none();
    if all.iter().all(virtual_only) {
        let text = format!("{reason}, but no PCI function was found below it");
        tree.note(interface, text);
    }
}

/// Interfaces of the default route with the lowest metric. IPv6 counts only without an IPv4 one:
/// leaf switches of a rail fabric advertise themselves as IPv6 routers on every rail.
fn default_routes(tree: &Tree) -> Vec<IfName> {
    // Process 1 shows the host's namespace even where the reader is in another one.
    let read = |file: &str| {
        let host = tree.text(&format!("proc/1/net/{file}"));
        host.or_else(|| tree.text(&format!("proc/net/{file}")))
            .unwrap_or_default()
    };
    let v4 = lowest(read("route").lines().filter_map(route_v4));
    let found = if v4.is_empty() {
        lowest(read("ipv6_route").lines().filter_map(route_v6))
    } else {
        v4
    };
    if found.is_empty() {
        tree.note(
            "proc/net/route",
            "no default route: front-end NICs are not told from rails by it",
        );
    }
    found
}

fn lowest(routes: impl Iterator<Item = (u32, IfName)>) -> Vec<IfName> {
    let routes: Vec<_> = routes.collect();
    let best = routes.iter().map(|(metric, _)| *metric).min();
    let mut names: Vec<IfName> = routes
        .into_iter()
        .filter(|(metric, _)| Some(*metric) == best)
        .map(|(_, name)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask ...`, numbers in hexadecimal except the
/// metric (`net/ipv4/fib_trie.c`, `fib_route_seq_show`).
fn route_v4(line: &str) -> Option<(u32, IfName)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [name, destination, _, flags, _, _, metric, mask, ..] = fields.as_slice() else {
        return None;
    };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_default = *destination == "00000000" && *mask == "00000000";
    let usable = flags & RTF_UP != 0 && flags & RTF_REJECT == 0;
    let route = (metric.parse().ok()?, IfName::parse(name).ok()?);
    (is_default && usable).then_some(route)
}

/// `destination length source length next-hop metric refcount use flags interface`, all numbers in
/// hexadecimal (`net/ipv6/route.c`, `rt6_info_route`).
fn route_v6(line: &str) -> Option<(u32, IfName)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [destination, length, _, _, _, metric, _, _, flags, name] = fields.as_slice() else {
        return None;
    };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_default = destination.bytes().all(|b| b == b'0') && *length == "00" && *name != "lo";
    let usable = flags & RTF_UP != 0 && flags & RTF_REJECT == 0;
    let route = (
        u32::from_str_radix(metric, 16).ok()?,
        IfName::parse(name).ok()?,
    );
    (is_default && usable).then_some(route)
}
