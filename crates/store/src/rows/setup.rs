//! Rows of what the node is set up as, one text each.

use crate::types::{BootId, SeenTopology, Setup};
use rusqlite::{Connection, OptionalExtension};
use std::net::IpAddr;

const DOCUMENT: &str = "document";
const ROOT: &str = "root";
const ADDRESSES: &str = "node addresses";
const TOPOLOGY: &str = "topology";
const TOPOLOGY_BOOT: &str = "topology boot";
const SLOTS: &str = "slots";
const SLOTS_BOOT: &str = "slots boot";

/// What was kept, if anything was.
pub(crate) fn setup(conn: &Connection) -> rusqlite::Result<Option<Setup>> {
    let texts = (
        get(conn, DOCUMENT)?,
        get(conn, ROOT)?,
        get(conn, ADDRESSES)?,
    );
    let (Some(document), Some(root), Some(addresses)) = texts else {
        return Ok(None);
    };
    let addresses = addresses.split(' ').filter(|text| !text.is_empty());
    let node_addresses = addresses.map(|text| text.parse().map_err(|error| bad(ADDRESSES, error)));
    Ok(Some(Setup {
        document,
        root,
        node_addresses: node_addresses.collect::<Result<_, _>>()?,
    }))
}

/// Keeps it in place of what was there.
pub(crate) fn keep_setup(conn: &Connection, setup: &Setup) -> rusqlite::Result<()> {
    let addresses = setup.node_addresses.iter().map(IpAddr::to_string);
    put(conn, DOCUMENT, &setup.document)?;
    put(conn, ROOT, &setup.root)?;
    put(conn, ADDRESSES, &addresses.collect::<Vec<_>>().join(" "))
}

/// The topology that was kept last.
pub(crate) fn topology(conn: &Connection) -> rusqlite::Result<Option<SeenTopology>> {
    let (Some(text), Some(boot)) = (get(conn, TOPOLOGY)?, get(conn, TOPOLOGY_BOOT)?) else {
        return Ok(None);
    };
    let boot = boot.parse().map_err(|error| bad(TOPOLOGY_BOOT, error))?;
    Ok(Some(SeenTopology { boot, text }))
}

/// Keeps it in place of what was there.
pub(crate) fn keep_topology(conn: &Connection, boot: &BootId, text: &str) -> rusqlite::Result<()> {
    put(conn, TOPOLOGY, text)?;
    put(conn, TOPOLOGY_BOOT, boot.as_str())
}

/// How many slots were told of last: in this boot, or before it in an earlier one.
pub(crate) fn slots(conn: &Connection) -> rusqlite::Result<u16> {
    let slots = get(conn, SLOTS)?.map(|text| text.parse().map_err(|error| bad(SLOTS, error)));
    Ok(slots.transpose()?.unwrap_or(0))
}

/// The number of slots, which is never lowered within a boot: a new one may have other rails, and
/// the kubelet starts anew.
pub(crate) fn grow_slots(conn: &Connection, boot: &BootId, wanted: u16) -> rusqlite::Result<u16> {
    let told = match get(conn, SLOTS_BOOT)?.as_deref() == Some(boot.as_str()) {
        true => slots(conn)?,
        false => 0,
    };
    let slots = told.max(wanted);
    put(conn, SLOTS, &slots.to_string())?;
    put(conn, SLOTS_BOOT, boot.as_str())?;
    Ok(slots)
}

fn bad(key: &str, why: impl std::fmt::Display) -> rusqlite::Error {
    super::bad_field(0, &format!("value of {key:?}"), why)
}

fn get(conn: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM setup WHERE key = ?1";
    conn.query_row(sql, [key], |row| super::get(row, 0))
        .optional()
}

/// An equal value is not written again, so that nothing has to reach the disk.
fn put(conn: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO setup (key, value) VALUES (?1, ?2)
               ON CONFLICT (key) DO UPDATE SET value = excluded.value
               WHERE value IS NOT excluded.value";
    conn.execute(sql, [key, value])?;
    Ok(())
}
