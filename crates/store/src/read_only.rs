//! The state for those who only look: read once, and no file is made, not even SQLite's own.

use crate::error::StoreError;
use crate::schema::{self, Found, NEWEST};
use crate::types::{Binding, KnownPod, SeenTopology, Setup, Snapshot, Waiting};
use crate::{file, rows};
use podrail_core::ids::{SandboxId, SlotId};
use podrail_core::ipam::{Cursors, PoolName};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How often a read is tried again because writers came and went.
const ATTEMPTS: usize = 100;

const READING: &str = "reading it";

/// The state of a node as it was at one moment; bindings of an earlier boot are still in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOnly {
    bindings: Vec<Binding>,
    freed: Vec<IpAddr>,
    cursors: BTreeMap<PoolName, Cursors>,
    waiting: BTreeMap<SlotId, Waiting>,
    pods: Vec<KnownPod>,
    setup: Option<Setup>,
    topology: Option<SeenTopology>,
    slots: u16,
}

impl ReadOnly {
    /// All bindings, by sandbox.
    #[must_use]
    pub fn list(&self) -> &[Binding] {
        &self.bindings
    }

    /// What a sandbox holds.
    #[must_use]
    pub fn get(&self, sandbox: &SandboxId) -> Option<&Binding> {
        let mut bindings = self.bindings.iter();
        bindings.find(|binding| binding.request.sandbox == *sandbox)
    }

    /// The newest sandbox that a slot is bound to.
    #[must_use]
    pub fn slot_owner(&self, slot: SlotId) -> Option<&SandboxId> {
        let has = |binding: &&Binding| binding.rails.iter().any(|rail| rail.slot == Some(slot));
        let newest = self.bindings.iter().filter(has).max_by_key(|b| b.sequence);
        newest.map(|binding| &binding.request.sandbox)
    }

    /// Slots that are allocated and not yet bound.
    #[must_use]
    pub fn waiting(&self) -> &BTreeMap<SlotId, Waiting> {
        &self.waiting
    }

    /// Pods that had slots bound on this node, by UID.
    #[must_use]
    pub fn pods(&self) -> &[KnownPod] {
        &self.pods
    }

    /// What the node is set up as.
    #[must_use]
    pub fn setup(&self) -> Option<&Setup> {
        self.setup.as_ref()
    }

    /// GPUs and rails as they were last seen, in this boot or an earlier one.
    #[must_use]
    pub fn topology(&self) -> Option<&SeenTopology> {
        self.topology.as_ref()
    }

    /// How many slots the kubelet was told of last: in this boot, or, as long as nobody has looked
    /// at the node in this one, in an earlier.
    #[must_use]
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// What a choice would have to respect.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.bindings, self.freed.clone(), self.cursors.clone())
    }

    pub(crate) fn load(given: &Path) -> Result<Self, StoreError> {
        match file::existing(given)? {
            Some(path) => Self::load_at(&path, |_| Ok(())),
            None => Ok(Self::default()),
        }
    }

    /// Of a file that is there, after `check` on the same state of it.
    pub(crate) fn load_at(
        path: &Path,
        check: impl Fn(&Connection) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let mut last = Ok(Self::default());
        for _ in 0..ATTEMPTS {
            let before = Stand::of(path)?;
            let options = match before.log {
                true => "mode=ro",
                false => "mode=ro&immutable=1",
            };
            last = read(path, options, &check);
            // With a log SQLite sees to it that the read is of one moment; without one nothing
            // may have been written meanwhile.
            if (before.log && last.is_ok()) || before == Stand::of(path)? {
                return last;
            }
        }
        last
    }
}

/// What tells that nothing was written between two looks.
#[derive(PartialEq, Eq)]
struct Stand {
    /// The write-ahead log is there: a writer is, or one was killed.
    log: bool,
    /// Inode, size and time of change of the database.
    database: Option<[i64; 4]>,
}

impl Stand {
    fn of(path: &Path) -> Result<Self, StoreError> {
        let database = file::find(path)?.map(|found| {
            let (ino, size) = (found.ino().cast_signed(), found.size().cast_signed());
            [ino, size, found.mtime(), found.mtime_nsec()]
        });
        let log = file::find(&file::beside(path, "-wal"))?.is_some();
        Ok(Self { log, database })
    }
}

fn read(
    path: &Path,
    options: &str,
    check: &impl Fn(&Connection) -> Result<(), StoreError>,
) -> Result<ReadOnly, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let conn = schema::open(path, &uri(path, options), flags)?;
    let fail = |error| StoreError::from_sqlite(path, READING, error);
    let tx = conn.unchecked_transaction().map_err(fail)?;
    let found = schema::identify(&tx, path)?;
    check(&tx)?;
    match found {
        Found::Empty => Ok(ReadOnly::default()),
        Found::Schema(NEWEST) => state(&tx).map_err(fail),
        Found::Schema(_) => state(&newer_copy(&tx, path)?).map_err(fail),
    }
}

/// A copy in memory with today's schema, of a file that nobody has opened for writing since.
fn newer_copy(conn: &Connection, path: &Path) -> Result<Connection, StoreError> {
    let fail = |error| StoreError::from_sqlite(path, READING, error);
    let mut copy = Connection::open_in_memory().map_err(fail)?;
    Backup::new(conn, &mut copy)
        .and_then(|backup| backup.step(-1))
        .map_err(fail)?;
    schema::migrate(&mut copy, path)?;
    Ok(copy)
}

fn state(conn: &Connection) -> rusqlite::Result<ReadOnly> {
    Ok(ReadOnly {
        bindings: rows::bindings(conn)?,
        freed: rows::freed(conn)?,
        cursors: rows::cursors(conn)?,
        waiting: rows::waiting(conn)?,
        pods: rows::pods(conn)?,
        setup: rows::setup(conn)?,
        topology: rows::topology(conn)?,
        slots: rows::slots(conn)?,
    })
}

/// `file:` URI of a path; every byte that could mean something else is escaped.
fn uri(path: &Path, options: &str) -> PathBuf {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' => uri.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    PathBuf::from(format!("{uri}?{options}"))
}
