//! Takes the rails of a sandbox away.

use crate::error::{TeardownError, UndoFailure};
use crate::faults;
use crate::steps::new_rules;
use crate::sysctl;
use podrail_core::ids::SandboxId;
use podrail_core::plan::{Alias, AttachPlan, ROUTE_PROTOCOL, Sysctl, is_link_group, link_group};
use podrail_netlink::{Family, Group, Link, NetNs, Request, Rtnl, Rule, SourceRule};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU32;

/// What belongs to a sandbox in its namespace.
#[derive(Debug, Clone)]
pub struct Target {
    /// Owner.
    pub sandbox: SandboxId,
    /// Rules that its plan made; empty if the plan is lost.
    pub rules: Vec<SourceRule>,
    /// Namespace-wide settings to set back.
    pub sysctls: Vec<Sysctl>,
}

impl Target {
    /// From the plan that was carried out.
    #[must_use]
    pub fn of(plan: &AttachPlan) -> Self {
        Self {
            sandbox: plan.sandbox.clone(),
            rules: plan.rails.iter().flat_map(new_rules).collect(),
            sysctls: plan.namespace_sysctls.clone(),
        }
    }

    /// Without a plan: children are known by group and alias, rules by their addresses.
    #[must_use]
    pub fn without_plan(sandbox: SandboxId) -> Self {
        Self {
            sandbox,
            rules: vec![],
            sysctls: vec![],
        }
    }
}

/// What [`remove`] did and what it could not do.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    pub(crate) links: usize,
    pub(crate) failures: Vec<UndoFailure>,
}

/// Removes the rules and children of a sandbox, and sets the namespace's settings back when no
/// other rail is left in it. Returns how many children there were.
///
/// # Guarantees
/// - Twice: nothing to do is success.
/// - Goes on after a failure; what failed is listed.
/// - A link or rule that is not ours is not touched, even in our group or table.
///
/// # Errors
/// [`TeardownError`] with everything that is left.
pub fn detach(target: &Target, pod: &NetNs) -> Result<usize, TeardownError> {
    let mut removal = remove(target, pod);
    if removal.failures.is_empty() {
        for sysctl in &target.sysctls {
            let restored = restore(sysctl, &target.sandbox, pod);
            removal.failures.extend(restored.err());
        }
    }
    match removal.failures {
        failures if failures.is_empty() => Ok(removal.links),
        failures => Err(TeardownError { failures }),
    }
}

/// Whether a child or a rule of the sandbox is in a namespace, whole or half-made: a child that was
/// killed before it got its alias counts, and so does a rule whose child went with the rail.
///
/// # Errors
/// The namespace cannot be read.
pub fn has_any(target: &Target, pod: &NetNs) -> Result<bool, podrail_netlink::NetlinkError> {
    has_leftovers(&mut Rtnl::open_in(pod)?, target)
}

/// As [`has_any`], of a namespace that is open.
pub(crate) fn has_leftovers(
    inside: &mut Rtnl,
    target: &Target,
) -> Result<bool, podrail_netlink::NetlinkError> {
    let links = inside.links()?;
    let any_link = links
        .iter()
        .any(|link| owner(link, &target.sandbox) != Owner::Other);
    Ok(any_link || !rules_to_delete(inside, target, &links)?.is_empty())
}

/// Rules and children, in one message: the rules, then one group delete.
pub(crate) fn remove(target: &Target, pod: &NetNs) -> Removal {
    match remove_or_fail(target, pod) {
        Ok(removal) => removal,
        Err(failure) => Removal {
            links: 0,
            failures: vec![failure],
        },
    }
}

