//! One sandbox: its lock, its binding, its attachment in the state file.

use crate::failure::Failure;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use podrail_core::attachment::{Attachment, Held};
use podrail_core::binding::Bound;
use podrail_core::ids::SandboxId;
use podrail_core::ipam::PoolName;
use podrail_core::plan::link_group;
use podrail_core::topology::Topology;
use podrail_netlink::NetNs;
use podrail_store::{Binding, NetnsId, Snapshot, State, Store, StoreError};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many lock files there are.
const LOCKS: u32 = 64;

/// Holds off other processes that attach or detach the same sandbox. The kernel gives the lock back
/// when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    sandbox: String,
    _file: Flock<File>,
    /// One byte for each network namespace.
    namespaces: File,
}

impl Lock {
    /// Waits for the lock of a sandbox: one of a fixed number of files beside the state file, so
    /// that they do not pile up. Two sandboxes may share one and then wait for each other.
    ///
    /// # Errors
    /// The state file cannot be where it is to be, so nothing is made there; or the lock's file
    /// cannot be made or locked.
    pub fn take(state: &Path, sandbox: &SandboxId) -> Result<Self, Failure> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Failure::Store(StoreError::ReadOnly {
                path: state.to_owned(),
                source: None,
            }),
            _ => Failure::Lock {
                sandbox: sandbox.to_string(),
                source,
            },
        };
        let dir = Store::directory(state)?.join("locks");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(failed)?;
        let open = |name: &str| {
            OpenOptions::new()
                .write(true)
                .create(true)
                .mode(0o600)
                .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
                .open(dir.join(name))
                .map_err(failed)
        };
        let file = open(&(link_group(sandbox) % LOCKS).to_string())?;
        let namespaces = open("namespaces")?;
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(file) => Ok(Self {
                sandbox: sandbox.to_string(),
                _file: file,
                namespaces,
            }),
            Err((_, errno)) => Err(failed(io::Error::from(errno))),
        }
    }

    /// Waits until no other sandbox is being attached to or detached from a namespace: both would
    /// take the same interface indexes, or set `rp_filter` back under the other. Always after the
    /// sandbox's own lock, so that nobody waits in a circle; given back with it.
    ///
    /// # Errors
    /// The kernel refuses the lock.
    pub fn with_namespace(&self, netns: NetnsId) -> Result<(), Failure> {
        let byte = nix::libc::flock {
            l_type: nix::libc::F_WRLCK as i16,
            l_whence: nix::libc::SEEK_SET as i16,
            l_start: netns.ino.cast_signed().max(0),
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(&self.namespaces, FcntlArg::F_OFD_SETLKW(&byte)) {
            Ok(_) => Ok(()),
            Err(errno) => Err(Failure::Lock {
                sandbox: self.sandbox.clone(),
                source: errno.into(),
            }),
        }
    }
}

/// A sandbox as it is printed.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// Its id.
    pub sandbox: SandboxId,
    /// `pending` or `ready`.
    pub state: String,
    /// Path of its network namespace.
    pub netns: PathBuf,
    /// How many rails share a root complex with the GPU that they serve.
    pub near: usize,
    /// Device files that the sandbox needs.
    pub devices: Vec<String>,
    /// Environment that tells programs which devices are theirs.
    pub environment: Vec<String>,
    /// GPUs, rails and plan.
    #[serde(flatten)]
    pub attachment: Attachment,
}

impl Shown {
    /// From a binding of the state file.
    ///
    /// # Errors
    /// Its plan is not one of ours.
    pub fn of(binding: &Binding) -> Result<Self, Failure> {
        let attachment = attachment(binding)?;
        Ok(Self {
            sandbox: binding.request.sandbox.clone(),
            state: binding.state.to_string(),
            netns: PathBuf::from(&binding.request.netns),
            near: attachment.near(),
            devices: devices(&attachment),
            environment: environment(&attachment),
            attachment,
        })
    }

