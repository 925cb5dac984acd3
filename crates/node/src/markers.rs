//! Markers beside the state file: whether a pod may want rails, without opening anything.
//!
//! `waiting/<slot>` for each slot that is allocated and not yet bound, `pods/<uid>` for each pod
//! that had slots bound. A marker is durable before what it stands for is kept, and goes after it:
//! one too many costs a question at the kubelet, one too few would start a pod without rails.

use crate::error::NodeError;
use podrail_attach::faults;
use podrail_core::ids::{PodUid, SlotId};
use podrail_store::{Store, Waiting};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The markers of a node.
#[derive(Debug, Clone)]
pub struct Markers {
    waiting: PathBuf,
    pods: PathBuf,
}

impl Markers {
    /// Those in the directory of the state file; touches nothing.
    #[must_use]
    pub fn at(state_dir: &Path) -> Self {
        Self {
            waiting: state_dir.join("waiting"),
            pods: state_dir.join("pods"),
        }
    }

    /// Those beside a state file.
    ///
    /// # Errors
    /// The directory is not safe to use.
    pub fn beside(state: &Path) -> Result<Self, NodeError> {
        Ok(Self::at(&Store::directory(state)?))
    }

    /// Whether a pod may want rails: a slot waits, or the pod is known, or who asks does not know
    /// the pod's UID. Costs a look at two directories; if they are missing, nobody wants rails.
    ///
    /// # Errors
    /// The directories cannot be looked at: nobody knows.
    pub fn wants_rails(&self, uid: Option<&PodUid>) -> io::Result<bool> {
        Ok(self.knows(uid)? || has_entries(&self.waiting)?)
    }

    /// Whether a pod had slots bound on this node; without its UID, whether any pod had.
    ///
    /// # Errors
    /// The directory cannot be looked at: nobody knows.
    pub fn knows(&self, uid: Option<&PodUid>) -> io::Result<bool> {
        match uid {
            Some(uid) => self.pods.join(uid.as_str()).try_exists(),
            None => has_entries(&self.pods),
        }
    }

    /// Marks slots as waiting.
    ///
    /// # Guarantees
    /// Durable when it returns. Twice is as once.
    ///
    /// # Errors
    /// Some of them may be marked.
    pub fn mark_waiting(&self, slots: &[SlotId]) -> Result<(), NodeError> {
        mark(&self.waiting, slots.iter().map(ToString::to_string))
    }

    /// Takes the marks of slots away.
    ///
    /// # Guarantees
    /// Twice is as once.
    ///
    /// # Errors
    /// Some of them may be marked still.
    pub fn clear_waiting(&self, slots: &[SlotId]) -> Result<(), NodeError> {
        clear(&self.waiting, slots.iter().map(ToString::to_string))
    }

    /// Marks a pod as known.
    ///
    /// # Guarantees
    /// Durable when it returns. Twice is as once.
    ///
    /// # Errors
    /// It may be marked.
    pub fn mark_pod(&self, uid: &PodUid) -> Result<(), NodeError> {
        mark(&self.pods, [uid.to_string()])
    }

    /// Takes the mark of a pod away.
    ///
    /// # Guarantees
    /// Twice is as once.
    ///
    /// # Errors
    /// It may be marked still.
    pub fn clear_pod(&self, uid: &PodUid) -> Result<(), NodeError> {
        clear(&self.pods, [uid.to_string()])
    }

    /// Slots that are marked; files that are none of ours are left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn waiting(&self) -> Result<BTreeSet<SlotId>, NodeError> {
        list(&self.waiting)
    }

    /// Pods that are marked; files that are none of ours are left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn pods(&self) -> Result<BTreeSet<PodUid>, NodeError> {
        list(&self.pods)
    }
}

/// Notes that the kubelet has allocated slots: marker, row, and the marker once more.
///
/// A sandbox that is bound at this moment may take away the marker that was made first; see
/// [`settle`], which looks again after that. So whichever comes last leaves a marker.
///
/// # Guarantees
/// Durable when it returns, in both places.
///
/// # Errors
/// The slots may be marked and not kept.
pub fn allocate(
    store: &mut Store,
    markers: &Markers,
    slots: &[SlotId],
    at: i64,
) -> Result<(), NodeError> {
    markers.mark_waiting(slots)?;
    store.allocate(slots, at)?;
    markers.mark_waiting(slots)
}

/// Brings the markers of slots in line with the state file.
///
/// # Guarantees
/// A slot that waits in the state file is marked when it returns, whatever others do meanwhile.
///
/// # Errors
/// Markers may be left that stand for nothing.
pub(crate) fn settle(store: &Store, markers: &Markers, slots: &[SlotId]) -> Result<(), NodeError> {
    let waits = store.waiting()?;
    let bound: Vec<_> = slots
        .iter()
        .copied()
        .filter(|slot| !waits.contains_key(slot))
        .collect();
    if bound.is_empty() {
        return Ok(());
    }
    markers.clear_waiting(&bound)?;
    let waits = store.waiting()?;
    let again: Vec<_> = bound
        .into_iter()
        .filter(|slot| waits.contains_key(slot))
        .collect();
    markers.mark_waiting(&again)
}

