//! The state for those who only look: read once, and no file is made, not even SQLite's own.

use crate::error::StoreError;
use crate::schema::{self, Found};
use crate::types::{Binding, Snapshot};
use crate::{file, rows};
use podrail_core::ids::SandboxId;
use podrail_core::ipam::{Cursors, PoolName};
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

    /// What a choice would have to respect.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.bindings, self.freed.clone(), self.cursors.clone())
    }

    pub(crate) fn load(given: &Path) -> Result<Self, StoreError> {
        let Some(path) = file::existing(given)? else {
            return Ok(Self::default());
        };
        let mut last = Ok(Self::default());
        for _ in 0..ATTEMPTS {
            let before = Stand::of(&path)?;
            last = if before.log {
                read(&path, "mode=ro")
            } else {
                read(&path, "mode=ro&immutable=1")
            };
            // With a log SQLite sees to it that the read is of one moment; without one nothing
            // may have been written meanwhile.
            if (before.log && last.is_ok()) || before == Stand::of(&path)? {
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

fn read(path: &Path, options: &str) -> Result<ReadOnly, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let conn = schema::open(path, &uri(path, options), flags)?;
    let fail = |error| StoreError::from_sqlite(path, READING, error);
    let tx = conn.unchecked_transaction().map_err(fail)?;
    if schema::identify(&tx, path)? == Found::Empty {
        return Ok(ReadOnly::default());
    }
    let state = state(&tx).map_err(fail)?;
    Ok(state)
}

fn state(conn: &Connection) -> rusqlite::Result<ReadOnly> {
    Ok(ReadOnly {
        bindings: rows::bindings(conn)?,
        freed: rows::freed(conn)?,
        cursors: rows::cursors(conn)?,
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
