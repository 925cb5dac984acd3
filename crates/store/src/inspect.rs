//! A thorough look at the file, for those who ask whether it is sound. Nothing is changed or made.

use crate::error::StoreError;
use crate::file;
use crate::read_only::ReadOnly;
use crate::store::Store;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// A file that is sound, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Its path, without links.
    pub path: PathBuf,
    /// What is in it.
    pub state: ReadOnly,
    /// Its permission bits, if group or others have any of them: the next opening tightens them.
    pub loose_mode: Option<u32>,
}

impl Store {
    /// Looks at every page and every reference of the file, and reads it whole; none if there is no
    /// file. Costs time by the size of the file, unlike [`Store::open_read_only`].
    ///
    /// # Errors
    /// The file cannot be read, is damaged, is none of Podrail's, or is not safe to use.
    pub fn inspect(path: &Path) -> Result<Option<Inspected>, StoreError> {
        let Some(path) = file::existing(path)? else {
            return match lone_log(path)? {
                Some(log) => Err(StoreError::LogWithoutFile { log }),
                None => Ok(None),
            };
        };
        let loose_mode = file::looseness(&path)?;
        let state = ReadOnly::load_at(&path, |conn| check(conn, &path))?;
        Ok(Some(Inspected {
            path,
            state,
            loose_mode,
        }))
    }
}

/// The log of a database that is gone.
fn lone_log(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    match file::refuse_lone_log(path) {
        Err(StoreError::LogWithoutFile { log }) => Ok(Some(log)),
        other => other.map(|()| None),
    }
}

fn check(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |error| StoreError::from_sqlite(path, "checking it", error);
    let finding: String = conn
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(fail)?;
    let orphan = "SELECT \"table\", parent FROM pragma_foreign_key_check LIMIT 1";
    let finding = match finding.as_str() {
        "ok" => first(conn, orphan).map_err(fail)?,
        _ => Some(finding),
    };
    let path = path.to_owned();
    finding.map_or(Ok(()), |finding| Err(StoreError::Damaged { path, finding }))
}

/// The first row that refers to nothing, in words.
fn first(conn: &Connection, sql: &str) -> rusqlite::Result<Option<String>> {
    let mut query = conn.prepare(sql)?;
    let mut rows = query.query_map([], |row| {
        let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(format!("a row of {table} refers to none of {parent}"))
    })?;
    rows.next().transpose()
}