fn remove_or_fail(target: &Target, pod: &NetNs) -> Result<Removal, UndoFailure> {
    let mut inside = Rtnl::open_in(pod)?;
    let links = inside.links()?;
    let rules = rules_to_delete(&mut inside, target, &links)?;
    let mut requests: Vec<Request<'_>> = rules.into_iter().map(Request::DelRule).collect();
    let (count, deletes) = link_deletes(&links, &target.sandbox);
    requests.extend(deletes);
    let fault = (0..requests.len()).find_map(|n| faults::wanted("remove", n).map(|a| (n, a)));
    if let Some((number, _)) = fault {
        requests.truncate(number + 1);
    }
    let answers = inside.apply(&requests);
    let injected = fault.map(|(number, action)| faults::strike(action, "remove", number));
    let failed = answers
        .into_iter()
        .filter_map(Result::err)
        .filter(|r| !r.is_already_gone());
    Ok(Removal {
        links: count,
        failures: failed
            .map(UndoFailure::from)
            .chain(injected.map(UndoFailure::Injected))
            .collect(),
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// Ours, and in our group.
    Group,
    /// Ours by its alias, moved to another group by somebody.
    Alias,
    /// Not ours.
    Other,
}

/// Whose a link is. A child that was killed before it got its alias has our group and none.
fn owner(link: &Link, sandbox: &SandboxId) -> Owner {
    if link.ipvlan.is_none() {
        return Owner::Other;
    }
    let in_group = link.group == link_group(sandbox);
    match link.alias.as_deref().map(Alias::parse) {
        Some(Ok(alias)) if alias.sandbox == *sandbox => {
            if in_group {
                Owner::Group
            } else {
                Owner::Alias
            }
        }
        None if in_group => Owner::Group,
        _ => Owner::Other,
    }
}

/// One group delete, and single ones where the group alone would be wrong.
fn link_deletes<'a>(links: &[Link], sandbox: &SandboxId) -> (usize, Vec<Request<'a>>) {
    let number = link_group(sandbox);
    let ours: Vec<(&Link, Owner)> = links
        .iter()
        .map(|link| (link, owner(link, sandbox)))
        .filter(|(_, owner)| *owner != Owner::Other)
        .collect();
    let grouped = ours
        .iter()
        .filter(|(_, owner)| *owner == Owner::Group)
        .count();
    let in_group = links.iter().filter(|link| link.group == number).count();
    let single = |link: &Link| Request::DelLink(link.index.into());
    let group = NonZeroU32::new(number).filter(|_| grouped == in_group && grouped > 0);
    let deletes = match group {
        Some(group) => std::iter::once(Request::DelGroup(Group(group)))
            .chain(
                ours.iter()
                    .filter(|(_, o)| *o == Owner::Alias)
                    .map(|(l, _)| single(l)),
            )
            .collect(),
        None => ours.iter().map(|(link, _)| single(link)).collect(),
    };
    (ours.len(), deletes)
}

/// Rules of the namespace that this sandbox made: equal to those of the plan, or, where the plan
/// is lost, ours by protocol and for an address of our children.
fn rules_to_delete(
    inside: &mut Rtnl,
    target: &Target,
    links: &[Link],
) -> Result<Vec<SourceRule>, podrail_netlink::NetlinkError> {
    let mut rules: Vec<Rule> = inside.rules(Family::V4)?;
    rules.extend(inside.rules(Family::V6)?);
    rules.retain(|rule| rule.protocol == ROUTE_PROTOCOL);
    if rules.is_empty() {
        return Ok(vec![]);
    }
    let ours: BTreeSet<u32> = links
        .iter()
        .filter(|link| owner(link, &target.sandbox) != Owner::Other)
        .map(|link| link.index)
        .collect();
    let addresses: BTreeSet<IpAddr> = inside
        .addresses()?
        .iter()
        .filter(|address| ours.contains(&address.ifindex))
        .map(|address| address.net.addr())
        .collect();
    Ok(rules
        .iter()
        .filter_map(|rule| own_rule(rule, target, &addresses))
        .collect())
}

fn own_rule(rule: &Rule, target: &Target, addresses: &BTreeSet<IpAddr>) -> Option<SourceRule> {
    if let Some(planned) = target.rules.iter().find(|planned| rule.is(planned)) {
        return Some(*planned);
    }
    let from = rule.from?.addr();
    let candidate = SourceRule {
        from,
        table: rule.table,
        priority: rule.priority,
        protocol: ROUTE_PROTOCOL,
    };
    (addresses.contains(&from) && rule.is(&candidate)).then_some(candidate)
}

/// Sets a namespace-wide setting back to what it was, unless rails of another sandbox are in the
/// namespace, half-made ones included: they need it, and whoever goes last sets it back.
///
/// Only a value that differs is written: where `/proc/sys` is read-only, what could not be set
/// needs no undo.
pub(crate) fn restore(sysctl: &Sysctl, of: &SandboxId, pod: &NetNs) -> Result<(), UndoFailure> {
    let Some(previous) = &sysctl.previous else {
        return Ok(());
    };
    if crate::read_sysctl(pod, &sysctl.path)?.as_ref() == Some(previous) || needed(of, pod)? {
        return Ok(());
    }
    pod.run(|| sysctl::write(sysctl, previous))?
        .map_err(|source| UndoFailure::Sysctl {
            path: sysctl::file(&sysctl.path),
            source,
        })
}

/// Whether a rail of another sandbox than this one is in the namespace.
fn needed(but: &SandboxId, pod: &NetNs) -> Result<bool, UndoFailure> {
    let links = Rtnl::open_in(pod)?.links()?;
    let is_rail = |link: &Link| match link.alias.as_deref() {
        Some(alias) => Alias::parse(alias).is_ok(),
        None => is_link_group(link.group),
    };
    let others = links
        .iter()
        .filter(|link| link.ipvlan.is_some() && owner(link, but) == Owner::Other);
    Ok(others.into_iter().any(is_rail))
}
