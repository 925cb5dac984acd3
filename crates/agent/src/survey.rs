//! One look at the node: configuration, topology, and which slots the kubelet may give away.
//! Blocking.

use crate::board::{Board, CONFIGURED, DISCOVERED, OFFERED, STATE};
use crate::config;
use crate::context::Context;
use crate::metrics::{AddressCounts, RailCounts, SlotCounts};
use crate::say::{tell, words};
use podrail_core::binding::unusable;
use podrail_core::health::{Door, Ground, Held, slot_health, usable_shares};
use podrail_core::ids::{ResourceName, SlotId};
use podrail_core::ipam::{Family, Pool};
use podrail_core::topology::{LinkState, Rail, Topology};
use podrail_host::Discovery;
use podrail_kubelet::plugin::Slot;
use podrail_node::{NodeError, Settings, discover, open_state, require_ready};
use podrail_store::{Binding, BoundRail, Store};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// What a look gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// What the slots are counted as.
    pub(crate) resource: ResourceName,
    /// All slots; empty if there are none, or if nobody knows.
    pub(crate) slots: Vec<Slot>,
}

/// Before the first look, which may take a while: the slots that pods have, as an earlier run knew
/// them. The kubelet refuses these pods for good if their slots are not healthy at once. New pods
/// can wait: nobody knows yet whether there are rails for them.
pub(crate) fn remembered(context: &Context) -> Option<Look> {
    let state = Store::open_read_only(&context.options.paths.state).ok()?;
    let settings = match config::effective(&context.options, &state) {
        Ok(effective) => effective.loaded.settings,
        Err(_) => config::remembered(&state)?,
    };
    // Bindings may be of an earlier boot, in which case they will be slots that wait.
    let bound = state.list().iter().flat_map(slots_of);
    let held = Held {
        waiting: bound.chain(state.waiting().keys().copied()).collect(),
        ..Held::default()
    };
    let health = slot_health(state.slots(), 0, &held, Door::Shut);
    Some(Look {
        resource: settings.config.resource,
        slots: health.into_iter().map(offered).collect(),
    })
}

/// Looks, and keeps what it saw in the state file. `None`: what was offered before stays.
pub(crate) fn look(context: &Context) -> Option<Look> {
    let board = &context.board;
    let path = &context.options.paths.state;
    let mut store = told(board, STATE, open(path))?;
    let settings = told(board, STATE, settings(context, &mut store))??;
    let seen = told(board, STATE, store.topology().map_err(NodeError::from))?;
    // What nobody can read is replaced by what is found.
    let seen: Option<Topology> = seen.and_then(|text| serde_json::from_str(&text).ok());
    let found = discover(&context.options.root, &settings, seen.as_ref());
    let found = told(board, DISCOVERED, found)?;
    let blocked = context.blocked();
    let kept = keep(board, &mut store, &settings, &found, blocked.as_deref());
    let slots = told(board, STATE, kept)?;
    tell(board, STATE, true, &format!("{} is open", path.display()));
    Some(Look {
        resource: settings.config.resource,
        slots,
    })
}

/// The outcome; a failure is told as that of a condition.
fn told<T>(board: &Board, name: &'static str, outcome: Result<T, NodeError>) -> Option<T> {
    outcome
        .inspect_err(|error| tell(board, name, false, &words(error, error.hint().as_deref())))
        .ok()
}

fn open(path: &Path) -> Result<Store, NodeError> {
    let opened = open_state(path)?;
    opened
        .notes
        .iter()
        .for_each(|note| tracing::info!("{note}"));
    Ok(opened.store)
}

/// What the file says, which is kept for the plugin; else what was kept.
fn settings(context: &Context, store: &mut Store) -> Result<Option<Settings>, NodeError> {
    let known = Store::open_read_only(&context.options.paths.state)?;
    match config::effective(&context.options, &known) {
        Ok(effective) => {
            let from = effective.in_words(&context.options);
            let holds = effective.asked.is_none();
            tell(&context.board, CONFIGURED, holds, &from);
            store.put_setup(&effective.loaded.setup)?;
            Ok(Some(effective.loaded.settings))
        }
        Err(error) => {
            let why = words(&error, Some(error.hint()));
            tell(&context.board, CONFIGURED, false, &why);
            Ok(config::remembered(&known))
        }
    }
}