/// Puts right what killed processes and new boots left: what waits or is known is marked, and
/// markers of slots that wait no longer go. To be called while no slot is being allocated.
///
/// # Guarantees
/// Twice is as once, and what is in line already is not written.
///
/// # Errors
/// Some of it may not be in line.
pub fn repair(store: &Store, markers: &Markers) -> Result<(), NodeError> {
    let marked = markers.waiting()?;
    settle(store, markers, &marked.iter().copied().collect::<Vec<_>>())?;
    let waits = store.waiting()?.into_keys();
    let unmarked: Vec<_> = waits.filter(|slot| !marked.contains(slot)).collect();
    markers.mark_waiting(&unmarked)?;
    let marked = markers.pods()?;
    let holding = store.list()?.into_iter();
    let holding = holding.filter_map(|binding| Some(binding.request.pod?.uid));
    let known = store.pods()?.into_iter().map(|known| known.pod.uid);
    let known: BTreeSet<PodUid> = known.chain(holding).collect();
    known
        .difference(&marked)
        .try_for_each(|uid| markers.mark_pod(uid))
}

/// Makes slots wait no longer that no pod has, each with the row that said so: rows and markers.
/// To be called while no slot is being allocated. Returns those that were still as seen: others
/// were given away since.
///
/// # Guarantees
/// A slot that waits in the state file is marked when it returns. Twice is as once.
///
/// # Errors
/// Some of them may be marked still.
pub fn forget_slots(
    store: &mut Store,
    markers: &Markers,
    seen: &[(SlotId, Waiting)],
) -> Result<Vec<SlotId>, NodeError> {
    let waits = store.waiting()?;
    let same = seen
        .iter()
        .filter(|(slot, row)| waits.get(slot) == Some(row));
    let slots: Vec<SlotId> = same.map(|(slot, _)| *slot).collect();
    store.forget_waiting(&slots)?;
    settle(store, markers, &slots)?;
    Ok(slots)
}

/// Forgets a pod that will not come back and that is known since `since` (seconds since 1970; any
/// if only a marker says so): row and marker; whether it is forgotten.
///
/// Its sandbox may be bound at this moment, and marks its pod once more after that; here the store
/// is looked at once more after the marker is gone. So whichever comes last leaves a marker.
///
/// # Guarantees
/// A pod that holds rails is marked when it returns. Twice is as once.
///
/// # Errors
/// The pod may be marked still.
pub fn forget_pod(
    store: &mut Store,
    markers: &Markers,
    uid: &PodUid,
    since: i64,
) -> Result<bool, NodeError> {
    if !store.forget_pod(uid, since)? {
        return Ok(false);
    }
    markers.clear_pod(uid)?;
    let again = store.knows_pod(uid)?;
    if again {
        markers.mark_pod(uid)?;
    }
    Ok(!again)
}

fn has_entries(dir: &Path) -> io::Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().transpose().map(|entry| entry.is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn mark(dir: &Path, names: impl IntoIterator<Item = String>) -> Result<(), NodeError> {
    let mut names = names.into_iter().peekable();
    if names.peek().is_none() {
        return Ok(());
    }
    make_directory(dir).map_err(|source| failed(dir, source))?;
    for (number, name) in names.enumerate() {
        faults::reach("mark", number).map_err(NodeError::Injected)?;
        let path = dir.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC);
        options
            .open(&path)
            .map_err(|source| failed(&path, source))?;
    }
    sync(dir).map_err(|source| failed(dir, source))?;
    faults::reach("marked", 0).map_err(NodeError::Injected)
}

fn clear(dir: &Path, names: impl IntoIterator<Item = String>) -> Result<(), NodeError> {
    for (number, name) in names.into_iter().enumerate() {
        faults::reach("clear", number).map_err(NodeError::Injected)?;
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&path, error)),
            _ => {}
        }
    }
    faults::reach("cleared", 0).map_err(NodeError::Injected)
}

fn list<T: FromStr + Ord>(dir: &Path) -> Result<BTreeSet<T>, NodeError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(failed(dir, error)),
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(|source| failed(dir, source))?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse().ok()));
    }
    Ok(found)
}

/// Makes the directory of a kind of markers; its parent is there, and durable with it.
fn make_directory(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => dir.parent().map_or(Ok(()), sync),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn failed(path: &Path, source: io::Error) -> NodeError {
    NodeError::Marker {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
