//! Slots that wait, slots that two sandboxes have, pods that are known, and the node's setup.

use super::*;
use podrail_core::ids::{PodUid, SlotId};

fn fresh() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&state_file(&directory));
    (directory, store)
}

fn waiting(store: &Store) -> Vec<(u16, i64)> {
    let waiting = store.waiting().unwrap();
    let row = |(slot, waiting): (&SlotId, &Waiting)| (slot.0, waiting.since);
    waiting.iter().map(row).collect()
}

fn seen(store: &Store) -> BTreeMap<SlotId, i64> {
    let waiting = store.waiting().unwrap().into_iter();
    waiting.map(|(slot, row)| (slot, row.number)).collect()
}

/// Binds `name`, a sandbox of pod `pod`, to the next free rails, one for each slot, with what waits
/// now in mind.
fn bind(store: &mut Store, name: &str, pod: &str, slots: &[u16]) -> Binding {
    let seen = seen(store);
    let reserved = bind_as_seen(store, (name, pod), slots, seen);
    reserved.unwrap().binding().clone()
}

fn bind_as_seen(
    store: &mut Store,
    (name, pod): (&str, &str),
    slots: &[u16],
    seen: BTreeMap<SlotId, i64>,
) -> Result<Reserved, ReserveError<NoRails>> {
    let request = Request {
        pod: Some(pod_ref(pod)),
        seen,
        ..request(name, "{}")
    };
    store.reserve(&request, |held| {
        let mut decision = Node::new(1, 64).choose(held, slots.len())?;
        for (rail, slot) in decision.rails.iter_mut().zip(slots) {
            rail.slot = Some(SlotId(*slot));
        }
        Ok(decision)
    })
}

#[test]
fn a_slot_waits_from_its_allocation_until_it_is_bound() {
    let (_directory, mut store) = fresh();
    store.allocate(&[SlotId(3), SlotId(1)], 100).unwrap();
    store.allocate(&[SlotId(3), SlotId(700)], 200).unwrap();
    assert_eq!(waiting(&store), [(1, 100), (3, 200), (700, 200)]);
    bind(&mut store, "a", "web-0", &[3, 8]);
    assert_eq!(waiting(&store), [(1, 100), (700, 200)]);
    store.forget_waiting(&[SlotId(1), SlotId(9)]).unwrap();
    store.forget_waiting(&[SlotId(1)]).unwrap();
    assert_eq!(waiting(&store), [(700, 200)]);
}

#[test]
fn an_old_sandbox_asked_again_does_not_take_a_slot_that_waits_for_the_next_pod() {
    let (_directory, mut store) = fresh();
    bind(&mut store, "a", "web-0", &[3]);
    store.allocate(&[SlotId(3)], 100).unwrap();
    bind(&mut store, "a", "web-0", &[3]);
    assert_eq!(waiting(&store), [(3, 100)]);
}

/// The kubelet had told of web-0's slots when it gave one of them to another pod, all within one
/// second.
#[test]
fn a_slot_that_was_given_away_after_the_look_is_refused_and_waits_on() {
    let (_directory, mut store) = fresh();
    store.allocate(&[SlotId(3), SlotId(4)], 100).unwrap();
    let before = seen(&store);
    store.allocate(&[SlotId(3)], 100).unwrap();
    let unseen = BTreeMap::from([(SlotId(4), before[&SlotId(4)])]);
    for seen in [before, unseen] {
        let failed = bind_as_seen(&mut store, ("a", "web-0"), &[4, 3], seen).unwrap_err();
        let words = "slot-03 was given to another pod meanwhile, not to that of sandbox a";
        assert_eq!(failed.to_string(), words);
        assert_told(&failed, &failed.hint().unwrap());
        assert_eq!(waiting(&store), [(3, 100), (4, 100)]);
        assert_eq!(
            (store.list().unwrap(), store.pods().unwrap()),
            (vec![], vec![])
        );
    }
    bind(&mut store, "b", "web-1", &[3]);
    assert_eq!(waiting(&store), [(4, 100)]);
}

/// A sandbox made anew: its pod's slots wait no more since the first one was bound.
#[test]
fn a_slot_that_does_not_wait_can_be_bound() {
    let (_directory, mut store) = fresh();
    store.allocate(&[SlotId(3)], 100).unwrap();
    let before = seen(&store);
    bind(&mut store, "a", "web-0", &[3]);
    for seen in [before, BTreeMap::new()] {
        store.release(&sandbox("b")).unwrap();
        bind_as_seen(&mut store, ("b", "web-0"), &[3], seen).unwrap();
    }
    assert_eq!(waiting(&store), []);
}