/// Keeps the topology, and tells of it; the slots that follow. `blocked`: why pods do not get to the
/// plugin.
fn keep(
    board: &Board,
    store: &mut Store,
    settings: &Settings,
    found: &Discovery,
    blocked: Option<&str>,
) -> Result<Vec<Slot>, NodeError> {
    let topology = &found.topology;
    let text =
        serde_json::to_string(topology).map_err(|error| NodeError::BadTopology(error.into()))?;
    if store.topology()?.as_deref() != Some(text.as_str()) {
        store.put_topology(&text)?;
        board.topology_changed();
    }
    let ready = require_ready(&found.node);
    let settings_of_rails = &settings.config.rails;
    let shares = settings_of_rails.shares;
    let rails = u16::try_from(topology.rails.len()).unwrap_or(u16::MAX);
    let bindings = store.list()?;
    let held = Held {
        bound: bound(&bindings, topology, settings_of_rails.mtu),
        waiting: store.waiting()?.into_keys().collect(),
    };
    let slots = store.grow_slots(wanted(rails.saturating_mul(shares), &held))?;
    let ground = Ground {
        netns_shared: ready.is_ok(),
        ipvlan: ready.is_ok(),
    };
    let usable = usable_shares(topology, ground, settings_of_rails);
    let health = slot_health(slots, usable, &held, door(board, settings, blocked));
    board.update(|values| {
        values.slots = slot_counts(&health, &held);
        values.rails = rail_counts(topology);
        values.bindings = bindings.len().try_into().unwrap_or(u64::MAX);
        values.addresses = addresses(settings.pool.as_ref(), &bindings);
    });
    match ready {
        Ok(()) => tell(
            board,
            DISCOVERED,
            true,
            &in_words(topology, settings_of_rails.mtu),
        ),
        Err(error) => tell(
            board,
            DISCOVERED,
            false,
            &words(&error, error.hint().as_deref()),
        ),
    }
    Ok(health.into_iter().map(offered).collect())
}

fn offered((id, healthy): (SlotId, bool)) -> Slot {
    Slot { id, healthy }
}

/// A new pod without the plugin or without an address would be stuck in its sandbox for ever; so no
/// new pod is let in, which is told.
fn door(board: &Board, settings: &Settings, blocked: Option<&str>) -> Door {
    let no_pool = "the configuration names no address pool";
    let no_pool = settings.pool.is_none().then_some(no_pool);
    let reasons: Vec<&str> = no_pool.into_iter().chain(blocked).collect();
    if reasons.is_empty() {
        tell(board, OFFERED, true, "free slots are for new pods");
        return Door::Open;
    }
    let reasons = format!("no slots for new pods: {}", reasons.join("; "));
    tell(board, OFFERED, false, &reasons);
    Door::Shut
}

fn slots_of(binding: &Binding) -> impl Iterator<Item = SlotId> {
    binding.rails.iter().filter_map(|rail| rail.slot)
}

/// The slots that are bound, and whether the rail of each can still be used. Indices move when a
/// card is gone after a boot; PCI functions do not.
fn bound(
    bindings: &[Binding],
    topology: &Topology,
    asked_mtu: Option<u32>,
) -> BTreeMap<SlotId, bool> {
    let unusable = unusable(topology, asked_mtu);
    let is_usable = |bound: &BoundRail| {
        let is_same = |rail: &&Rail| rail.path.function == bound.pci && rail.port == bound.port;
        let rail = topology.rails.iter().find(is_same);
        rail.is_some_and(|rail| !unusable.contains_key(&rail.index))
    };
    let rails = bindings.iter().flat_map(|binding| &binding.rails);
    rails
        .filter_map(|rail| Some((rail.slot?, is_usable(rail))))
        .collect()
}

