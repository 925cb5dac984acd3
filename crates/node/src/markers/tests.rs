//! Markers on a real directory, and with a store beside them.

use super::*;
use crate::testing;
use std::os::unix::fs::{MetadataExt, symlink};

fn uid(text: &str) -> PodUid {
    PodUid::parse(text).unwrap()
}

fn fresh() -> (tempfile::TempDir, Markers) {
    let dir = tempfile::tempdir().unwrap();
    let markers = Markers::at(dir.path());
    (dir, markers)
}

fn store(dir: &tempfile::TempDir) -> Store {
    testing::store(dir.path())
}

#[test]
fn nobody_wants_rails_before_a_slot_was_allocated() {
    let (dir, markers) = fresh();
    assert!(!markers.wants_rails(Some(&uid("a"))).unwrap());
    assert!(!markers.wants_rails(None).unwrap());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "asking made something"
    );
}

#[test]
fn a_slot_that_waits_makes_every_pod_a_candidate_and_a_known_pod_only_itself() {
    let (_dir, markers) = fresh();
    markers.mark_pod(&uid("a")).unwrap();
    markers.mark_pod(&uid("a")).unwrap();
    assert!(markers.wants_rails(Some(&uid("a"))).unwrap());
    assert!(!markers.wants_rails(Some(&uid("b"))).unwrap());
    assert!(markers.wants_rails(None).unwrap(), "it may be pod a");
    markers.mark_waiting(&[SlotId(7), SlotId(100)]).unwrap();
    assert!(markers.wants_rails(Some(&uid("b"))).unwrap());
    markers
        .clear_waiting(&[SlotId(7), SlotId(8), SlotId(100)])
        .unwrap();
    assert!(!markers.wants_rails(Some(&uid("b"))).unwrap());
    markers.clear_pod(&uid("a")).unwrap();
    markers.clear_pod(&uid("a")).unwrap();
    assert!(!markers.wants_rails(Some(&uid("a"))).unwrap());
}

#[test]
fn markers_are_for_the_owner_only_and_listed_without_what_is_none() {
    let (dir, markers) = fresh();
    markers.mark_waiting(&[SlotId(7), SlotId(1)]).unwrap();
    markers.mark_pod(&uid("a-1")).unwrap();
    fs::write(dir.path().join("waiting/slot-7"), "").unwrap();
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("waiting"), mode("waiting/slot-07")), (0o700, 0o600));
    assert_eq!((mode("pods"), mode("pods/a-1")), (0o700, 0o600));
    assert_eq!(
        markers.waiting().unwrap(),
        BTreeSet::from([SlotId(1), SlotId(7)])
    );
    assert_eq!(markers.pods().unwrap(), BTreeSet::from([uid("a-1")]));
}

#[test]
fn a_link_in_place_of_a_marker_is_not_followed() {
    let (dir, markers) = fresh();
    markers.mark_waiting(&[SlotId(1)]).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    symlink(&elsewhere, dir.path().join("waiting/slot-02")).unwrap();
    let error = markers.mark_waiting(&[SlotId(2)]).unwrap_err();
    assert!(error.to_string().ends_with("waiting/slot-02"), "{error}");
    assert!(!elsewhere.exists());
}

#[test]
fn a_directory_that_cannot_be_looked_at_is_no_no() {
    let (dir, markers) = fresh();
    fs::write(dir.path().join("waiting"), "no directory").unwrap();
    assert!(markers.wants_rails(Some(&uid("a"))).is_err());
}

#[test]
fn settling_keeps_the_marker_of_a_slot_that_waits() {
    let (dir, markers) = fresh();
    let mut store = store(&dir);
    allocate(&mut store, &markers, &[SlotId(1), SlotId(2)], 100).unwrap();
    store.forget_waiting(&[SlotId(2)]).unwrap();
    settle(&store, &markers, &[SlotId(1), SlotId(2)]).unwrap();
    assert_eq!(markers.waiting().unwrap(), BTreeSet::from([SlotId(1)]));
}

/// Allocation and binding of one slot at once, again and again: never a row without a marker.
#[test]
fn a_slot_that_waits_is_marked_whoever_comes_last() {
    let (dir, markers) = fresh();
    let (mut kubelet, mut pod) = (store(&dir), store(&dir));
    for _ in 0..50 {
        std::thread::scope(|scope| {
            scope.spawn(|| allocate(&mut kubelet, &markers, &[SlotId(1)], 100).unwrap());
            scope.spawn(|| {
                pod.forget_waiting(&[SlotId(1)]).unwrap();
                settle(&pod, &markers, &[SlotId(1)]).unwrap();
            });
        });
        let waits = pod.waiting().unwrap().contains_key(&SlotId(1));
        assert!(!waits || markers.waiting().unwrap().contains(&SlotId(1)));
    }
}

/// Killed between the row and its mark, or made by a new boot: rows without marks; and the other
/// way round.
#[test]
fn a_repair_marks_what_waits_and_is_known_and_unmarks_what_does_not_wait() {
    let (dir, markers) = fresh();
    let mut store = store(&dir);
    testing::reserve(&mut store, "a", &[5]).unwrap();
    store.allocate(&[SlotId(1), SlotId(2)], 100).unwrap();
    markers.mark_waiting(&[SlotId(2), SlotId(3)]).unwrap();
    markers.mark_pod(&uid("other")).unwrap();
    for _ in 0..2 {
        repair(&store, &markers).unwrap();
        let waiting = markers.waiting().unwrap();
        assert_eq!(waiting, BTreeSet::from([SlotId(1), SlotId(2)]));
        // A pod that is only marked may be one whose sandbox is being bound.
        let pods = BTreeSet::from([testing::pod("a").uid, uid("other")]);
        assert_eq!(markers.pods().unwrap(), pods);
    }
}

#[test]
fn a_pod_that_was_bound_meanwhile_is_not_forgotten() {
    let (dir, markers) = fresh();
    let mut store = store(&dir);
    let uid = testing::pod("a").uid;
    markers.mark_pod(&uid).unwrap();
    testing::reserve(&mut store, "a", &[5]).unwrap();
    for since in [0, 100] {
        assert!(!forget_pod(&mut store, &markers, &uid, since).unwrap());
        assert!(markers.knows(Some(&uid)).unwrap());
    }
    store.release(&testing::sandbox("a")).unwrap();
    assert!(forget_pod(&mut store, &markers, &uid, 100).unwrap());
    assert!(!markers.knows(Some(&uid)).unwrap());
    // Only marked: its sandbox was refused.
    markers.mark_pod(&uid).unwrap();
    assert!(forget_pod(&mut store, &markers, &uid, 0).unwrap());
    assert!(!markers.knows(Some(&uid)).unwrap());
}

/// Forgetting and binding of one pod at once, again and again: never a binding without a marker.
#[test]
fn a_pod_that_holds_rails_is_marked_whoever_comes_last() {
    let (dir, markers) = fresh();
    let (mut agent, mut pod) = (store(&dir), store(&dir));
    let uid = testing::pod("a").uid;
    for _ in 0..50 {
        markers.mark_pod(&uid).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| forget_pod(&mut agent, &markers, &uid, 0).unwrap());
            scope.spawn(|| {
                testing::reserve(&mut pod, "a", &[5]).unwrap();
                markers.mark_pod(&uid).unwrap();
            });
        });
        assert!(markers.knows(Some(&uid)).unwrap());
        pod.release(&testing::sandbox("a")).unwrap();
        assert!(pod.forget_pod(&uid, 100).unwrap());
    }
}
