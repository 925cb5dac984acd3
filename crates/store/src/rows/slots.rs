//! Rows of slots and of the pods that had them.

use super::write::Refused;
use crate::types::{Binding, KnownPod, Waiting};
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeMap, BTreeSet};

/// Slots that wait.
pub(crate) fn waiting(conn: &Connection) -> rusqlite::Result<BTreeMap<SlotId, Waiting>> {
    let mut query = conn.prepare("SELECT slot, since, number FROM waiting")?;
    let rows = query.query_map([], |row| {
        let (since, number) = (super::get(row, 1)?, super::get(row, 2)?);
        Ok((SlotId(super::get(row, 0)?), Waiting { since, number }))
    })?;
    rows.collect()
}

/// Makes slots wait from now on, as one allocation.
pub(crate) fn allocate(conn: &Connection, slots: &[SlotId], at: i64) -> rusqlite::Result<()> {
    let number = next_allocation(conn)?;
    let sql = "INSERT INTO waiting (slot, since, number) VALUES (?1, ?2, ?3)
               ON CONFLICT (slot) DO UPDATE SET since = excluded.since, number = excluded.number";
    let mut query = conn.prepare(sql)?;
    for slot in slots {
        query.execute(params![slot.0, at, number])?;
    }
    Ok(())
}

/// Counts one more allocation.
fn next_allocation(conn: &Connection) -> rusqlite::Result<i64> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'allocations'
               RETURNING CAST(value AS INTEGER)";
    conn.query_row(sql, [], |row| super::get(row, 0))
}

/// Makes slots of a dropped binding wait again. One that was allocated anew waits already, and for
/// another pod: it stays as it is.
pub(super) fn wait_again(conn: &Connection, binding: &Binding) -> rusqlite::Result<()> {
    let slots: Vec<SlotId> = binding.rails.iter().filter_map(|rail| rail.slot).collect();
    wait(conn, &slots, binding.request.at)
}

/// Makes slots wait that no allocation is known of.
pub(crate) fn wait(conn: &Connection, slots: &[SlotId], at: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO waiting (slot, since, number) VALUES (?1, ?2, 0)
               ON CONFLICT (slot) DO NOTHING";
    let mut query = conn.prepare(sql)?;
    for slot in slots {
        query.execute(params![slot.0, at])?;
    }
    Ok(())
}

/// Makes slots wait no longer.
pub(crate) fn forget_waiting(conn: &Connection, slots: &[SlotId]) -> rusqlite::Result<()> {
    let mut query = conn.prepare("DELETE FROM waiting WHERE slot = ?1")?;
    for slot in slots {
        query.execute([slot.0])?;
    }
    Ok(())
}

/// The newest sandbox that has a slot.
pub(crate) fn slot_owner(conn: &Connection, slot: SlotId) -> rusqlite::Result<Option<SandboxId>> {
    let sql = "SELECT sandbox FROM binding_rails JOIN bindings USING (sandbox)
               WHERE slot = ?1 ORDER BY sequence DESC LIMIT 1";
    conn.query_row(sql, [slot.0], |row| super::parsed(row, 0))
        .optional()
}

/// Slots of a sandbox that no newer one has, and that do not wait for another pod.
pub(crate) fn own_slots(
    conn: &Connection,
    sandbox: &SandboxId,
) -> rusqlite::Result<BTreeSet<SlotId>> {
    let sql = "SELECT slot FROM binding_rails AS own JOIN bindings USING (sandbox)
               WHERE sandbox = ?1 AND slot IS NOT NULL
               AND slot NOT IN (SELECT slot FROM waiting)
               AND NOT EXISTS (
                   SELECT 1 FROM binding_rails AS other JOIN bindings AS newer USING (sandbox)
                   WHERE other.slot = own.slot AND newer.sequence > bindings.sequence)";
    let mut query = conn.prepare(sql)?;
    let rows = query.query_map([sandbox.as_str()], |row| super::get(row, 0).map(SlotId))?;
    rows.collect()
}

/// Pods by UID.
pub(crate) fn pods(conn: &Connection) -> rusqlite::Result<Vec<KnownPod>> {
    let mut query = conn.prepare("SELECT uid, namespace, name, since FROM pods ORDER BY uid")?;
    let rows = query.query_map([], |row| {
        Ok(KnownPod {
            pod: super::pod_at(row, 0)?,
            since: super::get(row, 3)?,
        })
    })?;
    rows.collect()
}

/// Whether the pod is known, by a row or by a binding.
pub(crate) fn knows_pod(conn: &Connection, uid: &PodUid) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pods WHERE uid = ?1)
               OR EXISTS (SELECT 1 FROM bindings WHERE pod_uid = ?1)";
    conn.query_row(sql, [uid.as_str()], |row| super::get(row, 0))
}

/// Whether the pod is not known afterwards.
pub(crate) fn forget_pod(conn: &Connection, uid: &PodUid, since: i64) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM pods WHERE uid = ?1 AND since = ?2
               AND NOT EXISTS (SELECT 1 FROM bindings WHERE pod_uid = ?1)";
    conn.execute(sql, params![uid.as_str(), since])?;
    Ok(!knows_pod(conn, uid)?)
}

/// What a new binding means for its slots and its pod.
pub(super) fn bound(
    conn: &Connection,
    binding: &Binding,
    seen: &BTreeMap<SlotId, i64>,
) -> Result<(), Refused> {
    let waits = waiting(conn)?;
    let mut query = conn.prepare("DELETE FROM waiting WHERE slot = ?1")?;
    for slot in binding.rails.iter().filter_map(|rail| rail.slot) {
        // What was allocated since waits for another pod. What a new boot made wait has no number,
        // and need not be seen.
        let newest = waits.get(&slot).map_or(0, |waiting| waiting.number);
        if newest > seen.get(&slot).copied().unwrap_or(0) {
            return Err(Refused::GivenAway(slot));
        }
        query.execute([slot.0])?;
    }
    let Some(pod) = &binding.request.pod else {
        return Ok(());
    };
    let sql = "INSERT INTO pods (uid, namespace, name, since) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (uid) DO NOTHING";
    let (uid, namespace, name) = (pod.uid.as_str(), pod.namespace.as_str(), pod.name.as_str());
    conn.execute(sql, params![uid, namespace, name, binding.request.at])?;
    Ok(())
}