/// A slot per rail share, and all that pods have: after a boot with a rail fewer the kubelet would
/// refuse the pod with the last slot for good, whatever rails are free.
fn wanted(shares: u16, held: &Held) -> u16 {
    let bound = held.bound.last_key_value().map(|(slot, _)| slot);
    let highest = bound.max(held.waiting.last());
    shares.max(highest.map_or(0, |slot| slot.0.saturating_add(1)))
}

/// `16 rails, 8 GPUs; unusable: rail 0: link down`
fn in_words(topology: &Topology, asked_mtu: Option<u32>) -> String {
    let unusable = unusable(topology, asked_mtu);
    let list: Vec<String> = unusable
        .iter()
        .map(|(rail, why)| format!("rail {rail}: {why}"))
        .collect();
    let counts = format!(
        "{} rails, {} GPUs",
        topology.rails.len(),
        topology.gpus.len()
    );
    match list.is_empty() {
        true => counts,
        false => format!("{counts}; unusable: {}", list.join(", ")),
    }
}

fn slot_counts(health: &[(SlotId, bool)], held: &Held) -> SlotCounts {
    let mut counts = SlotCounts::default();
    for (slot, healthy) in health {
        let (waits, bound) = (held.waiting.contains(slot), held.bound.contains_key(slot));
        let count = match (waits, bound, healthy) {
            (true, _, _) => &mut counts.waiting,
            (_, true, _) => &mut counts.bound,
            (_, _, true) => &mut counts.free,
            _ => &mut counts.unhealthy,
        };
        *count += 1;
    }
    counts
}

fn rail_counts(topology: &Topology) -> RailCounts {
    let mut counts = RailCounts::default();
    for rail in &topology.rails {
        let count = match (rail.faults.is_empty(), rail.link) {
            (false, _) => &mut counts.faulty,
            (true, LinkState::Down) => &mut counts.down,
            (true, _) => &mut counts.usable,
        };
        *count += 1;
    }
    counts
}

/// Used and total of each family; leases of other pools are not of this block.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn addresses(pool: Option<&Pool>, bindings: &[Binding]) -> BTreeMap<&'static str, AddressCounts> {
    let Some(pool) = pool else {
        return BTreeMap::new();
    };
    let leases = || bindings.iter().flat_map(|binding| &binding.leases);
    let of = |family: Family| {
        let ours = leases().filter(|lease| Family::of(lease.address) == family);
        let used = ours.filter(|lease| lease.pool == *pool.name()).count();
        let counts = AddressCounts {
            used: used as f64,
            total: capacity(pool, family),
        };
        let name = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        (name, counts)
    };
    pool.families().map(of).collect()
}

/// Largest block of which the holes are counted, one by one.
const COUNTED: u128 = 1 << 16;

/// How many addresses of a family the node's block hands out. In larger blocks holes do not
/// matter to anybody who looks at a metric.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn capacity(pool: &Pool, family: Family) -> f64 {
    let (first, last) = match pool.block_range(family) {
        Some((IpAddr::V4(first), IpAddr::V4(last))) => {
            (u128::from(first.to_bits()), u128::from(last.to_bits()))
        }
        Some((IpAddr::V6(first), IpAddr::V6(last))) => (first.to_bits(), last.to_bits()),
        _ => return 0.0,
    };
    let size = last.saturating_sub(first).saturating_add(1);
    if size > COUNTED {
        return size as f64;
    }
    let address = |bits: u128| match u32::try_from(bits) {
        Ok(bits) if family == Family::V4 => IpAddr::V4(bits.into()),
        _ => IpAddr::V6(bits.into()),
    };
    let handed_out = (first..=last).filter(|bits| pool.hands_out(address(*bits)));
    handed_out.count() as f64
}

#[cfg(test)]
mod tests;
