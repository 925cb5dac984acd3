//! GPUs and rails for the plugin: what the agent saw in this boot, with the links as they are now.

use crate::error::NodeError;
use crate::facts::{boot_id, discover, is_live, macvlan_parent, require_ready};
use crate::settings::Settings;
use podrail_core::ids::IfName;
use podrail_core::topology::{LinkState, Rail, RailFault, Topology};
use podrail_netlink::{Link, Rtnl};
use podrail_store::ReadOnly;
use std::collections::BTreeSet;
use std::path::Path;

/// The topology now. `seen` is what the state file has of this boot: with it, one dump of the links
/// is enough, since PCI devices do not move. Without it, or when a rail's interface is gone from
/// where it was, everything is looked at.
///
/// # Errors
/// The node is not ready for rails, or cannot be looked at; `seen` is no topology.
pub fn topology_now(
    seen: Option<&str>,
    root: &Path,
    settings: &Settings,
) -> Result<Topology, NodeError> {
    let seen = seen.filter(|_| is_live(root) && is_shared(root));
    let seen: Option<Topology> = seen
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| NodeError::BadTopology(error.into()))?;
    if let Some(topology) = &seen {
        let links = Rtnl::open()?.links()?;
        if let Some(topology) = refreshed(topology.clone(), &links) {
            return Ok(topology);
        }
    }
    let found = discover(root, settings, seen.as_ref())?;
    require_ready(&found.node)?;
    Ok(found.topology)
}

/// The topology that the state file has of this boot, for a look below `root` that is to know it;
/// none of another machine's tree.
#[must_use]
pub fn seen_topology(state: &ReadOnly, root: &Path) -> Option<Topology> {
    let boot = boot_id().ok()?;
    let seen = state
        .topology()
        .filter(|seen| seen.boot == boot && is_live(root))?;
    serde_json::from_str(&seen.text).ok()
}

/// Whether the RDMA mode is one that needs no second look.
fn is_shared(root: &Path) -> bool {
    let mode = std::fs::read_to_string(root.join("sys/module/ib_core/parameters/netns_mode"));
    mode.is_ok_and(|mode| mode.trim() == "Y")
}

/// The topology with index, MTU, state and faults of each rail as the links of the host's namespace
/// say; none if a rail's interface is not among them, or a new one has come in its place.
#[must_use]
pub fn refreshed(mut topology: Topology, links: &[Link]) -> Option<Topology> {
    let macvlan_parents: BTreeSet<u32> = links.iter().filter_map(macvlan_parent).collect();
    for rail in topology
        .rails
        .iter_mut()
        .filter(|rail| rail.netdev.is_some())
    {
        let name = rail.netdev.as_ref()?;
        let link = links.iter().find(|link| link.name == name.as_str())?;
        if rail.mac.is_some() && rail.mac != link.mac {
            return None;
        }
        refresh(rail, link, links, macvlan_parents.contains(&link.index));
    }
    Some(topology)
}

fn refresh(rail: &mut Rail, link: &Link, links: &[Link], has_macvlan: bool) {
    rail.ifindex = Some(link.index);
    rail.mtu = Some(link.mtu);
    rail.link = match (link.up, link.carrier) {
        (true, true) => LinkState::Up,
        _ => LinkState::Down,
    };
    let of_links =
        |fault: &RailFault| matches!(fault, RailFault::MacvlanParent | RailFault::Enslaved(_));
    rail.faults.retain(|fault| !of_links(fault));
    let master = link.master.and_then(|index| name_of(index, links));
    rail.faults
        .extend(has_macvlan.then_some(RailFault::MacvlanParent));
    rail.faults.extend(master.map(RailFault::Enslaved));
}

fn name_of(index: u32, links: &[Link]) -> Option<IfName> {
    let link = links.iter().find(|link| link.index == index)?;
    IfName::parse(&link.name).ok()
}

#[cfg(test)]
mod tests;
