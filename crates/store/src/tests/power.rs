//! Power loss between any two writes. Another process runs a script of transactions and is stopped
//! at each of its system calls; each time a file has changed, what would be on the disk is kept.
//! Every one of these states is opened: all that was committed is there, and nothing is half there.
//!
//! The file of shared memory is left out: after a power loss SQLite makes it anew.

use super::*;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use podrail_core::ids::SlotId;
use std::collections::BTreeMap as Map;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

const SCRIPT: &str = "PODRAIL_STORE_TEST_SCRIPT";

/// The files of a database that outlive a power loss.
const FILES: [&str; 2] = ["state.db", "state.db-wal"];

/// What is in the files, by name.
type Disk = Map<&'static str, Vec<u8>>;

/// All that a reader sees.
type Seen = (Vec<Binding>, Snapshot, Vec<SlotId>);

fn seen(store: &Store) -> Seen {
    (
        store.list().unwrap(),
        store.snapshot().unwrap(),
        store.waiting().unwrap().into_keys().collect(),
    )
}

/// The transactions, one after the other; the store is closed and opened again on the way, which
/// copies the log into the database.
fn run(path: &Path, mut after: impl FnMut(&Store)) {
    let node = Node::new(2, 64);
    let mut store = open(path);
    after(&store);
    for round in 0..3 {
        let name = format!("pod-{round}");
        store.allocate(&[SlotId(round)], 100).unwrap();
        after(&store);
        node.reserve(&mut store, &name, 5).unwrap();
        after(&store);
        store.mark_ready(&sandbox(&name)).unwrap();
        after(&store);
        if round == 1 {
            store.release(&sandbox("pod-0")).unwrap();
            after(&store);
            drop(store);
            store = open(path);
        }
    }
    store
        .conn
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    store.release(&sandbox("pod-1")).unwrap();
    after(&store);
}

/// Runs in a child only: says which thread it is, waits to be watched, and counts commits.
#[test]
fn scripted() {
    let Some(path) = told(SCRIPT) else { return };
    println!("thread {}", nix::unistd::gettid());
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let path = Path::new(&path);
    let count = path.with_file_name("count");
    let mut commits = 0_usize;
    run(path, |_| {
        commits += 1;
        fs::write(&count, commits.to_string()).unwrap();
    });
}

/// One state of the disk: at least so many transactions were reported as committed.
struct Point {
    disk: Disk,
    committed: usize,
}

/// Watches a child at its system calls.
struct Watch {
    tid: Pid,
    directory: PathBuf,
    /// What the last look saw.
    written: Disk,
    /// What was there when the file was flushed last: a power loss may take the rest.
    flushed: Disk,
    points: Vec<Point>,
}

impl Watch {
    fn committed(&self) -> usize {
        let text = fs::read_to_string(self.directory.join("count")).unwrap_or_default();
        text.parse().unwrap_or(0)
    }

    fn disk(&self) -> Disk {
        let read = |name| Some((name, fs::read(self.directory.join(name)).ok()?));
        FILES.into_iter().filter_map(read).collect()
    }

    /// To be called while the child stands still.
    fn look(&mut self) {
        let (disk, committed) = (self.disk(), self.committed());
        if disk != self.written {
            for torn in torn(&self.written, &disk) {
                self.points.push(Point {
                    disk: torn,
                    committed,
                });
            }
            self.points.push(Point {
                disk: disk.clone(),
                committed,
            });
            self.written = disk;
            // The kernel writes back in its own order: only one of the files may be up to date.
            for name in FILES {
                let mut mixed = self.flushed.clone();
                mixed.extend(self.written.get(name).map(|bytes| (name, bytes.clone())));
                self.points.push(Point {
                    disk: mixed,
                    committed,
                });
            }
        }
        if let Some(name) = self.flushing() {
            match self.written.get(name) {
                Some(bytes) => _ = self.flushed.insert(name, bytes.clone()),
                None => _ = self.flushed.remove(name),
            }
            self.points.push(Point {
                disk: self.flushed.clone(),
                committed,
            });
        }
    }

