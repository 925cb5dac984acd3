//! Reserve, ready, release, boots, and what is refused.

use super::*;

fn fresh() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&state_file(&directory));
    (directory, store)
}

#[test]
fn what_is_reserved_comes_back_as_it_was() {
    let (_directory, mut store) = fresh();
    let node = Node::new(1, 32);
    let Reserved::New(binding) = node.reserve(&mut store, "a", 16).unwrap() else {
        panic!("nothing was there before")
    };
    assert_eq!((binding.state, binding.rails.len()), (State::Pending, 16));
    assert_eq!(binding.request, request("a", "{}"));
    assert_eq!(store.get(&sandbox("a")).unwrap(), Some(binding.clone()));
    assert_eq!(store.list().unwrap(), [binding]);
    assert_eq!(store.get(&sandbox("b")).unwrap(), None);
    assert_eq!(store.snapshot().unwrap().used.len(), 32);
}

#[test]
fn a_second_equal_request_gets_the_first_ones_plan() {
    let (_directory, mut store) = fresh();
    let first = Node::new(1, 32).reserve(&mut store, "a", 2).unwrap();
    store.mark_ready(&sandbox("a")).unwrap();
    store.mark_ready(&sandbox("a")).unwrap();
    let again = store.reserve(&request("a", "{}"), |_| -> Result<_, NoRails> {
        panic!("decided twice")
    });
    let Reserved::Existing(again) = again.unwrap() else {
        panic!("bound twice")
    };
    let state = State::Ready;
    let expected = Binding {
        state,
        ..first.binding().clone()
    };
    assert_eq!(again, expected);
}

#[test]
fn other_arguments_are_refused() {
    let (_directory, mut store) = fresh();
    let node = Node::new(1, 32);
    node.reserve(&mut store, "a", 2).unwrap();
    let error = store.reserve(&request("a", "{\"rails\":3}"), |held| node.choose(held, 3));
    let error = error.unwrap_err();
    assert!(
        matches!(&error, ReserveError::OtherArguments { existing, asked, .. }
        if existing == "{}" && asked == "{\"rails\":3}")
    );
    assert_told(&error, &error.hint().unwrap());
    assert_eq!(store.list().unwrap()[0].rails.len(), 2);
}

#[test]
fn a_failed_choice_leaves_nothing() {
    let (_directory, mut store) = fresh();
    let node = Node::new(1, 3);
    let error = node.reserve(&mut store, "a", 17).unwrap_err();
    assert!(matches!(
        error,
        ReserveError::Decide {
            source: NoRails::Rails,
            ..
        }
    ));
    let error = node.reserve(&mut store, "a", 4).unwrap_err();
    assert!(matches!(
        &error,
        ReserveError::Decide {
            source: NoRails::Addresses(_),
            ..
        }
    ));
    assert_told(&error, "none of the store's");
    assert_eq!(store.snapshot().unwrap(), Snapshot::default());
}

#[test]
fn a_panic_while_choosing_leaves_nothing_and_the_store_usable() {
    let (_directory, mut store) = fresh();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.reserve(&request("a", "{}"), |_| -> Result<_, NoRails> {
            panic!("as meant")
        })
    }));
    assert!(caught.is_err());
    assert_eq!(store.snapshot().unwrap(), Snapshot::default());
    Node::new(1, 32).reserve(&mut store, "a", 16).unwrap();
}

#[test]
fn release_frees_all_and_twice_is_nothing() {
    let (_directory, mut store) = fresh();
    let node = Node::new(1, 32);
    let first = node.reserve(&mut store, "a", 16).unwrap().binding().clone();
    assert_eq!(
        store.release(&sandbox("a")).unwrap(),
        Released::Freed(Box::new(first))
    );
    assert_eq!(store.release(&sandbox("a")).unwrap(), Released::Nothing);
    let snapshot = store.snapshot().unwrap();
    assert!(snapshot.holdings.is_empty() && snapshot.used.is_empty());
    assert!(!snapshot.cursors.is_empty(), "the first round goes on");
    assert_eq!(snapshot.freed.len(), 2 * 16);
    let error = store.mark_ready(&sandbox("a")).unwrap_err();
    assert!(matches!(error, StoreError::NoBinding { .. }));
    assert_told(&error, &error.hint());
}

/// Case 29: two pods on one rail, with distinct addresses; no third one.
#[test]
fn two_shares_of_a_rail() {
    let (_directory, mut store) = fresh();
    let node = Node::new(2, 64);
    node.reserve(&mut store, "a", 16).unwrap();
    node.reserve(&mut store, "b", 16).unwrap();
    assert_sound(&store.list().unwrap());
    let error = node.reserve(&mut store, "c", 1).unwrap_err();
    assert!(matches!(
        error,
        ReserveError::Decide {
            source: NoRails::Rails,
            ..
        }
    ));
}

/// Case 7: two pods fill a block; after a power cut both come back with ADD alone.
#[test]
fn after_a_power_cut_a_full_block_is_free_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let node = Node::new(2, 32);
    let mut store = open(&path);
    node.reserve(&mut store, "old-a", 16).unwrap();
    node.reserve(&mut store, "old-b", 16).unwrap();
    store.mark_ready(&sandbox("old-a")).unwrap();
    let held = store.list().unwrap();
    drop(store);

    let opened = Store::open(&path, &boot(2)).unwrap();
    assert_eq!(opened.dropped, held);
    let again = Store::open(&path, &boot(2)).unwrap();
    assert_eq!(again.dropped, []);
    let mut store = opened.store;
    node.reserve(&mut store, "new-a", 16).unwrap();
    node.reserve(&mut store, "new-b", 16).unwrap();
    let bindings = store.list().unwrap();
    assert_sound(&bindings);
    assert_eq!(store.snapshot().unwrap().used.len(), 2 * 32);
    assert!(bindings.iter().all(|binding| binding.boot == boot(2)));
}

