//! Rows of the database to values and back; each value is parsed again when it is read.

mod freed;
mod setup;
mod slots;
mod write;
pub(crate) use freed::freed;
pub(crate) use setup::{grow_slots, keep_setup, keep_topology, setup, slots, topology};
pub(crate) use slots::{
    allocate, forget_pod, forget_waiting, knows_pod, own_slots, pods, slot_owner, wait, waiting,
};
pub(crate) use write::{Refused, decision, enter_boot, free, mark_ready};

use crate::types::{Binding, BoundRail, Lease, NetnsId, Request, State};
use podrail_core::ids::{PciAddr, RailIndex, SandboxId, SlotId};
use podrail_core::ipam::{Cursors, PoolName};
use podrail_core::pods::PodRef;
use podrail_core::words::brief;
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

/// The boot that the file is of.
pub(crate) fn boot(conn: &Connection) -> rusqlite::Result<Option<String>> {
    conn.query_row("SELECT value FROM meta WHERE key = 'boot'", [], |row| {
        get(row, 0)
    })
    .optional()
}

/// How many bindings the file ever had.
pub(crate) fn sequence(conn: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'sequence'";
    conn.query_row(sql, [], |row| row.get(0))
}

/// One binding, if it is there.
pub(crate) fn binding(conn: &Connection, sandbox: &SandboxId) -> rusqlite::Result<Option<Binding>> {
    Ok(some_bindings(conn, Some(sandbox))?.pop())
}

/// All bindings, by sandbox.
pub(crate) fn bindings(conn: &Connection) -> rusqlite::Result<Vec<Binding>> {
    some_bindings(conn, None)
}

/// Where each pool's first round stands.
pub(crate) fn cursors(conn: &Connection) -> rusqlite::Result<BTreeMap<PoolName, Cursors>> {
    let mut found = BTreeMap::<PoolName, Cursors>::new();
    let mut query = conn.prepare("SELECT pool, address FROM cursors")?;
    let rows = query.query_map([], |row| Ok((pool(row, 0)?, parsed::<IpAddr>(row, 1)?)))?;
    for row in rows {
        let (pool, address) = row?;
        let cursors = found.entry(pool).or_default();
        match address {
            IpAddr::V4(address) => cursors.v4 = Some(address),
            IpAddr::V6(address) => cursors.v6 = Some(address),
        }
    }
    Ok(found)
}

/// Three queries, whatever the number of bindings.
fn some_bindings(conn: &Connection, sandbox: Option<&SandboxId>) -> rusqlite::Result<Vec<Binding>> {
    let sandbox = sandbox.map(SandboxId::as_str);
    let mut rails = by_sandbox(
        conn,
        "SELECT sandbox, rail, pci, port, netdev, share, slot FROM binding_rails
         WHERE ?1 IS NULL OR sandbox = ?1 ORDER BY rail",
        sandbox,
        bound_rail,
    )?;
    let mut leases = by_sandbox(
        conn,
        "SELECT sandbox, rail, address, pool FROM leases
         WHERE ?1 IS NULL OR sandbox = ?1 ORDER BY rail, family",
        sandbox,
        lease,
    )?;
    let mut query = conn.prepare(
        "SELECT sandbox, state, netns, netns_dev, netns_ino, fingerprint, gpus, boot, plan,
                created_at, sequence, pod_uid, pod_namespace, pod_name
         FROM bindings WHERE ?1 IS NULL OR sandbox = ?1 ORDER BY sandbox",
    )?;
    let rows = query.query_map([sandbox], bare_binding)?;
    rows.map(|row| {
        let bare = row?;
        let sandbox = &bare.request.sandbox;
        Ok(Binding {
            rails: rails.remove(sandbox).unwrap_or_default(),
            leases: leases.remove(sandbox).unwrap_or_default(),
            ..bare
        })
    })
    .collect()
}

/// Rows that start with the sandbox, gathered by it.
fn by_sandbox<T>(
    conn: &Connection,
    sql: &str,
    sandbox: Option<&str>,
    read: fn(&Row) -> rusqlite::Result<T>,
) -> rusqlite::Result<BTreeMap<SandboxId, Vec<T>>> {
    let mut found = BTreeMap::<SandboxId, Vec<T>>::new();
    let mut query = conn.prepare(sql)?;
    let rows = query.query_map([sandbox], |row| Ok((parsed(row, 0)?, read(row)?)))?;
    for row in rows {
        let (sandbox, value) = row?;
        found.entry(sandbox).or_default().push(value);
    }
    Ok(found)
}

