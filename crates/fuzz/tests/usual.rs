//! The fuzz targets of the usual run: the committed corpus, a fixed number of changes of each part
//! of it, and inputs that are too large to be committed. Time and memory of each are bounded.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "tests may")]

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use peak_alloc::PeakAlloc;
use podrail_fuzz::{TARGETS, Target, mutate};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Memory and time of the process are measured: one target at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Most memory for one input, in bytes: what every parser here needs for a million small things.
const MOST_MEMORY: usize = 256 << 20;
/// Most time of the processor for one input; a machine under load counts less of it, not more.
const MOST_TIME: Duration = Duration::from_secs(3);
/// An input that does not come back.
const HANGS: Duration = Duration::from_secs(60);

/// A target's name, and where the input that is under way stands if the process dies with it.
struct Run {
    target: Target,
    kept: PathBuf,
    under_way: Sender<String>,
}

impl Run {
    fn all(self) {
        let corpus = corpus(self.target.name);
        assert!(corpus.len() > 2, "no corpus of {}", self.target.name);
        for (name, bytes) in &corpus {
            self.one(name, bytes);
        }
        for nasty in (self.target.nasty)() {
            self.one(nasty.name, &nasty.bytes);
        }
        let mut rng = fastrand::Rng::with_seed(7);
        for number in 0..self.target.changes {
            let (name, base) = &corpus[number % corpus.len()];
            let (_, other) = &corpus[rng.usize(0..corpus.len())];
            let bytes = mutate::change(&mut rng, base, other);
            self.one(&format!("change {number} of {name}"), &bytes);
        }
    }

    fn one(&self, name: &str, bytes: &[u8]) {
        _ = self.under_way.send(name.to_owned());
        fs::write(&self.kept, bytes).expect("a file for the input");
        MEMORY.reset_peak_usage();
        let (memory, time) = (MEMORY.current_usage(), used());
        (self.target.run)(bytes);
        let (memory, time) = (
            MEMORY.peak_usage() - memory.min(MEMORY.peak_usage()),
            used() - time,
        );
        assert!(memory <= MOST_MEMORY, "{name}: {} MiB", memory >> 20);
        assert!(time <= MOST_TIME, "{name}: {time:?} of the processor");
    }
}

fn used() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel tells");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = fs::read_dir(dir.join(target)).expect("a corpus");
    let read = |entry: fs::DirEntry| {
        let bytes = fs::read(entry.path()).expect("a readable input");
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    };
    let mut inputs: Vec<_> = entries
        .map(|entry| read(entry.expect("an entry")))
        .collect();
    inputs.sort();
    inputs
}

/// Runs a target in a thread with the stack of a thread, and watches it.
fn target(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let target = TARGETS.iter().find(|target| target.name == name);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
    let (under_way, watched) = channel();
    let run = Run {
        target: *target.expect("a target of the table"),
        kept: kept.clone(),
        under_way,
    };
    eprintln!("the input under way is kept in {}", kept.display());
    let worker = thread::spawn(move || run.all());
    let last = watch(&watched);
    let kept = kept.display();
    assert!(
        worker.join().is_ok(),
        "{name}: {last}: the input is in {kept}"
    );
}

/// The name of the last input, once the worker has ended.
fn watch(watched: &Receiver<String>) -> String {
    let mut last = String::new();
    loop {
        match watched.recv_timeout(HANGS) {
            Ok(name) => last = name,
            Err(RecvTimeoutError::Disconnected) => return last,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("{last} has not come back after {HANGS:?}");
                std::process::abort();
            }
        }
    }
}

#[test]
fn every_target_has_a_test_a_program_and_a_corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let tests = include_str!("usual.rs");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the manifest");
    for target in TARGETS {
        let name = target.name;
        assert!(tests.contains(&format!("\nfn {name}() {{")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let program = root.join(format!("fuzz_targets/{name}.rs"));
        let program = fs::read_to_string(program).expect("a program");
        assert!(program.contains(&format!("run({name:?}, ")), "{name}");
    }
}

#[test]
fn cni_stdin() {
    target("cni_stdin");
}

#[test]
fn cni_prev_result() {
    target("cni_prev_result");
}

#[test]
fn cni_environment() {
    target("cni_environment");
}

#[test]
fn networks() {
    target("networks");
}

#[test]
fn config() {
    target("config");
}

#[test]
fn state() {
    target("state");
}

#[test]
fn tree() {
    target("tree");
}

#[test]
fn dump() {
    target("dump");
}

#[test]
fn checkpoint() {
    target("checkpoint");
}

#[test]
fn pod_resources() {
    target("pod_resources");
}
