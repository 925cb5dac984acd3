//! A new state file from what was reconstructed.

use super::{Rebuilt, Recovered};
use crate::clock::{Deadline, now};
use crate::error::NodeError;
use crate::facts::boot_id;
use crate::fingerprint;
use crate::lock::hold_all;
use crate::markers::Markers;
use podrail_core::attachment::HeldRail;
use podrail_core::ids::PciAddr;
use podrail_core::ipam::{Cursors, PoolName};
use podrail_core::topology::Topology;
use podrail_store::{BoundRail, Content, Decision, Held, Lease, Request, Store};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Where the old files are now.
    pub aside: Vec<PathBuf>,
}

/// Writes a new state file with what was recovered, in place of the one at `state`, which is moved
/// aside under a name with `suffix`; marks its pods and waiting slots.
///
/// Not to be called within a [`Session`](crate::Session), which has one of the locks.
///
/// # Guarantees
/// As of [`Store::rebuild`]. No sandbox is attached or detached meanwhile. Marks come first, so that
/// a run that is killed leaves one too many, never one too few.
///
/// # Errors
/// The old file is at its place, or the message names where it is.
pub fn restore(
    state: &Path,
    recovered: &Recovered,
    (pool, topology): (&PoolName, &Topology),
    suffix: &str,
    until: Deadline,
) -> Result<Restored, NodeError> {
    let _locks = hold_all(state, until)?;
    let markers = Markers::beside(state)?;
    let waiting: Vec<_> = recovered.waiting.iter().copied().collect();
    markers.mark_waiting(&waiting)?;
    let pods = recovered.bindings.iter();
    pods.filter_map(|binding| binding.pod.as_ref())
        .try_for_each(|pod| markers.mark_pod(&pod.uid))?;
    let content = content(recovered, pool, topology);
    let aside = Store::rebuild(state, &boot_id()?, &content, suffix)
        .map_err(|error| NodeError::Rebuild(Box::new(error)))?;
    Ok(Restored { aside })
}

fn content(recovered: &Recovered, pool: &PoolName, topology: &Topology) -> Content {
    let (mut shares, cursors) = (BTreeMap::new(), cursors(recovered));
    let bindings = recovered.bindings.iter();
    let held: Vec<Held> = bindings
        .map(|binding| held(binding, (pool, cursors), &mut shares))
        .collect();
    let bound = held.iter().flat_map(|held| &held.decision.rails);
    let slots = bound.filter_map(|rail| rail.slot);
    let highest = slots.chain(recovered.waiting.iter().copied()).max();
    Content {
        slots: highest.map_or(0, |slot| slot.0.saturating_add(1)),
        held,
        waiting: recovered.waiting.iter().copied().collect(),
        // Plain values with text keys: this always serialises.
        topology: serde_json::to_string(topology).ok(),
        at: now(),
    }
}

fn held(
    binding: &Rebuilt,
    (pool, cursors): (&PoolName, Cursors),
    shares: &mut BTreeMap<(PciAddr, u32), u16>,
) -> Held {
    let attachment = &binding.attachment;
    let leases: Vec<Lease> = attachment
        .rails
        .iter()
        .flat_map(|rail| {
            rail.addresses.iter().map(|net| Lease {
                address: net.addr(),
                pool: pool.clone(),
                rail: rail.index,
            })
        })
        .collect();
    let rails = attachment.rails.iter().map(|rail| bound_rail(rail, shares));
    Held {
        request: request(binding),
        ready: binding.doubts.is_empty(),
        decision: Decision {
            rails: rails.collect(),
            cursors: BTreeMap::from([(pool.clone(), cursors)]),
            leases,
            plan: serde_json::to_string(attachment).unwrap_or_default(),
        },
    }
}

/// Which share of a rail a sandbox had is of no consequence, as long as each has its own.
fn bound_rail(rail: &HeldRail, shares: &mut BTreeMap<(PciAddr, u32), u16>) -> BoundRail {
    let next = shares.entry((rail.pci, rail.port)).or_default();
    let share = *next;
    *next = next.saturating_add(1);
    BoundRail {
        index: rail.index,
        pci: rail.pci,
        port: rail.port,
        netdev: rail.netdev.clone(),
        share,
        slot: rail.slot,
    }
}

/// The round goes on behind the addresses that are in use: those before them may have been freed a
/// moment ago.
fn cursors(recovered: &Recovered) -> Cursors {
    let bindings = recovered.bindings.iter();
    let rails = bindings.flat_map(|binding| &binding.attachment.rails);
    let nets = rails.flat_map(|rail| &rail.addresses);
    nets.fold(Cursors::default(), |highest, net| match net.addr() {
        IpAddr::V4(address) => Cursors {
            v4: highest.v4.max(Some(address)),
            ..highest
        },
        IpAddr::V6(address) => Cursors {
            v6: highest.v6.max(Some(address)),
            ..highest
        },
    })
}

fn request(binding: &Rebuilt) -> Request {
    let netns = match &binding.pod {
        Some(_) => as_runtimes_say(&binding.path),
        None => binding.path.clone(),
    };
    let netns = netns.display().to_string();
    let attachment = &binding.attachment;
    let fingerprint = match &binding.pod {
        Some(pod) => fingerprint::of_pod(&pod.uid, &netns),
        None => fingerprint::of_job(&netns, &attachment.gpus, attachment.rails.len()),
    };
    Request {
        sandbox: binding.sandbox().clone(),
        fingerprint,
        netns,
        netns_id: Some(binding.netns),
        gpus: attachment.gpus.clone(),
        pod: binding.pod.clone(),
        at: now(),
        seen: BTreeMap::new(),
    }
}

/// Runtimes give the older name of the directory, as long as it leads to the same.
fn as_runtimes_say(path: &Path) -> PathBuf {
    let older = path
        .strip_prefix("/run/netns")
        .map(|name| Path::new("/var/run/netns").join(name));
    let is_same = |older: &PathBuf| older.canonicalize().ok() == path.canonicalize().ok();
    let older = older.ok().filter(is_same);
    older.unwrap_or_else(|| path.to_owned())
}