fn bound_rail(row: &Row) -> rusqlite::Result<BoundRail> {
    Ok(BoundRail {
        index: RailIndex(get(row, 1)?),
        pci: parsed(row, 2)?,
        port: get(row, 3)?,
        netdev: parsed(row, 4)?,
        share: get(row, 5)?,
        slot: get::<Option<u16>>(row, 6)?.map(SlotId),
    })
}

fn lease(row: &Row) -> rusqlite::Result<Lease> {
    Ok(Lease {
        rail: RailIndex(get(row, 1)?),
        address: parsed(row, 2)?,
        pool: pool(row, 3)?,
    })
}

/// A binding without its rails and leases.
fn bare_binding(row: &Row) -> rusqlite::Result<Binding> {
    Ok(Binding {
        request: Request {
            sandbox: parsed(row, 0)?,
            netns: get(row, 2)?,
            netns_id: netns_id(row)?,
            fingerprint: get(row, 5)?,
            gpus: gpus(row)?,
            pod: pod(row)?,
            at: get(row, 9)?,
            seen: BTreeMap::new(),
        },
        state: state(row)?,
        boot: parsed(row, 7)?,
        sequence: get(row, 10)?,
        plan: get(row, 8)?,
        rails: Vec::new(),
        leases: Vec::new(),
    })
}

fn netns_id(row: &Row) -> rusqlite::Result<Option<NetnsId>> {
    let (dev, ino): (Option<i64>, Option<i64>) = (get(row, 3)?, get(row, 4)?);
    let both = dev.zip(ino);
    Ok(both.map(|(dev, ino)| NetnsId {
        dev: dev.cast_unsigned(),
        ino: ino.cast_unsigned(),
    }))
}

fn gpus(row: &Row) -> rusqlite::Result<Vec<PciAddr>> {
    let text: String = get(row, 6)?;
    let gpus = text.split(' ').filter(|gpu| !gpu.is_empty());
    gpus.map(|gpu| gpu.parse().map_err(|error| bad(row, 6, error)))
        .collect()
}

fn pod(row: &Row) -> rusqlite::Result<Option<PodRef>> {
    if get::<Option<String>>(row, 11)?.is_none() {
        return Ok(None);
    }
    pod_at(row, 11).map(Some)
}

/// A pod whose UID, namespace and name start at a column.
fn pod_at(row: &Row, first: usize) -> rusqlite::Result<PodRef> {
    Ok(PodRef {
        uid: parsed(row, first)?,
        namespace: parsed(row, first + 1)?,
        name: parsed(row, first + 2)?,
    })
}

fn state(row: &Row) -> rusqlite::Result<State> {
    let text: String = get(row, 1)?;
    let states = [State::Pending, State::Ready];
    let state = states.into_iter().find(|state| state.as_str() == text);
    state.ok_or_else(|| bad(row, 1, format!("state {:?}", brief(&text))))
}

fn pool(row: &Row, column: usize) -> rusqlite::Result<PoolName> {
    let text: String = get(row, column)?;
    PoolName::parse(&text).map_err(|error| bad(row, column, error))
}

fn parsed<T>(row: &Row, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: Display>,
{
    let text: String = get(row, column)?;
    text.parse().map_err(|error| bad(row, column, error))
}

/// A value of a column; what is not of its kind is named with the column.
fn get<T: FromSql>(row: &Row, column: usize) -> rusqlite::Result<T> {
    row.get(column).map_err(|error| bad(row, column, error))
}

/// The error names the column: the index alone tells nobody anything.
fn bad(row: &Row, column: usize, why: impl Display) -> rusqlite::Error {
    let name = row.as_ref().column_name(column).unwrap_or("?");
    bad_field(column, name, why)
}

fn bad_field(column: usize, name: &str, why: impl Display) -> rusqlite::Error {
    let text = format!("column {name}: {}", brief(&why.to_string()));
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, text.into())
}