/// Who looked before the new boot took the file over has not seen what it made wait.
#[test]
fn a_slot_of_an_earlier_boot_waits_without_a_number_and_one_given_anew_stays_as_it_is() {
    let (directory, mut store) = fresh();
    let path = state_file(&directory);
    bind(&mut store, "a", "web-0", &[3, 4]);
    store.allocate(&[SlotId(3)], 100).unwrap();
    let allocated = seen(&store);
    drop(store);
    let mut store = Store::open(&path, &boot(2)).unwrap().store;
    let at = request("a", "{}").at;
    assert_eq!(waiting(&store), [(3, 100), (4, at)]);
    assert_eq!(seen(&store)[&SlotId(3)], allocated[&SlotId(3)]);
    assert_eq!(seen(&store)[&SlotId(4)], 0);
    bind_as_seen(&mut store, ("b", "web-0"), &[4], allocated).unwrap();
    assert_eq!(waiting(&store), [(3, 100)]);
    let failed = bind_as_seen(&mut store, ("c", "web-0"), &[3], BTreeMap::new());
    assert!(
        matches!(failed, Err(ReserveError::GivenAway { .. })),
        "{failed:?}"
    );
    // The count goes on in the new boot.
    store.allocate(&[SlotId(9)], 200).unwrap();
    assert!(seen(&store)[&SlotId(9)] > seen(&store)[&SlotId(3)]);
}

#[test]
fn a_slot_is_a_sandboxs_own_until_it_is_given_away() {
    let (_directory, mut store) = fresh();
    let own = |store: &Store, name: &str| -> Vec<u16> {
        let own = store.own_slots(&sandbox(name)).unwrap();
        own.into_iter().map(|slot| slot.0).collect()
    };
    assert_eq!(own(&store, "a"), [0u16; 0]);
    bind(&mut store, "a", "web-0", &[3, 4, 5]);
    assert_eq!(own(&store, "a"), [3, 4, 5]);
    store.allocate(&[SlotId(3), SlotId(4)], 100).unwrap();
    assert_eq!(own(&store, "a"), [5]);
    bind(&mut store, "0", "web-1", &[3]);
    assert_eq!((own(&store, "a"), own(&store, "0")), (vec![5], vec![3]));
    store.allocate(&[SlotId(5)], 100).unwrap();
    assert_eq!((own(&store, "a"), own(&store, "0")), (vec![], vec![3]));
}

#[test]
fn a_pod_is_forgotten_only_if_nothing_was_noted_since_and_it_holds_nothing() {
    let (_directory, mut store) = fresh();
    bind(&mut store, "a", "web-0", &[3]);
    let uid = pod_ref("web-0").uid;
    let since = request("a", "{}").at;
    assert!(!store.forget_pod(&uid, since).unwrap(), "it holds a rail");
    assert!(store.knows_pod(&uid).unwrap());
    store.release(&sandbox("a")).unwrap();
    assert!(!store.forget_pod(&uid, 0).unwrap(), "the row is newer");
    assert!(store.forget_pod(&uid, since).unwrap());
    assert!(store.forget_pod(&uid, since).unwrap());
    assert!(!store.knows_pod(&uid).unwrap());
    assert!(store.forget_pod(&PodUid::parse("x").unwrap(), 0).unwrap());
}

#[test]
fn the_wait_for_others_can_be_cut_short() {
    let (directory, store) = fresh();
    let mut other = open(&state_file(&directory));
    let begun =
        rusqlite::Transaction::new_unchecked(&store.conn, rusqlite::TransactionBehavior::Immediate);
    other.wait_at_most(std::time::Duration::ZERO).unwrap();
    let error = other.grow_slots(1).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    drop(begun);
    other.grow_slots(1).unwrap();
}

#[test]
fn a_decision_that_fails_leaves_the_slots_waiting() {
    let (_directory, mut store) = fresh();
    store.allocate(&[SlotId(3)], 100).unwrap();
    let failed = store.reserve(&request("a", "{}"), |_| Err::<Decision, _>(NoRails::Rails));
    assert!(matches!(failed, Err(ReserveError::Decide { .. })));
    assert_eq!(waiting(&store), [(3, 100)]);
}