    /// `8 of 8 rails next to its GPUs`, or how many rails there are for a sandbox without GPUs.
    #[must_use]
    pub fn summary(&self) -> String {
        let rails = self.attachment.rails.len();
        if self.attachment.gpus.is_empty() {
            return format!("{rails} rails, no GPUs given");
        }
        format!("{} of {rails} rails next to its GPUs", self.near)
    }
}

/// The attachment that a binding's plan holds.
///
/// # Errors
/// It is not one of ours.
pub fn attachment(binding: &Binding) -> Result<Attachment, Failure> {
    serde_json::from_str(&binding.plan).map_err(|source| Failure::BadPlan {
        sandbox: binding.request.sandbox.to_string(),
        source,
    })
}

/// The uverbs device of each rail, and the connection manager's.
fn devices(attachment: &Attachment) -> Vec<String> {
    let uverbs: BTreeSet<&String> = attachment
        .rails
        .iter()
        .filter_map(|rail| rail.uverbs.as_ref())
        .collect();
    let mut files: Vec<String> = uverbs
        .into_iter()
        .map(|name| format!("/dev/infiniband/{name}"))
        .collect();
    files.sort_by_key(|name| (name.len(), name.clone()));
    files.push("/dev/infiniband/rdma_cm".into());
    files
}

/// What the SR-IOV device plugin sets for a resource, so that scripts written for it keep working.
fn environment(attachment: &Attachment) -> Vec<String> {
    let pci: Vec<String> = attachment
        .rails
        .iter()
        .map(|rail| rail.pci.to_string())
        .collect();
    vec![format!("PCIDEVICE_PODRAIL_IO_RAIL={}", pci.join(","))]
}

/// What is held, as the decision takes it. GPUs that are gone from the node are left out.
#[must_use]
pub fn held(snapshot: &Snapshot, topology: &Topology, pool: &PoolName) -> Held {
    let position = |pci| {
        topology
            .gpus
            .iter()
            .position(|gpu| gpu.path.function == pci)
    };
    let bound = snapshot.holdings.iter().map(|holding| Bound {
        sandbox: holding.sandbox.clone(),
        gpus: holding
            .gpus
            .iter()
            .filter_map(|pci| position(*pci))
            .collect(),
        rails: holding
            .rails
            .iter()
            .filter_map(|held| {
                // Rails are known by their PCI function and port: indexes move with the hardware.
                let same = |rail: &&podrail_core::topology::Rail| {
                    rail.path.function == held.pci && rail.port == held.port
                };
                topology.rails.iter().find(same).map(|rail| rail.index)
            })
            .collect(),
    });
    Held {
        bound: bound.collect(),
        addresses: snapshot.used.clone(),
        freed: snapshot.freed.clone(),
        cursors: snapshot.cursors(pool),
    }
}

/// Opens the state file, and says what a new boot made of it.
///
/// # Errors
/// The file cannot be used.
pub fn open_state(path: &Path) -> Result<Store, Failure> {
    let opened = Store::open(path, &crate::node::boot_id()?)?;
    for binding in &opened.dropped {
        let sandbox = &binding.request.sandbox;
        crate::output::note(&format!(
            "sandbox {sandbox} was of an earlier boot and is forgotten"
        ));
    }
    if let Some(mode) = opened.loose_mode {
        let path = path.display();
        crate::output::note(&format!("{path} had mode {mode:o}; it is 600 now"));
    }
    Ok(opened.store)
}

/// Identity of a namespace, as the state file has it. The kernel uses numbers again: another id is
/// another namespace, an equal one most likely the same.
#[must_use]
pub fn netns_id(netns: &NetNs) -> NetnsId {
    let id = netns.id();
    NetnsId {
        dev: id.device,
        ino: id.inode,
    }
}

/// Whether a binding was attached to its end.
#[must_use]
pub fn is_ready(binding: &Binding) -> bool {
    binding.state == State::Ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn one_sandbox_at_a_time_works_in_a_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state.db");
        let take = |id: &str| Lock::take(&state, &SandboxId::parse(id).unwrap()).unwrap();
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
}
