//! Files of older schemas: read as they are, and brought up to date when they are opened.

use super::*;
use podrail_core::ids::SlotId;
use rusqlite::Connection;

const FIRST: &str = include_str!("../schema/1.sql");

/// A file as a program of schema 1 leaves it: two sandboxes, the later one first by name.
fn of_schema_1(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let conn = Connection::open(path).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    conn.execute_batch(FIRST).unwrap();
    let boot = boot(1);
    conn.execute_batch(&format!(
        "PRAGMA application_id = 0x50526462;
         PRAGMA user_version = 1;
         INSERT INTO meta VALUES ('boot', '{boot}');
         INSERT INTO bindings VALUES
            ('b', 'ready', '/run/netns/b', 4, 11, '{{}}', '0000:18:00.0', '{boot}', 'plan b', 100),
            ('a', 'pending', '/run/netns/a', NULL, NULL, '{{}}', '', '{boot}', 'plan a', 200);
         INSERT INTO binding_rails VALUES
            ('b', 0, '0000:40:00.0', 1, 'rdma0', 0), ('b', 1, '0000:40:00.1', 1, 'rdma1', 0),
            ('a', 2, '0000:41:00.0', 1, 'rdma2', 0);
         INSERT INTO leases VALUES
            ('10.239.0.33', 'rails', 4, 'b', 0), ('10.239.0.34', 'rails', 4, 'b', 1),
            ('10.239.0.35', 'rails', 4, 'a', 2);
         INSERT INTO freed (address, pool, family) VALUES ('10.239.0.36', 'rails', 4);
         INSERT INTO cursors VALUES ('rails', 4, '10.239.0.36');"
    ))
    .unwrap();
}

fn assert_kept(bindings: &[Binding], snapshot: &Snapshot) {
    let [a, b] = bindings else {
        panic!("{bindings:?}")
    };
    assert_eq!((a.sequence, b.sequence), (2, 1));
    assert_eq!((a.state, b.state), (State::Pending, State::Ready));
    assert_eq!((a.plan.as_str(), b.plan.as_str()), ("plan a", "plan b"));
    assert_eq!((a.request.at, b.request.at), (200, 100));
    assert_eq!((a.leases.len(), b.leases.len()), (1, 2));
    assert_eq!(b.request.netns_id, Some(NetnsId { dev: 4, ino: 11 }));
    for binding in bindings {
        assert_eq!(binding.request.pod, None);
        assert!(binding.rails.iter().all(|rail| rail.slot.is_none()));
    }
    assert_eq!(snapshot.used.len(), 3);
    assert_eq!(
        snapshot.freed,
        ["10.239.0.36".parse::<std::net::IpAddr>().unwrap()]
    );
}

fn version(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

#[test]
fn a_file_of_schema_1_is_read_without_being_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    of_schema_1(&path);
    let before = std::fs::read(&path).unwrap();
    let looked = Store::open_read_only(&path).unwrap();
    assert_kept(looked.list(), &looked.snapshot());
    assert_eq!(looked.slot_owner(SlotId(0)), None);
    assert_eq!(
        (looked.pods(), looked.setup(), looked.slots()),
        (&[][..], None, 0)
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(version(&path), 1);
}

#[test]
fn a_file_of_schema_1_is_brought_up_to_date_and_used_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    of_schema_1(&path);
    let mut store = open(&path);
    assert_kept(&store.list().unwrap(), &store.snapshot().unwrap());
    let node = Node::new(1, 32);
    let next = node.reserve(&mut store, "c", 1).unwrap();
    assert_eq!(next.binding().sequence, 3);
    store.allocate(&[SlotId(0)], 1).unwrap();
    store.release(&sandbox("b")).unwrap();
    drop(store);
    assert_eq!(version(&path), 2);
    assert_eq!(open(&path).list().unwrap().len(), 2);
}

/// The schema does not depend on the way to it.
#[test]
fn a_migrated_file_has_the_schema_of_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (
        directory.path().join("o/o.db"),
        directory.path().join("n/n.db"),
    );
    of_schema_1(&old);
    let schema = |path: &Path| {
        let store = open(path);
        let mut query = store
            .conn
            .prepare("SELECT name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY name")
            .unwrap();
        let rows = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(schema(&old), schema(&new));
}
