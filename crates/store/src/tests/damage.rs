//! Files that are damaged, foreign, newer, full or locked.

use super::*;
use rusqlite::Connection;
use std::fs;
use std::time::Duration;

const PAGE: usize = 4096;

fn refused(path: &Path) -> StoreError {
    let before = fs::read(path).unwrap();
    let error = Store::open(path, &boot(1)).unwrap_err();
    assert_told(&error, &error.hint());
    assert_eq!(fs::read(path).unwrap(), before, "the file was changed");
    let looked = Store::open_read_only(path).unwrap_err();
    assert_eq!(
        std::mem::discriminant(&looked),
        std::mem::discriminant(&error),
        "{looked:?}"
    );
    error
}

#[test]
fn text_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    fs::write(
        &path,
        "not a database, but long enough for a header. ".repeat(99),
    )
    .unwrap();
    assert!(matches!(refused(&path), StoreError::NotADatabase { .. }));
}

#[test]
fn another_programs_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(other);
    assert!(matches!(
        refused(&path),
        StoreError::Foreign { application: 0, .. }
    ));
}

#[test]
fn a_newer_schema() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let store = open(&path);
    store.conn.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    let error = refused(&path);
    assert!(
        matches!(
            error,
            StoreError::Newer {
                found: 99,
                known: 2,
                ..
            }
        ),
        "{error:?}"
    );
}

fn full(path: &Path) -> Vec<Binding> {
    let mut store = open(path);
    let node = Node::new(10, 600);
    for pod in 0..10 {
        node.reserve(&mut store, &format!("pod-{pod}"), 16).unwrap();
    }
    store.list().unwrap()
}

/// Damage to any page is either an error that says so, or has hit nothing of value.
#[test]
fn every_damaged_page_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let expected = full(&path);
    let good = fs::read(&path).unwrap();
    let mut noticed = 0;
    for page in 0..good.len() / PAGE {
        for filling in [0x00, 0xff, 0x5a] {
            let mut bad = good.clone();
            bad[page * PAGE..(page + 1) * PAGE].fill(filling);
            fs::write(&path, &bad).unwrap();
            match Store::open(&path, &boot(1)).and_then(|opened| opened.store.list()) {
                Ok(found) => assert_eq!(found, expected, "page {page} with {filling:#x}"),
                Err(error) => {
                    assert_told(&error, &error.hint());
                    let typed = matches!(
                        error,
                        StoreError::Damaged { .. }
                            | StoreError::Corrupt { .. }
                            | StoreError::NotADatabase { .. }
                    );
                    assert!(typed, "page {page} with {filling:#x}: {error:?}");
                    noticed += 1;
                }
            }
        }
    }
    assert!(
        noticed >= 3 * (good.len() / PAGE) - 3,
        "noticed {noticed} only"
    );
}

/// A small file, cut anywhere and with single bits turned over: what is read is what was written, or
/// it is told. Looking never changes the file, and a rebuild keeps every byte of it.
#[test]
fn cuts_and_flipped_bits_are_told_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    Node::new(1, 64)
        .reserve(&mut open(&path), "pod", 8)
        .unwrap();
    let expected = Store::open_read_only(&path).unwrap();
    let good = fs::read(&path).unwrap();
    let cuts = (0..good.len()).step_by(PAGE / 2).skip(1);
    let mut bad: Vec<Vec<u8>> = cuts.map(|length| good[..length].to_vec()).collect();
    // Of each page the header, where one bit changes what all the rest means.
    for page in (0..good.len()).step_by(PAGE) {
        for (byte, bit) in [(0, 1), (3, 0), (4, 3), (5, 7), (8, 2), (9, 6)] {
            let mut one = good.clone();
            one[page + byte] ^= 1 << bit;
            bad.push(one);
        }
    }
    let mut told = 0;
    for (number, bytes) in bad.iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        match Store::inspect(&path) {
            // The end of the last page may hold nothing.
            Ok(found) => assert_eq!(found.unwrap().state, expected, "variant {number}"),
            Err(error) => {
                assert_told(&error, &error.hint());
                told += 1;
            }
        }
        assert_eq!(
            &fs::read(&path).unwrap(),
            bytes,
            "a look has changed the file"
        );
    }
    assert!(told > bad.len() / 2, "{told} of {} were told", bad.len());
    let moved = Store::rebuild(&path, &boot(1), &Content::default(), ".damaged").unwrap();
    assert_eq!(&fs::read(&moved[0]).unwrap(), bad.last().unwrap());
}

/// A large file is not checked at opening: damage is met when the page is read.
#[test]
fn damage_met_later_is_named_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    full(&path);
    let good = fs::read(&path).unwrap();
    let mut met = 0;
    for page in 1..good.len() / PAGE {
        let store = open(&path);
        store.conn.execute_batch("PRAGMA shrink_memory").unwrap();
        let mut bad = good.clone();
        bad[page * PAGE..(page + 1) * PAGE].fill(0xff);
        fs::write(&path, &bad).unwrap();
        if let Err(error) = store.list() {
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
            met += 1;
        }
        drop(store);
        fs::write(&path, &good).unwrap();
    }
    assert!(met > 0);
}

#[test]
fn a_value_that_podrail_does_not_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let mut store = open(&path);
    Node::new(1, 32).reserve(&mut store, "a", 1).unwrap();
    let check = |error: StoreError, column: &str| {
        assert!(matches!(error, StoreError::BadValue { .. }), "{error:?}");
        assert_told(&error, &error.hint());
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(&format!("column {column}: ")), "{source}");
    };
    let sql = "INSERT INTO freed (address, pool, family) VALUES ('nonsense', 'rails', 4)";
    store.conn.execute_batch(sql).unwrap();
    check(store.snapshot().unwrap_err(), "address");
    let sql = "UPDATE binding_rails SET pci = 'nonsense'";
    store.conn.execute_batch(sql).unwrap();
    check(store.list().unwrap_err(), "pci");
}

#[test]
fn locked_for_too_long() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let mut store = open(&path);
    let holder = open(&path);
    holder.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.conn.busy_timeout(Duration::from_millis(5)).unwrap();
    let error = store.release(&sandbox("a")).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    assert_told(&error, &error.hint());
    assert_eq!(store.list().unwrap(), [], "reading goes on");
}

#[test]
fn no_room_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let mut store = open(&path);
    let node = Node::new(1, 32);
    node.reserve(&mut store, "a", 1).unwrap();
    let before = store.list().unwrap();
    store.conn.pragma_update(None, "max_page_count", 1).unwrap();
    let mut big = request("b", "{}");
    big.fingerprint = "x".repeat(100_000);
    let error = store
        .reserve(&big, |held| node.choose(held, 1))
        .unwrap_err();
    assert!(
        matches!(&error, ReserveError::Store(StoreError::DiskFull { .. })),
        "{error:?}"
    );
    assert_told(&error, &error.hint().unwrap());
    assert_eq!(store.list().unwrap(), before);
}
