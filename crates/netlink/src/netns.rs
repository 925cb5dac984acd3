//! Network namespaces: opening one, telling it from other files, running code inside.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Identity of a namespace: two handles with the same id are the same namespace.
///
/// Numbers of the kernel's `nsfs`; the inode is reused after the namespace is gone, so an id is
/// good only while a handle is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetNsId {
    /// Device number of `nsfs`.
    pub device: u64,
    /// Inode: the number in `net:[4026531840]`.
    pub inode: u64,
}

impl fmt::Display for NetNsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}]", self.inode)
    }
}

/// Why a namespace cannot be had. Each names the path.
#[derive(Debug, thiserror::Error)]
pub enum NetNsError {
    /// Nothing is at the path: the sandbox is gone. Success for whoever tears down.
    #[error("network namespace {path}: does not exist")]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// A plain file, a directory, or a namespace of another type is at the path. A plain file is
    /// what `ip netns` and the runtimes leave when the bind mount is gone (after a reboot, say).
    #[error("network namespace {path}: there is something else at this path")]
    NotANetNs {
        /// The path as given.
        path: PathBuf,
    },
    /// It is there and may not be opened or entered (`CAP_SYS_ADMIN` is needed).
    #[error("network namespace {path}: not permitted")]
    Permission {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Anything else.
    #[error("network namespace {path}: cannot {step}")]
    Io {
        /// The path as given.
        path: PathBuf,
        /// `open it`, `enter it`, `start a thread`.
        step: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A handle on a network namespace. The namespace lives at least as long as the handle.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
    id: NetNsId,
}

impl NetNs {
    /// Opens the namespace at a path (`/run/netns/x`, `/proc/123/ns/net`).
    ///
    /// The type is proved by entering it in a thread of its own, since `setns` compares the type
    /// before anything else (`kernel/nsproxy.c`) and there is no other way without `unsafe`.
    ///
    /// # Errors
    /// See [`NetNsError`]; each case of it can come from here.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, NetNsError> {
        let namespace = Self::open_unproved(path.into())?;
        namespace.run(|| ())?;
        Ok(namespace)
    }

    /// The namespace of the calling thread. Needs no privilege.
    ///
    /// # Errors
    /// [`NetNsError::Missing`] without `/proc`.
    pub fn current() -> Result<Self, NetNsError> {
        Self::open_unproved(PathBuf::from("/proc/thread-self/ns/net"))
    }

    /// Identity, to compare with another handle: a caller can refuse the host's own namespace.
    #[must_use]
    pub fn id(&self) -> NetNsId {
        self.id
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` inside the namespace, in a thread that ends with it.
    ///
    /// `setns` moves that thread only; the caller's stays where it is. In there
    /// `/proc/sys/net` is the namespace's (`net/sysctl_net.c` looks at the current thread), while
    /// `/proc/net` is a link to `/proc/self/net` and so the **process's**: use
    /// `/proc/thread-self/net`. A panic of `work` goes on in the caller.
    ///
    /// # Errors
    /// [`NetNsError`] if the thread cannot start or cannot enter; `work` has not run then.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetNsError> {
        thread::scope(|scope| {
            thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || self.enter().map(|()| work()))
                .map_err(|source| self.io("start a thread", source))?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn enter(&self) -> Result<(), NetNsError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EINVAL => NetNsError::NotANetNs {
                path: self.path.clone(),
            },
            _ => from_io(&self.path, "enter it", errno.into()),
        })
    }

    /// Non-blocking: a FIFO at the path must not hold us.
    fn open_unproved(path: PathBuf) -> Result<Self, NetNsError> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits())
            .open(&path)
            .map_err(|source| from_io(&path, "open it", source))?;
        let filesystem = fstatfs(&file).map_err(|errno| from_io(&path, "open it", errno.into()))?;
        if filesystem.filesystem_type() != NSFS_MAGIC {
            return Err(NetNsError::NotANetNs { path });
        }
        let facts = file
            .metadata()
            .map_err(|source| from_io(&path, "open it", source))?;
        let id = NetNsId {
            device: facts.dev(),
            inode: facts.ino(),
        };
        Ok(Self { file, path, id })
    }

    fn io(&self, step: &'static str, source: io::Error) -> NetNsError {
        from_io(&self.path, step, source)
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A path component that is no directory counts as "nothing there"; an unopenable device or
/// socket (`ENXIO`) as "something else".
fn from_io(path: &Path, step: &'static str, source: io::Error) -> NetNsError {
    let path = path.to_owned();
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => NetNsError::Missing { path },
        Some(Errno::ENXIO) => NetNsError::NotANetNs { path },
        Some(Errno::EPERM | Errno::EACCES) => NetNsError::Permission { path, source },
        _ => NetNsError::Io { path, step, source },
    }
}
