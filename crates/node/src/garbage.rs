//! Sandboxes of pods whose network namespace is gone: the runtime did not, or could not, say so.

use crate::attach::Exposure;
use crate::clock::Deadline;
use crate::error::NodeError;
use crate::kernel::{Kernel, Linux};
use crate::session::{Notes, Session};
use nix::errno::Errno;
use podrail_store::{Binding, NetnsId, Released, Store};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Inode of the first PID namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Whether a network namespace is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Its path leads nowhere, and no process is in it.
    Yes,
    /// It is there.
    No,
    /// This process does not see enough of the host.
    CannotTell,
}

/// What this process can see of the host.
#[derive(Debug, Clone)]
pub struct Sight {
    pub(crate) proc: PathBuf,
    /// All processes are in `proc`.
    pub(crate) all_processes: bool,
    /// Paths are the host's.
    pub(crate) same_mounts: bool,
}

impl Sight {
    /// Finds out, once.
    #[must_use]
    pub fn find_out() -> Self {
        let proc = PathBuf::from("/proc");
        let inode = |path: &str| {
            let facts = std::fs::metadata(proc.join(path)).ok();
            facts.map(|facts| (facts.dev(), facts.ino()))
        };
        let first = inode("self/ns/pid").is_some_and(|(_, ino)| ino == FIRST_PID_NAMESPACE);
        let (ours, hosts) = (inode("self/ns/mnt"), inode("1/ns/mnt"));
        Self {
            all_processes: first,
            same_mounts: first && ours.is_some() && ours == hosts,
            proc,
        }
    }

    /// Whether the namespace of a binding is gone. Anything doubtful is no yes.
    #[must_use]
    pub fn is_gone(&self, binding: &Binding) -> Gone {
        let Some(id) = binding.request.netns_id else {
            return Gone::CannotTell;
        };
        match self.path_is_gone(Path::new(&binding.request.netns), id) {
            Gone::Yes => self.no_process_is_in(id),
            other => other,
        }
    }

    /// Looks at the path only.
    fn path_is_gone(&self, path: &Path, id: NetnsId) -> Gone {
        match std::fs::metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == (id.dev, id.ino) => Gone::No,
            // A plain file, as runtimes leave it when the mount is gone, or another namespace by
            // the old name. From within other mounts it may be a mount that is hidden from here.
            Ok(_) if self.same_mounts => Gone::Yes,
            Ok(_) => Gone::CannotTell,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.parent_is_seen(path),
            Err(_) => Gone::CannotTell,
        }
    }

    /// A missing file says something only where its directory is the host's.
    fn parent_is_seen(&self, path: &Path) -> Gone {
        let parent = path.parent().filter(|parent| parent.is_dir());
        match parent {
            Some(parent) if self.same_mounts || is_mount(parent) => Gone::Yes,
            // Paths below a process go with it.
            None if self.same_mounts && path.starts_with("/proc") => Gone::Yes,
            _ => Gone::CannotTell,
        }
    }

    fn no_process_is_in(&self, id: NetnsId) -> Gone {
        if !self.all_processes {
            return Gone::CannotTell;
        }
        let Ok(entries) = std::fs::read_dir(&self.proc) else {
            return Gone::CannotTell;
        };
        for entry in entries.flatten() {
            let is_process = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
            if !entry.file_name().to_str().is_some_and(is_process) {
                continue;
            }
            match std::fs::metadata(entry.path().join("ns/net")) {
                Ok(found) if (found.dev(), found.ino()) == (id.dev, id.ino) => return Gone::No,
                Ok(_) => {}
                // It has ended meanwhile, or is a corpse without namespaces.
                Err(error) if is_over(&error) => {}
                Err(_) => return Gone::CannotTell,
            }
        }
        Gone::Yes
    }
}

fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Whether something is mounted at a directory: it is on another device than its parent.
fn is_mount(dir: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    match (device(dir), device(&dir.join(".."))) {
        (Some(here), Some(above)) => here != above,
        _ => false,
    }
}

/// What a collection did.
#[derive(Debug, Default)]
pub struct Garbage {
    /// Bindings that are no longer held.
    pub released: Vec<Binding>,
    /// What could not be released, and stays reserved.
    pub failed: Vec<NodeError>,
    /// Things worth knowing.
    pub notes: Notes,
}

/// Releases all that sandboxes of pods hold whose network namespace is gone. Sandboxes of
/// `podrail attach` are left to whoever attached them.
///
/// Not to be called within a [`Session`]: sandboxes share locks.
///
/// # Guarantees
/// Nothing is released on a guess. Twice is as once; one failure does not stop the rest.
///
/// # Errors
/// The state file cannot be read.
pub fn collect_garbage(
    state: &Path,
    sight: &Sight,
    exposure: &mut impl Exposure,
    until: Deadline,
) -> Result<Garbage, NodeError> {
    collect_on(Linux, state, sight, (exposure, until))
}

/// As [`collect_garbage`], on a kernel.
pub(crate) fn collect_on<K: Kernel + Clone>(
    kernel: K,
    state: &Path,
    sight: &Sight,
    (exposure, until): (&mut impl Exposure, Deadline),
) -> Result<Garbage, NodeError> {
    let mut garbage = Garbage::default();
    let read = Store::open_read_only(state)?;
    let of_pods = read.list().iter().filter(|b| b.request.pod.is_some());
    for binding in of_pods.filter(|binding| sight.is_gone(binding) == Gone::Yes) {
        let session = Session::on(kernel.clone(), state, &binding.request.sandbox, until);
        match session.and_then(|session| release(session, binding, sight, exposure)) {
            Ok((released, notes)) => {
                garbage.released.extend(released);
                garbage.notes.extend(notes);
            }
            Err(error) => garbage.failed.push(error),
        }
    }
    Ok(garbage)
}

/// Under its lock the binding is looked at again: it may be another one by now.
fn release<K: Kernel>(
    mut session: Session<K>,
    seen: &Binding,
    sight: &Sight,
    exposure: &mut impl Exposure,
) -> Result<(Option<Binding>, Notes), NodeError> {
    let now = session.binding()?;
    let same =
        now.is_some_and(|now| now.sequence == seen.sequence && sight.is_gone(&now) == Gone::Yes);
    if !same {
        return Ok((None, session.take_notes()));
    }
    let detached = session.detach(None, exposure)?;
    let released = match detached.released {
        Released::Freed(binding) => Some(*binding),
        Released::Nothing => None,
    };
    Ok((released, session.take_notes()))
}

#[cfg(test)]
mod tests;
