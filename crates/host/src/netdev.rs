//! Facts of a network interface, from /sys/class/net.

use crate::tree::Tree;
use podrail_core::ids::{IfName, MacAddr};
use podrail_core::topology::{LinkState, RailFault};
use std::collections::BTreeSet;

/// `IFF_UP` of `linux/if.h`.
const IFF_UP: u32 = 1;
/// `ARPHRD_ETHER` of `linux/if_arp.h`.
const ETHERNET: u32 = 1;
/// Deepest stack of interfaces that is followed; the kernel allows 8 (`MAX_NEST_DEV`).
const MAX_NEST: usize = 8;

/// Folder of an interface.
pub(crate) fn dir(name: &IfName) -> String {
    format!("sys/class/net/{name}")
}

/// All interfaces of the namespace that sysfs shows.
pub(crate) fn all(tree: &Tree) -> Vec<IfName> {
    let names = tree.names("sys/class/net");
    names
        .iter()
        .filter_map(|name| IfName::parse(name).ok())
        .collect()
}

/// Whether the interface is in the namespace that sysfs shows.
pub(crate) fn exists(tree: &Tree, name: &IfName) -> bool {
    tree.exists(&dir(name))
}

fn number(tree: &Tree, name: &IfName, file: &str) -> Option<u32> {
    let parse = |text: &str| text.parse().ok();
    tree.value(&format!("{}/{file}", dir(name)), "a number", parse)
}

/// Interface index.
pub(crate) fn ifindex(tree: &Tree, name: &IfName) -> Option<u32> {
    number(tree, name, "ifindex")
}

/// MTU in bytes.
pub(crate) fn mtu(tree: &Tree, name: &IfName) -> Option<u32> {
    number(tree, name, "mtu")
}

/// Port of the function that carries the interface, from 0.
pub(crate) fn dev_port(tree: &Tree, name: &IfName) -> Option<u32> {
    number(tree, name, "dev_port")
}

/// Whether its frames are Ethernet's.
pub(crate) fn is_ethernet(tree: &Tree, name: &IfName) -> bool {
    number(tree, name, "type") == Some(ETHERNET)
}

/// Ethernet address.
pub(crate) fn mac(tree: &Tree, name: &IfName) -> Option<MacAddr> {
    let parse = |text: &str| MacAddr::parse(text).ok();
    tree.value(
        &format!("{}/address", dir(name)),
        "an Ethernet address",
        parse,
    )
}

/// Speed in Mbit/s. -1 is the kernel's "not known" (`SPEED_UNKNOWN`), and a driver without it or
/// an interface that is down answers EINVAL.
pub(crate) fn speed(tree: &Tree, name: &IfName) -> Option<u32> {
    let parse = |text: &str| text.parse::<i64>().ok();
    let speed = tree.value(&format!("{}/speed", dir(name)), "a speed in Mbit/s", parse)?;
    let known = u32::try_from(speed).ok()?;
    (known != 0 && known != u32::MAX).then_some(known)
}

/// Up: administratively and with carrier. `operstate` alone is not enough, since drivers that
/// never set it say `unknown` (virtio).
pub(crate) fn link(tree: &Tree, name: &IfName) -> LinkState {
    let flags = tree.value(
        &format!("{}/flags", dir(name)),
        "flags of an interface",
        crate::tree::hex,
    );
    if flags.is_some_and(|flags| flags & IFF_UP == 0) {
        return LinkState::Down;
    }
    let operstate = tree.text(&format!("{}/operstate", dir(name)));
    match (number(tree, name, "carrier"), operstate.as_deref()) {
        (Some(1), _) | (None, Some("up")) => LinkState::Up,
        (Some(0), _) => LinkState::Down,
        (None, Some("down" | "lowerlayerdown" | "notpresent" | "dormant")) => LinkState::Down,
        _ => LinkState::Unknown,
    }
}

/// A port of an embedded switch that stands for a VF or SF (`pf0vf3`, `pf0sf88`): it shares the
/// physical function's folder and is not its interface.
pub(crate) fn is_representor(tree: &Tree, name: &IfName) -> bool {
    let port = tree.text(&format!("{}/phys_port_name", dir(name)));
    port.is_some_and(|port| port.starts_with("pf") || port.contains("vf") || port.contains("sf"))
}

/// Interfaces directly below (`lower_eth0`) or above (`upper_macvlan0`) this one.
fn adjacent(tree: &Tree, name: &IfName, prefix: &str) -> Vec<IfName> {
    let names = tree.names(&dir(name));
    let found = names.iter().filter_map(|entry| entry.strip_prefix(prefix));
    found
        .filter_map(|other| IfName::parse(other).ok())
        .collect()
}

/// The interface and all below it: a VLAN's bond, the bond's ports.
pub(crate) fn with_lowers(tree: &Tree, name: &IfName) -> BTreeSet<IfName> {
    let mut all = BTreeSet::from([name.clone()]);
    let mut level = vec![name.clone()];
    for _ in 0..MAX_NEST {
        let below = level
            .iter()
            .flat_map(|upper| adjacent(tree, upper, "lower_"));
        level = below.collect::<Vec<_>>();
        level.retain(|lower| all.insert(lower.clone()));
    }
    all
}

/// What keeps IPvlan children off this interface, as far as sysfs shows.
pub(crate) fn faults(tree: &Tree, name: &IfName, macvlan_parents: &[IfName]) -> Vec<RailFault> {
    let has_macvlan = macvlan_parents.contains(name)
        || adjacent(tree, name, "upper_")
            .iter()
            .any(|upper| is_macvlan(tree, upper, name));
    let master = tree.target_name(&format!("{}/master", dir(name)));
    let enslaved = master.and_then(|master| IfName::parse(&master).ok());
    let macvlan = has_macvlan.then_some(RailFault::MacvlanParent);
    macvlan
        .into_iter()
        .chain(enslaved.map(RailFault::Enslaved))
        .collect()
}

/// By `DEVTYPE` in `uevent`, or macvtap's own folder. A kernel that gives no type at all: an upper
/// linked straight to its parent with another address is a macvlan (an IPvlan has the parent's, a
/// VLAN, bridge or bond says its type).
fn is_macvlan(tree: &Tree, upper: &IfName, parent: &IfName) -> bool {
    let uevent = tree
        .text(&format!("{}/uevent", dir(upper)))
        .unwrap_or_default();
    let kind = uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="));
    match kind {
        Some(kind) => matches!(kind, "macvlan" | "macvtap"),
        None if tree.exists(&format!("{}/macvtap", dir(upper))) => true,
        None => {
            let linked = number(tree, upper, "iflink");
            linked.is_some()
                && linked == ifindex(tree, parent)
                && mac(tree, upper) != mac(tree, parent)
        }
    }
}
