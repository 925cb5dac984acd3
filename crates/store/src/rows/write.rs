//! Values to rows, inside a transaction of the caller.

use super::{freed, slots};
use crate::error::Conflict;
use crate::types::{Binding, BootId, BoundRail, Decision, Lease, NetnsId, Request, State};
use podrail_core::ids::{SandboxId, SlotId};
use podrail_core::ipam::{Cursors, PoolName};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Why a decision was not written.
pub(crate) enum Refused {
    /// It gives away what is taken.
    Conflict(Conflict),
    /// A slot was allocated after the request had looked.
    GivenAway(SlotId),
    /// SQLite failed.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Writes a new binding, pending.
pub(crate) fn decision(
    conn: &Connection,
    request: &Request,
    decision: &Decision,
    boot: &BootId,
) -> Result<Binding, Refused> {
    let binding = Binding {
        request: Request {
            seen: BTreeMap::new(),
            ..request.clone()
        },
        state: State::Pending,
        boot: boot.clone(),
        sequence: next_sequence(conn)?,
        rails: decision.rails.clone(),
        leases: decision.leases.clone(),
        plan: decision.plan.clone(),
    }
    .in_order();
    bare_binding(conn, &binding)?;
    for rail in &binding.rails {
        bound_rail(conn, &request.sandbox, rail)?;
    }
    for one in &binding.leases {
        lease(conn, &request.sandbox, one)?;
    }
    freed::lease_again(conn, &request.sandbox)?;
    slots::bound(conn, &binding, &request.seen)?;
    for (pool, cursors) in &decision.cursors {
        set_cursors(conn, pool, *cursors)?;
    }
    Ok(binding)
}

/// Counts one more binding.
fn next_sequence(conn: &Connection) -> rusqlite::Result<i64> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'sequence'
               RETURNING CAST(value AS INTEGER)";
    conn.query_row(sql, [], |row| super::get(row, 0))
}

/// Whether there was a binding to mark.
pub(crate) fn mark_ready(conn: &Connection, sandbox: &SandboxId) -> rusqlite::Result<bool> {
    let sql = "UPDATE bindings SET state = 'ready' WHERE sandbox = ?1";
    Ok(conn.execute(sql, [sandbox.as_str()])? > 0)
}

/// Deletes all rows of a binding; its addresses are remembered as freed.
pub(crate) fn free(conn: &Connection, binding: &Binding) -> rusqlite::Result<()> {
    freed::remember(conn, binding)?;
    for sql in [
        "DELETE FROM leases WHERE sandbox = ?1",
        "DELETE FROM binding_rails WHERE sandbox = ?1",
        "DELETE FROM bindings WHERE sandbox = ?1",
    ] {
        conn.execute(sql, [binding.request.sandbox.as_str()])?;
    }
    Ok(())
}

/// Frees what is not of this boot, and returns it; the file is of this boot then.
pub(crate) fn enter_boot(conn: &Connection, boot: &BootId) -> rusqlite::Result<Vec<Binding>> {
    let mut stale = super::bindings(conn)?;
    stale.retain(|binding| binding.boot != *boot);
    for binding in &stale {
        free(conn, binding)?;
        // The kubelet's checkpoint still has them, so their pods come back without `Allocate`.
        slots::wait_again(conn, binding)?;
    }
    conn.execute(
        "INSERT INTO meta (key, value) VALUES ('boot', ?1)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [boot.as_str()],
    )?;
    Ok(stale)
}

impl Binding {
    /// Rails and leases in the order in which they are read.
    fn in_order(mut self) -> Self {
        self.rails.sort_by_key(|rail| rail.index);
        self.leases
            .sort_by_key(|lease| (lease.rail, family(lease.address)));
        self
    }
}

fn bare_binding(conn: &Connection, binding: &Binding) -> rusqlite::Result<()> {
    let Request {
        sandbox,
        fingerprint,
        netns,
        netns_id,
        gpus,
        pod,
        at,
        seen: _,
    } = &binding.request;
    let number = |part: fn(NetnsId) -> u64| netns_id.map(|id| part(id).cast_signed());
    let gpus: Vec<_> = gpus.iter().map(ToString::to_string).collect();
    conn.execute(
        "INSERT INTO bindings (sandbox, state, netns, netns_dev, netns_ino, fingerprint, gpus,
                               boot, plan, created_at, sequence, pod_uid, pod_namespace, pod_name)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        params![
            sandbox.as_str(),
            binding.state.as_str(),
            netns,
            number(|id| id.dev),
            number(|id| id.ino),
            fingerprint,
            gpus.join(" "),
            binding.boot.as_str(),
            binding.plan,
            at,
            binding.sequence,
            pod.as_ref().map(|pod| pod.uid.as_str()),
            pod.as_ref().map(|pod| pod.namespace.as_str()),
            pod.as_ref().map(|pod| pod.name.as_str()),
        ],
    )?;
    Ok(())
}