#[test]
fn the_newest_sandbox_owns_a_slot_whatever_its_name_or_clock() {
    let (_directory, mut store) = fresh();
    let owner = |store: &Store| {
        let owner = store.slot_owner(SlotId(7)).unwrap();
        owner.map(|owner| owner.as_str().to_owned())
    };
    assert_eq!(owner(&store), None);
    bind(&mut store, "z", "web-0", &[6, 7]);
    bind(&mut store, "m", "web-1", &[7]);
    bind(&mut store, "a", "web-2", &[5]);
    assert_eq!(owner(&store), Some("m".into()));
    // The number of a binding that is gone does not come again.
    store.release(&sandbox("a")).unwrap();
    let last = bind(&mut store, "b", "web-3", &[7]);
    assert_eq!((last.sequence, owner(&store)), (4, Some("b".into())));
    store.release(&sandbox("b")).unwrap();
    store.release(&sandbox("m")).unwrap();
    assert_eq!(owner(&store), Some("z".into()));
}

#[test]
fn a_sandbox_has_a_slot_once() {
    let (_directory, mut store) = fresh();
    let node = Node::new(1, 32);
    let failed = store.reserve(&request("a", "{}"), |held| {
        let mut decision = node.choose(held, 2)?;
        decision
            .rails
            .iter_mut()
            .for_each(|rail| rail.slot = Some(SlotId(4)));
        Ok::<_, NoRails>(decision)
    });
    assert!(
        matches!(
            &failed,
            Err(ReserveError::Conflict {
                source: Conflict::SlotTwice { slot: SlotId(4) },
                ..
            })
        ),
        "{failed:?}"
    );
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn slots_and_pods_outlive_a_boot_and_the_number_of_slots_until_it_is_counted_anew() {
    let (directory, mut store) = fresh();
    let path = state_file(&directory);
    bind(&mut store, "a", "web-0", &[0, 1]);
    bind(&mut store, "b", "web-0", &[2]);
    store.allocate(&[SlotId(9)], 100).unwrap();
    assert_eq!(store.grow_slots(16).unwrap(), 16);
    assert_eq!(store.grow_slots(12).unwrap(), 16);
    assert_eq!(store.grow_slots(17).unwrap(), 17);
    store.put_topology("{}").unwrap();
    assert_eq!(store.topology().unwrap(), Some("{}".into()));
    drop(store);
    assert_eq!(Store::open_read_only(&path).unwrap().slots(), 17);
    let Opened {
        mut store, dropped, ..
    } = Store::open(&path, &boot(2)).unwrap();
    assert_eq!(dropped.len(), 2);
    // Those of the dropped sandboxes wait again: their pods come back with the same slots.
    let at = request("a", "{}").at;
    assert_eq!(waiting(&store), [(0, at), (1, at), (2, at), (9, 100)]);
    let known = KnownPod {
        pod: pod_ref("web-0"),
        since: 1_800_000_000,
    };
    assert_eq!(store.pods().unwrap(), [known]);
    assert_eq!(store.topology().unwrap(), None);
    // Whoever comes before the agent goes by what was told last.
    assert_eq!(Store::open_read_only(&path).unwrap().slots(), 17);
    assert_eq!(store.grow_slots(3).unwrap(), 3);
    assert_eq!(Store::open_read_only(&path).unwrap().slots(), 3);
    assert_eq!(store.grow_slots(2).unwrap(), 3);
}

#[test]
fn the_setup_comes_back_as_it_was_and_an_equal_one_is_not_written() {
    let (directory, mut store) = fresh();
    assert_eq!(store.setup().unwrap(), None);
    let mut setup = Setup {
        document: "{\"resource\":\"podrail.io/rail\"}".into(),
        root: "/host of ours".into(),
        node_addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
    };
    store.put_setup(&setup).unwrap();
    assert_eq!(store.setup().unwrap(), Some(setup.clone()));
    let log = state_file(&directory).with_file_name("state.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    let before = length();
    store.put_setup(&setup).unwrap();
    assert_eq!(length(), before, "an equal setup was written");
    setup.node_addresses.clear();
    store.put_setup(&setup).unwrap();
    assert!(length() > before);
    let looked = Store::open_read_only(&state_file(&directory)).unwrap();
    assert_eq!(looked.setup(), Some(&setup));
}