#[test]
fn a_store_of_an_earlier_boot_writes_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let mut old = open(&path);
    let new = Store::open(&path, &boot(2)).unwrap().store;
    let error = Node::new(1, 32).reserve(&mut old, "a", 1).unwrap_err();
    assert!(matches!(
        &error,
        ReserveError::Store(StoreError::OtherBoot { .. })
    ));
    assert_told(&error, &error.hint().unwrap());
    assert_eq!(new.list().unwrap(), []);
}

/// A decision for `b`, spoilt by `change`, is refused with `expected` and leaves nothing.
fn conflict(change: impl Fn(&mut Decision), expected: &Conflict) {
    let (_directory, mut store) = fresh();
    let node = Node::new(1, 64);
    node.reserve(&mut store, "a", 2).unwrap();
    let before = store.snapshot().unwrap();
    let error = store.reserve(&request("b", "{}"), |held| {
        let mut decision = node.choose(held, 3)?;
        change(&mut decision);
        Ok::<_, NoRails>(decision)
    });
    let error = error.unwrap_err();
    assert_told(&error, &error.hint().unwrap());
    assert!(
        matches!(&error, ReserveError::Conflict { source, .. } if source == expected),
        "{error:?}"
    );
    assert_eq!(store.snapshot().unwrap(), before);
}

#[test]
fn a_share_or_rail_that_is_taken() {
    let held = Node::rail(1, 0);
    let share = Conflict::Share {
        pci: held.pci,
        port: 1,
        share: 0,
        holder: sandbox("a"),
    };
    conflict(|decision| decision.rails[1] = held.clone(), &share);
    let rail = RailIndex(3);
    let again = Node::rail(3, 7);
    conflict(
        |decision| decision.rails[2] = again.clone(),
        &Conflict::RailTwice { rail },
    );
}

#[test]
fn an_address_that_is_taken_or_for_no_rail() {
    let ip = |text: &str| text.parse().unwrap();
    let (address, holder) = (ip("10.239.0.65"), sandbox("a"));
    conflict(
        |decision| decision.leases[4].address = address,
        &Conflict::Address { address, holder },
    );
    let (address, rail) = (ip("192.0.2.1"), RailIndex(9));
    let stray = |decision: &mut Decision| {
        decision.leases[0].address = address;
        decision.leases[0].rail = rail;
    };
    conflict(stray, &Conflict::UnboundRail { address, rail });
    let (address, rail) = (ip("fd00::1234"), RailIndex(2));
    let second = |decision: &mut Decision| {
        let lease = decision.leases[0].clone();
        decision.leases.truncate(2);
        decision.leases.push(Lease { address, ..lease });
    };
    conflict(second, &Conflict::AddressTwice { rail, address });
}

/// The rule stands in the database itself: no program can write around it.
#[test]
fn the_database_refuses_a_second_holder() {
    let (_directory, mut store) = fresh();
    let node = Node::new(2, 64);
    node.reserve(&mut store, "a", 1).unwrap();
    node.reserve(&mut store, "b", 1).unwrap();
    for sql in [
        "UPDATE binding_rails SET share = 0",
        "UPDATE leases SET address = '10.239.0.65' WHERE family = 4",
        "DELETE FROM bindings",
        "DELETE FROM binding_rails",
        "UPDATE bindings SET state = 'half'",
    ] {
        let error = store.conn.execute_batch(sql).unwrap_err();
        let code = error.sqlite_error_code();
        assert_eq!(
            code,
            Some(rusqlite::ErrorCode::ConstraintViolation),
            "{sql}"
        );
    }
}

#[test]
fn boot_ids() {
    let text = "5a1c9d0e-0b1f-4c3d-8e2f-0123456789ab";
    assert_eq!(
        BootId::parse(&format!("{text}\n")).unwrap().to_string(),
        text
    );
    for bad in [
        "",
        "x",
        &text.to_uppercase(),
        &text.replace('-', "0"),
        &text[1..],
    ] {
        assert!(BootId::parse(bad).is_err(), "{bad}");
    }
}

/// Case 32: a thousand attachments leave nothing behind but each address's place in the order.
#[test]
fn a_thousand_rounds_leave_no_row() {
    let (_directory, mut store) = fresh();
    store
        .conn
        .pragma_update(None, "synchronous", "off")
        .unwrap();
    let node = Node::new(1, 64);
    for round in 0..1000 {
        node.reserve(&mut store, &format!("pod-{round}"), 4)
            .unwrap();
        store.release(&sandbox(&format!("pod-{round}"))).unwrap();
    }
    for table in ["bindings", "binding_rails", "leases"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let rows: i64 = store.conn.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(store.snapshot().unwrap().freed.len(), 2 * 64);
}

#[test]
fn a_file_is_unused_until_the_first_binding_and_never_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&state_file(&directory));
    assert!(store.is_unused().unwrap());
    Node::new(1, 32).reserve(&mut store, "a", 1).unwrap();
    assert!(!store.is_unused().unwrap());
    store.release(&sandbox("a")).unwrap();
    assert!(!store.is_unused().unwrap());
}
