//! Many connections at once: threads of one process, and 150 processes.

use super::*;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const TELL: &str = "PODRAIL_STORE_TEST_ADD";

#[test]
fn two_threads_never_hold_the_same_rail() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let held: Vec<AtomicBool> = (0..16).map(|_| AtomicBool::new(false)).collect();
    let won = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (path, held) = (&path, &held);
                scope.spawn(move || take_and_give(path, held, thread))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    assert!(won > 0);
    assert_eq!(open(&path).list().unwrap(), []);
}

/// Takes 10 of 16 rails many times; says how often it got them.
fn take_and_give(path: &Path, held: &[AtomicBool], thread: usize) -> usize {
    let node = Node::new(1, 32);
    let mut store = open(path);
    let mut won = 0;
    for round in 0..60 {
        let name = format!("pod-{thread}-{round}");
        let Ok(reserved) = node.reserve(&mut store, &name, 10) else {
            continue;
        };
        won += 1;
        for rail in &reserved.binding().rails {
            let before = held[usize::from(rail.index.0)].swap(true, Ordering::SeqCst);
            assert!(!before, "rail {} has two holders", rail.index);
        }
        for rail in &reserved.binding().rails {
            held[usize::from(rail.index.0)].store(false, Ordering::SeqCst);
        }
        store.release(&sandbox(&name)).unwrap();
    }
    won
}

/// Case 12: 150 ADDs at once, on a node that has no state file yet.
#[test]
fn a_hundred_and_fifty_processes_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let start = Instant::now();
    let children: Vec<_> = (0..150)
        .map(|pod| {
            child("tests::parallel::one_add")
                .env(TELL, format!("{pod} {}", path.display()))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for one in children {
        let output = one.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    println!("150 processes took {:?}", start.elapsed());
    let bindings = open(&path).list().unwrap();
    assert_sound(&bindings);
    assert_eq!(bindings.len(), 150);
    assert!(bindings.iter().all(|binding| binding.state == State::Ready));
}

/// Runs in a child only.
#[test]
fn one_add() {
    let Some(told) = told(TELL) else { return };
    let (pod, path) = told.split_once(' ').unwrap();
    let mut store = open(Path::new(path));
    let name = format!("pod-{pod}");
    Node::new(150, 600).reserve(&mut store, &name, 2).unwrap();
    store.mark_ready(&sandbox(&name)).unwrap();
}
