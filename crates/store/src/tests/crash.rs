//! kill -9 (case 9): wherever it strikes, all 16 rails are there afterwards or none.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

const STEP: &str = "PODRAIL_STORE_TEST_STEP";
const LOOP: &str = "PODRAIL_STORE_TEST_LOOP";

/// Every how many instructions of SQLite's machine a process is killed.
const STRIDE: u32 = 17;

fn killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::SIGKILL as i32)
}

/// Two of them use all 32 addresses of each family.
fn node() -> Node {
    Node::new(2, 32)
}

/// Every address was leased once: it is in use or was freed, never both and never neither.
fn assert_nothing_lost(store: &Store) {
    let Snapshot { used, freed, .. } = store.snapshot().unwrap();
    let all: std::collections::BTreeSet<_> = used.iter().chain(&freed).collect();
    assert_eq!((all.len(), used.len() + freed.len()), (2 * 32, 2 * 32));
}

/// Kills a child after ever more instructions of `act`, until one lives; checks after each.
fn kill_everywhere(act: &str, before: usize, after: usize) {
    let node = node();
    let mut points = 0;
    for point in (1..).step_by(STRIDE as usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = state_file(&directory);
        node.reserve(&mut open(&path), "other", 16).unwrap();
        node.reserve(&mut open(&path), "earlier", 16).unwrap();
        open(&path).release(&sandbox("earlier")).unwrap();
        if before > 0 {
            node.reserve(&mut open(&path), "pod", before).unwrap();
        }
        let told = format!("{point} {act} {}", path.display());
        let output = child("tests::crash::one_step")
            .env(STEP, told)
            .output()
            .unwrap();
        let mut store = open(&path);
        assert_sound(&store.list().unwrap());
        assert_nothing_lost(&store);
        let found = store
            .get(&sandbox("pod"))
            .unwrap()
            .map_or(0, |pod| pod.rails.len());
        if !killed(output.status) {
            assert!(output.status.success(), "{output:?}");
            assert_eq!(found, after);
            break;
        }
        points += 1;
        assert!(
            found == before || found == after,
            "{found} rails after {point} instructions"
        );
        // The next ADD or DEL finishes the work.
        node.reserve(&mut store, "pod", 16).unwrap();
        assert!(matches!(
            store.release(&sandbox("pod")),
            Ok(Released::Freed(_))
        ));
        assert_eq!(store.list().unwrap().len(), 1);
        assert_nothing_lost(&store);
    }
    println!("{act}: killed at {points} points");
    assert!(points > 10, "killed at {points} points only");
}

#[test]
fn killed_while_reserving() {
    kill_everywhere("reserve", 0, 16);
}

#[test]
fn killed_while_releasing() {
    kill_everywhere("release", 16, 0);
}

/// Runs in a child only: kills itself in the middle.
#[test]
fn one_step() {
    let Some(told) = told(STEP) else { return };
    let mut words = told.splitn(3, ' ');
    let point: u32 = words.next().unwrap().parse().unwrap();
    let act = words.next().unwrap();
    let mut store = open(Path::new(words.next().unwrap()));
    let mut count = 0;
    let strike = move || {
        count += 1;
        if count == point {
            kill(Pid::this(), Signal::SIGKILL).unwrap();
        }
        false
    };
    store.conn.progress_handler(1, Some(strike)).unwrap();
    match act {
        "reserve" => drop(node().reserve(&mut store, "pod", 16).unwrap()),
        _ => drop(store.release(&sandbox("pod")).unwrap()),
    }
}

/// Kills at moments that nobody chose: in system calls, at the commit, while opening or closing.
#[test]
fn killed_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    for round in 0..40 {
        let mut worker = child("tests::crash::many_steps")
            .env(LOOP, path.display().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(worker.stdout.take().unwrap()).lines();
        // A varying number of transactions, then at once.
        let seen = lines.take(4 + round % 7).filter(Result::is_ok).count();
        assert!(seen > 2, "the worker ended by itself");
        worker.kill().unwrap();
        assert!(killed(worker.wait().unwrap()));
        let mut store = open(&path);
        let bindings = store.list().unwrap();
        assert_sound(&bindings);
        for binding in bindings {
            assert_eq!(binding.rails.len(), 16);
            store.release(&binding.request.sandbox).unwrap();
        }
        assert!(store.snapshot().unwrap().used.is_empty());
    }
}

/// Runs in a child only: opens, reserves, releases and closes until it is killed.
#[test]
fn many_steps() {
    let Some(path) = told(LOOP) else { return };
    let node = Node::new(1, 64);
    for round in 0.. {
        let mut store = open(Path::new(&path));
        let name = format!("pod-{round}");
        node.reserve(&mut store, &name, 16).unwrap();
        println!("reserved");
        store.mark_ready(&sandbox(&name)).unwrap();
        store.release(&sandbox(&name)).unwrap();
        println!("released");
    }
}
