//! Freed addresses in the order of their release, so that the one freed last is issued last.
//!
//! Bounded: of each pool and family the newest releases are kept, and an older one counts as never
//! issued. So a huge pool cannot make the file large, and any block up to the bound is exact.

use super::write::family;
use crate::types::Binding;
use podrail_core::ids::SandboxId;
use podrail_core::ipam::PoolName;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// How many releases are remembered of each pool and family.
const REMEMBERED: u32 = 4096;

/// All that are remembered, the oldest release first.
pub(crate) fn freed(conn: &Connection) -> rusqlite::Result<Vec<IpAddr>> {
    let mut query = conn.prepare("SELECT address FROM freed ORDER BY sequence")?;
    let rows = query.query_map([], |row| super::parsed(row, 0))?;
    rows.collect()
}

/// Remembers the addresses of a binding that is about to be deleted, in the order of its leases.
pub(super) fn remember(conn: &Connection, binding: &Binding) -> rusqlite::Result<()> {
    let mut query =
        conn.prepare("INSERT OR REPLACE INTO freed (address, pool, family) VALUES (?1, ?2, ?3)")?;
    for lease in &binding.leases {
        let (address, pool) = (lease.address, lease.pool.as_str());
        query.execute(params![address.to_string(), pool, family(address)])?;
    }
    let leases = binding.leases.iter();
    let touched: BTreeSet<_> = leases.map(|l| (&l.pool, family(l.address))).collect();
    touched
        .into_iter()
        .try_for_each(|(pool, family)| cut(conn, pool, family))
}

/// Forgets those that a sandbox has leased.
pub(super) fn lease_again(conn: &Connection, sandbox: &SandboxId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM freed
               WHERE address IN (SELECT address FROM leases WHERE sandbox = ?1)";
    conn.execute(sql, [sandbox.as_str()])?;
    Ok(())
}

/// Forgets the oldest releases of a pool above the bound.
fn cut(conn: &Connection, pool: &PoolName, family: u8) -> rusqlite::Result<()> {
    let sql = "DELETE FROM freed WHERE pool = ?1 AND family = ?2 AND sequence <= (
                   SELECT sequence FROM freed WHERE pool = ?1 AND family = ?2
                   ORDER BY sequence DESC LIMIT 1 OFFSET ?3)";
    conn.execute(sql, params![pool.as_str(), family, REMEMBERED])?;
    Ok(())
}
