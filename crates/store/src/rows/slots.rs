//! Rows of slots and of the pods that had them.

use crate::types::{Binding, KnownPod};
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// Slots that wait, and since when.
pub(crate) fn waiting(conn: &Connection) -> rusqlite::Result<BTreeMap<SlotId, i64>> {
    let mut query = conn.prepare("SELECT slot, since FROM waiting")?;
    let rows = query.query_map([], |row| Ok((SlotId(row.get(0)?), row.get(1)?)))?;
    rows.collect()
}

/// Makes slots wait from now on.
pub(crate) fn allocate(conn: &Connection, slots: &[SlotId], at: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO waiting (slot, since) VALUES (?1, ?2)
               ON CONFLICT (slot) DO UPDATE SET since = excluded.since";
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

/// Pods by UID.
pub(crate) fn pods(conn: &Connection) -> rusqlite::Result<Vec<KnownPod>> {
    let mut query = conn.prepare("SELECT uid, namespace, name, since FROM pods ORDER BY uid")?;
    let rows = query.query_map([], |row| {
        Ok(KnownPod {
            pod: super::pod_at(row, 0)?,
            since: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Whether there was something to forget.
pub(crate) fn forget_pod(conn: &Connection, uid: &PodUid) -> rusqlite::Result<bool> {
    let gone = conn.execute("DELETE FROM pods WHERE uid = ?1", [uid.as_str()])?;
    Ok(gone > 0)
}

/// What a new binding means for its slots and its pod.
pub(super) fn bound(conn: &Connection, binding: &Binding) -> rusqlite::Result<()> {
    // A slot that was allocated after the request came waits for another pod.
    let mut query = conn.prepare("DELETE FROM waiting WHERE slot = ?1 AND since <= ?2")?;
    for slot in binding.rails.iter().filter_map(|rail| rail.slot) {
        query.execute(params![slot.0, binding.request.at])?;
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
