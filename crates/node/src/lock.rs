//! Locks beside the state file: one sandbox at a time, and one in a network namespace.

use crate::clock::Deadline;
use crate::error::NodeError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use podrail_core::ids::SandboxId;
use podrail_core::plan::link_group;
use podrail_store::{NetnsId, Store, StoreError};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Whom the lock of all sandboxes is for, in messages.
const EVERYBODY: &str = "(all of them)";

/// How many lock files there are.
const LOCKS: u32 = 64;

/// Pauses between two attempts: short at first, since most holders are done in milliseconds.
const PAUSES: [u64; 5] = [1, 2, 5, 10, 25];

/// Holds off other processes that attach or detach the same sandbox. The kernel gives the lock back
/// when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    sandbox: SandboxId,
    deadline: Deadline,
    _file: Flock<File>,
    /// One byte for each network namespace.
    namespaces: File,
}

impl Lock {
    /// Waits for the lock of a sandbox: one of a fixed number of files beside the state file, so
    /// that they do not pile up. Two sandboxes may share one and then wait for each other.
    ///
    /// # Errors
    /// The state file cannot be where it is to be, so nothing is made there; the lock's file cannot
    /// be made or locked; [`NodeError::Busy`] when the deadline has passed.
    pub(crate) fn take(
        state: &Path,
        sandbox: &SandboxId,
        deadline: Deadline,
    ) -> Result<Self, NodeError> {
        let failed = |source| lock_error(state, sandbox, source);
        let dir = Store::directory(state)?.join("locks");
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&dir).map_err(failed)?;
        let file = open(&dir.join((link_group(sandbox) % LOCKS).to_string())).map_err(failed)?;
        let namespaces = open(&dir.join("namespaces")).map_err(failed)?;
        let mut locked = match flock(file, deadline).map_err(failed)? {
            Ok(locked) => locked,
            Err(mut file) => {
                let holder = said(&mut file).unwrap_or_default();
                return Err(busy(sandbox, "its lock", holder));
            }
        };
        // Only for whoever waits too long.
        let _ = say(&mut locked, sandbox);
        Ok(Self {
            sandbox: sandbox.clone(),
            deadline,
            _file: locked,
            namespaces,
        })
    }

    /// Waits until no other sandbox is being attached to or detached from a namespace: both would
    /// take the same interface indexes, or set `rp_filter` back under the other. Always after the
    /// sandbox's own lock, so that nobody waits in a circle; given back with it.
    ///
    /// # Errors
    /// The kernel refuses the lock; [`NodeError::Busy`] when the deadline has passed.
    pub(crate) fn with_namespace(&self, netns: NetnsId) -> Result<(), NodeError> {
        let byte = nix::libc::flock {
            l_type: nix::libc::F_WRLCK as i16,
            l_whence: nix::libc::SEEK_SET as i16,
            l_start: netns.ino.cast_signed().max(0),
            l_len: 1,
            l_pid: 0,
        };
        let locked = wait(self.deadline, || {
            match fcntl(&self.namespaces, FcntlArg::F_OFD_SETLK(&byte)) {
                Ok(_) => Ok(Some(())),
                Err(Errno::EAGAIN | Errno::EACCES | Errno::EINTR) => Ok(None),
                Err(errno) => Err(NodeError::Lock {
                    sandbox: self.sandbox.to_string(),
                    source: errno.into(),
                }),
            }
        })?;
        locked.ok_or_else(|| busy(&self.sandbox, "its network namespace", String::new()))
    }

    /// Until when whoever has this lock may wait for others.
    #[must_use]
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }
}

/// Holds off every process that attaches or detaches, whatever the sandbox. Those that have a lock
/// of one sandbox never wait for another one, so nobody waits in a circle.
///
/// # Errors
/// As of [`Lock::take`].
pub(crate) fn hold_all(state: &Path, deadline: Deadline) -> Result<Vec<Flock<File>>, NodeError> {
    let dir = Store::directory(state)?.join("locks");
    let everybody = |source| NodeError::Lock {
        sandbox: EVERYBODY.into(),
        source,
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&dir).map_err(everybody)?;
    let one = |number: u32| {
        let file = open(&dir.join(number.to_string())).map_err(everybody)?;
        match flock(file, deadline).map_err(everybody)? {
            Ok(locked) => Ok(locked),
            Err(mut file) => Err(NodeError::Busy {
                sandbox: EVERYBODY.into(),
                what: "the lock",
                holder: said(&mut file).unwrap_or_default(),
            }),
        }
    };
    (0..LOCKS).map(one).collect()
}

