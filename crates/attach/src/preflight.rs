//! Looks at the host and the namespace before the first effect.

use crate::error::{AttachError, Problem};
use podrail_core::ids::IfName;
use podrail_core::plan::{Alias, AttachPlan, RailAttachment, is_link_group};
use podrail_netlink::{IpvlanMode, Link, Rtnl};
use std::num::NonZeroU32;

/// What a plan stands on: the numbers that only the running kernel knows.
pub(crate) struct Ground {
    /// Per rail of the plan, in its order.
    pub(crate) rails: Vec<RailGround>,
}

/// The numbers of one rail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RailGround {
    /// Index of the rail's interface in the host's namespace.
    pub(crate) parent: u32,
    /// Index that the child will have in the pod's.
    pub(crate) child: NonZeroU32,
}

impl Ground {
    /// Finds each parent and a free index for each child, or says what is in the way.
    pub(crate) fn survey(
        plan: &AttachPlan,
        host: &mut Rtnl,
        inside: &mut Rtnl,
    ) -> Result<Self, AttachError> {
        let host_links = host.links()?;
        let pod_links = inside.links()?;
        // Indexes are the namespace's own, so the next ones are free: no answer has to be read
        // between making a child and configuring it.
        let last = pod_links.iter().map(|link| link.index).max().unwrap_or(0);
        let mut rails = Vec::with_capacity(plan.rails.len());
        for (rail, child) in plan.rails.iter().zip(last.saturating_add(1)..) {
            let parent = usable_parent(rail, &host_links)
                .and_then(|parent| name_is_free(rail, &pod_links).map(|()| parent))
                .map_err(|problem| AttachError::NotPossible {
                    rail: rail.rail,
                    problem,
                })?;
            let child = NonZeroU32::new(child).unwrap_or(NonZeroU32::MAX);
            rails.push(RailGround { parent, child });
        }
        Ok(Self { rails })
    }
}

/// Index of the rail's interface, if it can have an IPvlan child.
fn usable_parent(rail: &RailAttachment, links: &[Link]) -> Result<u32, Problem> {
    let name: &IfName = &rail.parent;
    let parent = links
        .iter()
        .find(|link| link.name == name.as_str())
        .ok_or_else(|| Problem::NoParent(name.clone()))?;
    if !parent.up || !parent.carrier {
        return Err(Problem::ParentDown(name.clone()));
    }
    if parent.master.is_some() {
        return Err(Problem::Enslaved(name.clone()));
    }
    let on_it = |link: &&Link| {
        link.parent
            .is_some_and(|p| p.index == parent.index && p.netnsid.is_none())
    };
    for child in links.iter().filter(on_it) {
        refuse_neighbour(name, child)?;
    }
    Ok(parent.index)
}

/// Children of the host's own namespace; those of pods are not seen from here, and the kernel
/// refuses what cannot stand beside them.
fn refuse_neighbour(parent: &IfName, child: &Link) -> Result<(), Problem> {
    let (parent, name) = (parent.clone(), child.name.clone());
    if matches!(child.kind.as_deref(), Some("macvlan" | "macvtap")) {
        return Err(Problem::MacvlanParent {
            parent,
            macvlan: name,
        });
    }
    match child.ipvlan {
        Some(ipvlan) if ipvlan.mode != IpvlanMode::L2 => Err(Problem::OtherMode {
            parent,
            ipvlan: name,
        }),
        _ => Ok(()),
    }
}

fn name_is_free(rail: &RailAttachment, links: &[Link]) -> Result<(), Problem> {
    let name = rail.child.as_str();
    let taken = |link: &&Link| link.name == name || link.altnames.iter().any(|n| n == name);
    match links.iter().find(taken) {
        None => Ok(()),
        Some(link) => Err(clash(rail.child.clone(), link)),
    }
}

/// Whose the link is that has the name, as far as that can be told.
fn clash(child: IfName, link: &Link) -> Problem {
    let sandbox = match link.alias.as_deref().map(Alias::parse) {
        Some(Ok(alias)) => Some(alias.sandbox),
        None if is_link_group(link.group) => None,
        _ => return Problem::NameTaken(child),
    };
    if link.ipvlan.is_none() {
        return Problem::NameTaken(child);
    }
    Problem::OfOther { child, sandbox }
}
