//! Rows of the state file, as somebody else might have left them.
//!
//! An input has a line for each change of a good file: `TABLE COLUMN ROW KIND VALUE`, where KIND is
//! `text`, `int`, `real`, `hex` or `null`; `byte OFFSET HEX` for the file itself; and `loose`, for a
//! file without the database's own checks and too large to be looked through at opening, so that
//! only the readers of rows stand between it and the product.

use crate::config::document_of_any_origin;
use crate::told::told;
use podrail_core::topology::Topology;
use podrail_node::{NodeError, Settings, attachment};
use podrail_store::{Binding, BootId, ReadOnly, Setup, Store, StoreError};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Rows of two sandboxes, one of a pod, and all else that a node keeps.
const ROWS: &str = include_str!("state/rows.sql");
/// Takes the checks away and makes the file larger than what is checked at opening.
const LOOSEN: &str = "PRAGMA writable_schema = ON;
    UPDATE sqlite_schema SET sql = replace(
        replace(replace(sql, ' STRICT', ''), 'CHECK (', 'CHECK (1 OR '), 'NOT NULL', '')
        WHERE type = 'table';
    CREATE TABLE padding (bytes);
    INSERT INTO padding VALUES (zeroblob(700000));";
/// Most changes of one file.
const MOST_LINES: usize = 200;
const BOOT: &str = "00000000-0000-4000-8000-000000000001";

/// The two good files.
struct Good {
    strict: Vec<u8>,
    loose: Vec<u8>,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let dir = crate::directory();
    let path = dir.path().join("state.db");
    drop(Store::open(&path, &boot()).expect("a new state file"));
    let change = |sql: &str| {
        let conn = Connection::open(&path).expect("a database");
        conn.execute_batch("PRAGMA journal_mode = DELETE")
            .expect("no log");
        conn.execute_batch(sql).expect("good SQL");
        drop(conn);
        fs::read(&path).expect("the file")
    };
    let strict = change(ROWS);
    let loose = change(LOOSEN);
    Good { strict, loose }
});

/// The changed file is refused with the place, or read as the same by all readers.
pub(crate) fn rows(input: &[u8]) {
    let dir = crate::directory();
    let path = dir.path().join("state.db");
    spoil(&path, &String::from_utf8_lossy(input));
    let looked = Store::open_read_only(&path);
    let opened = Store::open(&path, &boot()).map(|opened| opened.store);
    let held = opened.and_then(|store| held(&store));
    if let Ok(read) = &looked {
        used(read);
    }
    match (looked, held) {
        (Ok(read), Ok(held)) => {
            assert_eq!(read.list(), held);
            let again = Store::open_read_only(&path).expect("what was read is read again");
            assert_eq!(again.list(), held);
        }
        // One of them may look at more, or at less.
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => refused(&error),
        (Err(first), Err(second)) => [first, second].iter().for_each(refused),
    }
}

fn boot() -> BootId {
    BootId::parse(BOOT).expect("an id")
}

fn held(store: &Store) -> Result<Vec<Binding>, StoreError> {
    store.snapshot()?;
    store.waiting()?;
    store.pods()?;
    store.setup()?;
    store.topology()?;
    store.list()
}

/// What stands in texts that the store does not look into.
fn used(read: &ReadOnly) {
    for binding in read.list() {
        if let Err(error) = attachment(binding) {
            let sandbox = binding.request.sandbox.to_string();
            told(&error, error.hint(), &[&sandbox]);
        }
    }
    if let Some(setup) = read.setup() {
        configured(setup);
    }
    if let Some(seen) = read.topology()
        && let Err(error) = serde_json::from_str::<Topology>(&seen.text)
    {
        let error = NodeError::BadTopology(error.into());
        told(&error, error.hint(), &["line"]);
    }
}

fn configured(setup: &Setup) {
    if let Ok(document) = serde_json::from_str(&setup.document) {
        document_of_any_origin(document);
    }
    if let Err(error) = Settings::of_setup(setup) {
        told(&error, Some("restart the agent".into()), &["line", ": "]);
    }
}

fn refused(error: &StoreError) {
    let place = match error {
        StoreError::BadValue { .. } => "column ",
        _ => "state.db",
    };
    told(error, Some(error.hint()), &[place]);
}

fn spoil(path: &Path, text: &str) {
    let good = &*GOOD;
    let loose = text.lines().any(|line| line == "loose");
    fs::write(path, if loose { &good.loose } else { &good.strict }).expect("a file");
    {
        let conn = Connection::open(path).expect("a database");
        let pragmas = "PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF;
                       PRAGMA journal_mode = OFF; BEGIN";
        conn.execute_batch(pragmas).expect("good SQL");
        let changes = text.lines().take(MOST_LINES);
        // What the database itself refuses is no row that anybody could have left.
        changes.for_each(|line| _ = change(&conn, line));
        conn.execute_batch("COMMIT").expect("a commit");
    }
    spoil_bytes(path, text);
}

fn change(conn: &Connection, line: &str) -> Option<usize> {
    let mut words = line.splitn(5, ' ');
    let (table, column, row) = (words.next()?, words.next()?, words.next()?);
    let value = value(words.next()?, words.next().unwrap_or_default())?;
    let known = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";
    let known = conn.query_row(known, [table, column], |_| Ok(()));
    known.optional().ok()??;
    let rowid = format!("SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET ?2");
    let sql = format!("UPDATE {table} SET {column} = ?1 WHERE rowid = ({rowid})");
    let row: u32 = row.parse().ok()?;
    conn.execute(&sql, (value, row)).ok()
}

fn value(kind: &str, text: &str) -> Option<Value> {
    Some(match kind {
        "text" => Value::Text(text.to_owned()),
        "int" => Value::Integer(text.parse().ok()?),
        "real" => Value::Real(text.parse().ok()?),
        "hex" => Value::Blob(text.bytes().collect()),
        "null" => Value::Null,
        _ => return None,
    })
}

fn spoil_bytes(path: &Path, text: &str) {
    let edits: Vec<(usize, u8)> = text.lines().take(MOST_LINES).filter_map(edit).collect();
    if edits.is_empty() {
        return;
    }
    let mut bytes = fs::read(path).expect("the file");
    for (at, byte) in edits {
        let length = bytes.len();
        if let Some(place) = bytes.get_mut(at % length.max(1)) {
            *place = byte;
        }
    }
    fs::write(path, bytes).expect("the file");
}

fn edit(line: &str) -> Option<(usize, u8)> {
    let (at, byte) = line.strip_prefix("byte ")?.split_once(' ')?;
    Some((at.parse().ok()?, u8::from_str_radix(byte, 16).ok()?))
}
