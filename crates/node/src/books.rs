//! Between the decision (`podrail_core::attachment`) and the state file: what is held as the
//! decision takes it, and what was decided as the state file keeps it.

use crate::sandbox::netns_id;
use podrail_attach::read_sysctl;
use podrail_core::attachment::{Attachment, Decision, Held};
use podrail_core::binding::Bound;
use podrail_core::ids::PciAddr;
use podrail_core::ipam::PoolName;
use podrail_core::topology::{Rail, Topology};
use podrail_netlink::NetNs;
use podrail_store::{BoundRail, Holding, Lease, Snapshot};
use std::collections::BTreeMap;

/// The setting of a whole namespace that an attachment changes.
const RP_FILTER: &str = "net/ipv4/conf/all/rp_filter";

/// What is held, as the decision takes it. GPUs that are gone from the node are left out.
#[must_use]
pub fn held(snapshot: &Snapshot, topology: &Topology, pool: &PoolName) -> Held {
    Held {
        bound: bound(snapshot, topology),
        addresses: snapshot.used.clone(),
        freed: snapshot.freed.clone(),
        cursors: snapshot.cursors(pool),
    }
}

/// Who has which rails. GPUs and rails that are gone from the node are left out.
#[must_use]
pub fn bound(snapshot: &Snapshot, topology: &Topology) -> Vec<Bound> {
    let holdings = snapshot.holdings.iter();
    holdings
        .map(|holding| bound_of(holding, topology))
        .collect()
}

fn bound_of(holding: &Holding, topology: &Topology) -> Bound {
    let gpu = |pci: &PciAddr| {
        let mut gpus = topology.gpus.iter();
        gpus.position(|gpu| gpu.path.function == *pci)
    };
    // Rails are known by their PCI function and port: indexes move with the hardware.
    let rail = |held: &BoundRail| {
        let same = |rail: &&Rail| rail.path.function == held.pci && rail.port == held.port;
        topology.rails.iter().find(same).map(|rail| rail.index)
    };
    Bound {
        sandbox: holding.sandbox.clone(),
        gpus: holding.gpus.iter().filter_map(gpu).collect(),
        rails: holding.rails.iter().filter_map(rail).collect(),
    }
}

/// `net.ipv4.conf.all.rp_filter` before any rail came into the namespace: what it says now, unless
/// it is another sandbox there that has set it. To be asked while no sandbox can come or go.
#[must_use]
pub fn previous_rp_filter(netns: &NetNs, snapshot: &Snapshot) -> Option<String> {
    // The namespace has been entered before; should it fail now, so will the attachment.
    let now = read_sysctl(netns, RP_FILTER).ok().flatten();
    let id = Some(netns_id(netns));
    let here = snapshot.holdings.iter().filter(|h| h.netns_id == id);
    let settings = here
        .filter_map(|holding| serde_json::from_str::<Attachment>(&holding.plan).ok())
        .flat_map(|attachment| attachment.plan.namespace_sysctls);
    settings
        .filter(|sysctl| sysctl.path == RP_FILTER && now.as_ref() == Some(&sysctl.value))
        .find_map(|sysctl| sysctl.previous)
        .or(now)
}

/// A decision as the state file keeps it.
#[must_use]
pub fn kept(decided: &Decision, snapshot: &Snapshot, pool: &PoolName) -> podrail_store::Decision {
    let attachment = &decided.attachment;
    let leases = attachment.rails.iter().flat_map(|rail| {
        rail.addresses.iter().map(|net| Lease {
            address: net.addr(),
            pool: pool.clone(),
            rail: rail.index,
        })
    });
    podrail_store::Decision {
        rails: bound_rails(attachment, snapshot),
        leases: leases.collect(),
        cursors: BTreeMap::from([(pool.clone(), decided.cursors)]),
        // Plain values with text keys: this always serialises.
        plan: serde_json::to_string(attachment).unwrap_or_default(),
    }
}

/// The lowest free share of each chosen rail.
fn bound_rails(attachment: &Attachment, snapshot: &Snapshot) -> Vec<BoundRail> {
    let taken = |pci, port, share| {
        snapshot
            .holdings
            .iter()
            .flat_map(|holding| &holding.rails)
            .any(|held| held.pci == pci && held.port == port && held.share == share)
    };
    let share = |pci, port| {
        (0..u16::MAX)
            .find(|share| !taken(pci, port, *share))
            .unwrap_or(0)
    };
    attachment
        .rails
        .iter()
        .map(|rail| BoundRail {
            index: rail.index,
            pci: rail.pci,
            port: rail.port,
            netdev: rail.netdev.clone(),
            share: share(rail.pci, rail.port),
            slot: rail.slot,
        })
        .collect()
}
