//! A thorough look, and a new file in place of one that is damaged or gone.

use super::*;
use podrail_core::ids::SlotId;
use std::fs;

const SUFFIX: &str = ".damaged-then";

/// What one sandbox holds, as the node of these tests would choose it.
fn content(node: &Node, name: &str) -> Content {
    let decision = node.choose(&Snapshot::default(), 2).unwrap();
    Content {
        held: vec![Held {
            request: request(name, "{}"),
            decision,
            ready: true,
        }],
        waiting: vec![SlotId(7)],
        slots: 16,
        topology: Some("{}".into()),
        at: 1_800_000_000,
    }
}

#[test]
fn a_new_file_holds_what_was_given_and_the_old_one_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    let log = path.with_file_name("state.db-wal");
    let damaged = vec![0x5a; 9000];
    fs::write(&path, &damaged).unwrap();
    fs::write(&log, "of the damaged one").unwrap();
    let node = Node::new(1, 64);
    let moved = Store::rebuild(&path, &boot(1), &content(&node, "a"), SUFFIX).unwrap();
    let kept = ["state.db.damaged-then", "state.db.damaged-then-wal"];
    assert_eq!(moved, kept.map(|name| path.with_file_name(name)));
    assert_eq!(fs::read(&moved[0]).unwrap(), damaged);
    assert_eq!(fs::read(&moved[1]).unwrap(), b"of the damaged one");
    assert_eq!(
        names(path.parent().unwrap()),
        ["state.db", kept[0], kept[1]]
    );
    let inspected = Store::inspect(&path).unwrap().unwrap();
    assert_eq!(inspected.loose_mode, None);
    let mut store = open(&path);
    assert_sound(&store.list().unwrap());
    let a = store.get(&sandbox("a")).unwrap().unwrap();
    assert_eq!((a.state, a.sequence, a.rails.len()), (State::Ready, 1, 2));
    let waits = store.waiting().unwrap();
    assert_eq!(waits.get(&SlotId(7)).unwrap().number, 0);
    assert_eq!(store.topology().unwrap().as_deref(), Some("{}"));
    assert_eq!(inspected.state.slots(), 16);
    // It is used on like any other: rails and addresses are not given out twice.
    node.reserve(&mut store, "b", 2).unwrap();
    assert_sound(&store.list().unwrap());
    assert!(matches!(
        store.release(&sandbox("a")),
        Ok(Released::Freed(_))
    ));
}

#[test]
fn an_earlier_file_that_was_kept_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let nothing = Content::default();
    assert_eq!(
        Store::rebuild(&path, &boot(1), &nothing, SUFFIX).unwrap(),
        [] as [PathBuf; 0]
    );
    for name in ["state.db.damaged-then", "state.db.damaged-then-2"] {
        let moved = Store::rebuild(&path, &boot(1), &nothing, SUFFIX).unwrap();
        assert_eq!(moved, [path.with_file_name(name)]);
    }
}

#[test]
fn a_conflict_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let node = Node::new(1, 64);
    node.reserve(&mut open(&path), "old", 1).unwrap();
    let before = fs::read(&path).unwrap();
    let mut twice = content(&node, "a");
    twice.held.extend(content(&node, "b").held);
    let error = Store::rebuild(&path, &boot(1), &twice, SUFFIX).unwrap_err();
    assert!(matches!(error, ReserveError::Conflict { .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(
        !names(path.parent().unwrap())
            .iter()
            .any(|name| name.contains("damaged"))
    );
    // What it left under the name of a new file does not stand in the way.
    Store::rebuild(&path, &boot(1), &content(&node, "a"), SUFFIX).unwrap();
    assert_eq!(open(&path).list().unwrap().len(), 1);
}

/// SQLite would delete the log: it takes it for one of a database that was deleted before.
#[test]
fn a_log_without_its_database_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let node = Node::new(1, 64);
    let mut store = open(&path);
    node.reserve(&mut store, "a", 1).unwrap();
    let log = path.with_file_name("state.db-wal");
    let content = fs::read(&log).unwrap();
    drop(store);
    fs::remove_file(&path).unwrap();
    fs::write(&log, &content).unwrap();
    for error in [
        Store::open(&path, &boot(1)).unwrap_err(),
        Store::inspect(&path).unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::LogWithoutFile { .. }),
            "{error:?}"
        );
        assert_told(&error, &error.hint());
    }
    assert_eq!(names(path.parent().unwrap()), ["state.db-wal"]);
    let moved = Store::rebuild(&path, &boot(1), &Content::default(), SUFFIX).unwrap();
    assert_eq!(moved, [path.with_file_name("state.db.damaged-then-wal")]);
    assert_eq!(fs::read(&moved[0]).unwrap(), content);
    assert_eq!(open(&path).list().unwrap(), []);
}

#[test]
fn a_look_changes_and_makes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    assert_eq!(Store::inspect(&path).unwrap(), None);
    assert!(names(directory.path()).is_empty());
    Node::new(1, 64).reserve(&mut open(&path), "a", 4).unwrap();
    let before = fs::read(&path).unwrap();
    let found = Store::inspect(&path).unwrap().unwrap();
    assert_eq!(found.state, Store::open_read_only(&path).unwrap());
    assert_eq!(found.path, path.canonicalize().unwrap());
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names(path.parent().unwrap()), ["state.db"]);
}

/// The check at opening looks at pages only; a look asks the references too.
#[test]
fn a_row_that_refers_to_nothing_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let store = open(&path);
    store
        .conn
        .pragma_update(None, "foreign_keys", false)
        .unwrap();
    let sql = "INSERT INTO binding_rails VALUES ('ghost', 0, '0000:40:00.0', 1, 'rdma0', 0, NULL)";
    store.conn.execute_batch(sql).unwrap();
    drop(store);
    let error = Store::inspect(&path).unwrap_err();
    let StoreError::Damaged { finding, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(finding, "a row of binding_rails refers to none of bindings");
    assert_told(&error, &error.hint());
}
