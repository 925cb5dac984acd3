//! Opening the database: whose it is, its mode, its schema, and a check for damage.

use crate::StoreError;
use crate::error::BUSY_SECONDS;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use std::time::{Duration, Instant};

/// `PRdb` as a number: marks the file as Podrail's.
pub(crate) const APPLICATION: i32 = 0x5052_6462;

/// Newest schema that this program knows.
pub(crate) const NEWEST: i32 = 2;

/// Step `n` makes schema `n + 1` of schema `n`. Steps that were published are never edited.
const MIGRATIONS: [&str; NEWEST as usize] =
    [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// A look at every page costs about 0.01 ms for each. 60 pods of 16 rails fill 64 pages.
const CHECKED_PAGES: i64 = 128;

const OPENING: &str = "opening it";

/// What the header says about the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing was written yet.
    Empty,
    /// A state file with this schema.
    Schema(i32),
}

/// Opens a prepared file for reading and writing, and brings it to the newest schema.
pub(crate) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let mut conn = open(path, path, flags)?;
    let fail = |error| StoreError::from_sqlite(path, OPENING, error);
    if conn.is_readonly("main").map_err(fail)? {
        let (path, source) = (path.to_owned(), None);
        return Err(StoreError::ReadOnly { path, source });
    }
    let found = identify(&conn, path)?;
    become_wal(&conn).map_err(fail)?;
    settings(&conn).map_err(fail)?;
    if found != Found::Schema(NEWEST) {
        migrate(&mut conn, path)?;
    }
    check(&conn, path)?;
    Ok(conn)
}

/// Opens `name` (a path or a `file:` URI) and sets how long to wait for others.
pub(crate) fn open(path: &Path, name: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let fail = |error| StoreError::from_sqlite(path, OPENING, error);
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(name, flags).map_err(fail)?;
    conn.busy_timeout(Duration::from_secs(BUSY_SECONDS))
        .map_err(fail)?;
    Ok(conn)
}

/// Whether the file is Podrail's and known to this program; changes nothing.
pub(crate) fn identify(conn: &Connection, path: &Path) -> Result<Found, StoreError> {
    let fail = |error| StoreError::from_sqlite(path, OPENING, error);
    // One statement, so that a schema that is being made is seen whole or not at all.
    let header = "SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
                  FROM pragma_application_id AS a, pragma_user_version AS v";
    let (application, version, objects) = conn
        .query_row(header, [], |row| {
            Ok((
                row.get::<_, i32>(0)?,
                row.get::<_, i32>(1)?,
                row.get::<_, i64>(2)?,
            ))
        })
        .map_err(fail)?;
    let path = path.to_owned();
    match (application, version, objects) {
        (0, 0, 0) => Ok(Found::Empty),
        (APPLICATION, 1..=NEWEST, _) => Ok(Found::Schema(version)),
        (APPLICATION, found, _) => Err(StoreError::Newer {
            path,
            found,
            known: NEWEST,
        }),
        _ => Err(StoreError::Foreign { path, application }),
    }
}

/// Write-ahead logging. Changing to it needs the file alone and does not wait by itself: between
/// attempts this waits in the queue of writers.
fn become_wal(conn: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(BUSY_SECONDS);
    loop {
        let mode = conn
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match mode {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                conn.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?;
            }
            other => return other.map(drop),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

fn settings(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "cell_size_check", true)
}

/// Takes every missing step in one transaction; another process may have been quicker.
pub(crate) fn migrate(conn: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |error| StoreError::from_sqlite(path, "making its schema", error);
    let tx = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(fail)?;
    let done = match identify(&tx, path)? {
        Found::Empty => 0,
        Found::Schema(version) => usize::try_from(version).unwrap_or(MIGRATIONS.len()),
    };
    for step in MIGRATIONS.iter().skip(done) {
        tx.execute_batch(step).map_err(fail)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION)
        .and_then(|()| tx.pragma_update(None, "user_version", NEWEST))
        .and_then(|()| tx.commit())
        .map_err(fail)
}

/// Looks at every page while there are few; damage in a large file shows when it is met.
fn check(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |error| StoreError::from_sqlite(path, "checking it", error);
    let pages: i64 = conn
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .map_err(fail)?;
    if pages > CHECKED_PAGES {
        return Ok(());
    }
    let finding: String = conn
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(fail)?;
    if finding == "ok" {
        return Ok(());
    }
    let path = path.to_owned();
    Err(StoreError::Damaged { path, finding })
}