    /// The file that the child flushes at this moment, by what the kernel says of its system call.
    fn flushing(&self) -> Option<&'static str> {
        let call = fs::read_to_string(format!("/proc/{}/syscall", self.tid)).ok()?;
        let mut words = call.split(' ');
        let number: i64 = words.next()?.parse().ok()?;
        let flushes = [libc::SYS_fsync, libc::SYS_fdatasync];
        flushes.contains(&number).then_some(())?;
        let fd = i64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let file = fs::read_link(format!("/proc/{}/fd/{fd}", self.tid)).ok()?;
        FILES.into_iter().find(|name| file.ends_with(name))
    }

    /// Until the child's thread ends.
    fn all(&mut self) {
        loop {
            if ptrace::syscall(self.tid, None).is_err() {
                return;
            }
            match waitpid(self.tid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..)) => self.look(),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

/// Each file in turn with only the first half of what was written into it last.
fn torn(before: &Disk, after: &Disk) -> Vec<Disk> {
    let one = |name: &&'static str| {
        let (old, new) = (before.get(name), after.get(name)?);
        let old = old.map_or(&[][..], Vec::as_slice);
        let first = (0..new.len()).find(|at| old.get(*at) != new.get(*at))?;
        let last = (0..new.len()).rfind(|at| old.get(*at) != new.get(*at))?;
        let middle = usize::midpoint(first, last + 1);
        let mut half = old.to_vec();
        half.resize(half.len().max(middle), 0);
        half[first..middle].copy_from_slice(&new[first..middle]);
        let mut disk = before.clone();
        disk.insert(name, half);
        Some(disk)
    };
    FILES.iter().filter_map(one).collect()
}

/// Starts the child and takes hold of the thread that will run the script; none if that is not
/// allowed here.
fn start(path: &Path) -> Option<(Child, Pid)> {
    let mut child = child("tests::power::scripted")
        .env(SCRIPT, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The name of the test may stand before it.
    let tid = lines.find_map(|line| line.unwrap().split_once("thread ")?.1.parse().ok());
    let tid = Pid::from_raw(tid.unwrap());
    std::thread::spawn(move || lines.for_each(drop));
    if let Err(errno) = ptrace::attach(tid) {
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(std::env::var_os("CI").is_none(), "ptrace: {errno}");
        println!("skipped: processes may not be traced here: {errno}");
        return None;
    }
    waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    Some((child, tid))
}

fn put(disk: &Disk, path: &Path) {
    for name in ["state.db-shm", "state.db-wal", "state.db"] {
        let _ = fs::remove_file(path.with_file_name(name));
    }
    for (name, bytes) in disk {
        fs::write(path.with_file_name(name), bytes).unwrap();
    }
}

#[test]
fn power_may_fail_between_any_two_writes() {
    // Everything that a reader may see, in order; before the first there is nothing.
    let directory = tempfile::tempdir().unwrap();
    let mut states = vec![(vec![], Snapshot::default(), vec![])];
    run(&state_file(&directory), |store| states.push(seen(store)));

    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let Some((mut child, tid)) = start(&path) else {
        return;
    };
    let mut watch = Watch {
        tid,
        directory: path.parent().unwrap().to_owned(),
        written: Disk::new(),
        flushed: Disk::new(),
        points: vec![],
    };
    watch.all();
    assert!(child.wait().unwrap().success());
    assert_eq!(watch.committed(), states.len() - 1);
    assert!(watch.points.len() > 200, "{} points", watch.points.len());
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (number, Point { disk, committed }) in watch.points.iter().enumerate() {
        put(disk, &path);
        let sizes: Vec<_> = disk
            .iter()
            .map(|(name, bytes)| (name, bytes.len()))
            .collect();
        let at = format!("point {number}, {committed} committed, {sizes:?}");
        let opened = Store::open(&path, &boot(1)).unwrap_or_else(|error| panic!("{at}: {error:?}"));
        let found = seen(&opened.store);
        let known = states.iter().rposition(|state| *state == found);
        let known = known.unwrap_or_else(|| panic!("{at}: half of a transaction: {found:?}"));
        assert!(known >= *committed, "{at}: only {known} are there");
        assert!(known <= committed + 1, "{at}: {known} are there");
        drop(opened);
        assert!(Store::inspect(&path).unwrap().is_some(), "{at}");
    }
    println!("{} states of the disk", watch.points.len());
}