fn bound_rail(conn: &Connection, sandbox: &SandboxId, rail: &BoundRail) -> Result<(), Refused> {
    let BoundRail {
        index,
        pci,
        port,
        netdev,
        share,
        slot,
    } = rail;
    let sql = "INSERT INTO binding_rails (sandbox, rail, pci, port, netdev, share, slot)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![
        sandbox.as_str(),
        index.0,
        pci.to_string(),
        port,
        netdev.as_str(),
        share,
        slot.map(|slot| slot.0),
    ];
    let Some(error) = constraint(conn.execute(sql, values))? else {
        return Ok(());
    };
    let sql = "SELECT sandbox FROM binding_rails WHERE pci = ?1 AND port = ?2 AND share = ?3";
    if let Some(holder) = holder(conn, sql, params![pci.to_string(), port, share])? {
        let (pci, port, share) = (*pci, *port, *share);
        return Err(Refused::Conflict(Conflict::Share {
            pci,
            port,
            share,
            holder,
        }));
    }
    let sql = "SELECT sandbox FROM binding_rails WHERE sandbox = ?1 AND rail = ?2";
    if holder(conn, sql, params![sandbox.as_str(), index.0])?.is_some() {
        return Err(Refused::Conflict(Conflict::RailTwice { rail: *index }));
    }
    Err(match slot {
        // Nothing else is left that could stand against it.
        Some(slot) => Refused::Conflict(Conflict::SlotTwice { slot: *slot }),
        None => Refused::Sqlite(error),
    })
}

fn lease(conn: &Connection, sandbox: &SandboxId, lease: &Lease) -> Result<(), Refused> {
    let Lease {
        address,
        pool,
        rail,
    } = lease;
    let sql = "INSERT INTO leases (address, pool, family, sandbox, rail)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![
        address.to_string(),
        pool.as_str(),
        family(*address),
        sandbox.as_str(),
        rail.0
    ];
    let Some(error) = constraint(conn.execute(sql, values))? else {
        return Ok(());
    };
    let (address, rail) = (*address, *rail);
    let sql = "SELECT sandbox FROM leases WHERE address = ?1";
    if let Some(holder) = holder(conn, sql, params![address.to_string()])? {
        return Err(Refused::Conflict(Conflict::Address { address, holder }));
    }
    let sql = "SELECT sandbox FROM binding_rails WHERE sandbox = ?1 AND rail = ?2";
    if holder(conn, sql, params![sandbox.as_str(), rail.0])?.is_none() {
        return Err(Refused::Conflict(Conflict::UnboundRail { address, rail }));
    }
    let sql = "SELECT sandbox FROM leases WHERE sandbox = ?1 AND rail = ?2 AND family = ?3";
    let values = params![sandbox.as_str(), rail.0, family(address)];
    Err(match holder(conn, sql, values)? {
        Some(_) => Refused::Conflict(Conflict::AddressTwice { rail, address }),
        None => Refused::Sqlite(error),
    })
}

fn set_cursors(conn: &Connection, pool: &PoolName, cursors: Cursors) -> rusqlite::Result<()> {
    let v4 = cursors.v4.map(IpAddr::V4);
    for address in v4.into_iter().chain(cursors.v6.map(IpAddr::V6)) {
        conn.execute(
            "INSERT INTO cursors (pool, family, address) VALUES (?1, ?2, ?3)
             ON CONFLICT (pool, family) DO UPDATE SET address = excluded.address",
            params![pool.as_str(), family(address), address.to_string()],
        )?;
    }
    Ok(())
}

/// The error if a constraint was violated; other errors are passed on.
fn constraint(outcome: rusqlite::Result<usize>) -> rusqlite::Result<Option<rusqlite::Error>> {
    match outcome {
        Ok(_) => Ok(None),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Ok(Some(error))
        }
        Err(error) => Err(error),
    }
}

fn holder(
    conn: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Option<SandboxId>> {
    conn.query_row(sql, values, |row| super::parsed(row, 0))
        .optional()
}

pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