/// Waits for a lock; the file if the deadline has passed.
fn flock(file: File, deadline: Deadline) -> io::Result<Result<Flock<File>, File>> {
    let mut file = Some(file);
    let locked = wait(deadline, || {
        let Some(unlocked) = file.take() else {
            return Ok(None);
        };
        match Flock::lock(unlocked, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => Ok(Some(locked)),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => {
                file = Some(back);
                Ok(None)
            }
            Err((_, errno)) => Err(io::Error::from(errno)),
        }
    })?;
    match (locked, file) {
        (Some(locked), _) => Ok(Ok(locked)),
        (None, Some(file)) => Ok(Err(file)),
        (None, None) => Err(Errno::EWOULDBLOCK.into()),
    }
}

/// Tries until it works or the deadline has passed, once at least. The kernel's own waiting knows
/// no deadline.
fn wait<T, E>(
    deadline: Deadline,
    mut attempt: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let longest = PAUSES.last().copied();
    for pause in PAUSES
        .into_iter()
        .chain(std::iter::repeat_with(|| longest.unwrap_or(1)))
    {
        if let Some(got) = attempt()? {
            return Ok(Some(got));
        }
        if deadline.left().is_zero() {
            break;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the kernel tells nobody that a lock is free"
        )]
        std::thread::sleep(Duration::from_millis(pause).min(deadline.left()));
    }
    Ok(None)
}

fn lock_error(state: &Path, sandbox: &SandboxId, source: io::Error) -> NodeError {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => NodeError::Store(StoreError::ReadOnly {
            path: state.to_owned(),
            source: None,
        }),
        _ => NodeError::Lock {
            sandbox: sandbox.to_string(),
            source,
        },
    }
}

fn busy(sandbox: &SandboxId, what: &'static str, holder: String) -> NodeError {
    NodeError::Busy {
        sandbox: sandbox.to_string(),
        what,
        holder,
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC);
    options.open(path)
}

/// Leaves word who has the lock.
fn say(file: &mut File, sandbox: &SandboxId) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {} for sandbox {sandbox}", std::process::id())
}

/// What the last one to get the lock has left.
fn said(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(256).read_to_string(&mut text)?;
    Ok(text.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn id(text: &str) -> SandboxId {
        SandboxId::parse(text).unwrap()
    }

    #[test]
    fn one_sandbox_at_a_time_works_in_a_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state.db");
        let take = |name: &str| Lock::take(&state, &id(name), Deadline::default()).unwrap();
        let netns = |ino| NetnsId { dev: 4, ino };
        let first = take("a");
        first.with_namespace(netns(4_026_532_001)).unwrap();
        let (say, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let second = take("b");
                second.with_namespace(netns(4_026_532_002)).unwrap();
                say.send("other").unwrap();
                second.with_namespace(netns(4_026_532_001)).unwrap();
                say.send("same").unwrap();
            });
            assert_eq!(hear.recv_timeout(Duration::from_secs(60)), Ok("other"));
            assert!(hear.recv_timeout(Duration::from_millis(200)).is_err());
            drop(first);
            assert_eq!(hear.recv_timeout(Duration::from_secs(60)), Ok("same"));
        });
    }

    #[test]
    fn whoever_waits_too_long_is_told_for_whom() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state.db");
        let first = Lock::take(&state, &id("a"), Deadline::default()).unwrap();
        let soon = Deadline::within(Duration::from_millis(20));
        let error = Lock::take(&state, &id("a"), soon).unwrap_err();
        assert!(error.retryable());
        let expected = format!(
            "sandbox a waited too long for its lock, which process {} for sandbox a has",
            std::process::id()
        );
        assert_eq!(error.to_string(), expected);
        drop(first);
        Lock::take(&state, &id("a"), soon).unwrap();
    }
}
