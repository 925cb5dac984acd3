//! One sandbox being worked on: its lock, the state file, and what there is to tell.

use crate::clock::Deadline;
use crate::error::NodeError;
use crate::kernel::{Kernel, Linux};
use crate::lock::Lock;
use crate::markers::Markers;
use podrail_core::ids::SandboxId;
use podrail_store::{Binding, BootId, Store};
use std::path::Path;
use std::time::Duration;

/// The longest that the store waits for other processes.
const LONGEST: Duration = Duration::from_secs(30);

/// The shortest: what was begun has to be given back, whatever the hour.
const SHORTEST: Duration = Duration::from_secs(5);

/// Things worth knowing that are neither the result nor a failure, in words for the user.
pub type Notes = Vec<String>;

/// A state file that was just opened.
#[derive(Debug)]
pub struct OpenState {
    /// The store.
    pub store: Store,
    /// What a new boot made of it.
    pub notes: Notes,
}

/// Opens the state file for the running boot.
///
/// # Errors
/// The file cannot be used.
pub fn open_state(path: &Path) -> Result<OpenState, NodeError> {
    open_state_in(path, &Linux.boot()?)
}

/// Opens the state file for a boot.
pub(crate) fn open_state_in(path: &Path, boot: &BootId) -> Result<OpenState, NodeError> {
    let opened = Store::open(path, boot)?;
    let forgotten = opened.dropped.iter().map(|binding| {
        let sandbox = &binding.request.sandbox;
        format!("sandbox {sandbox} was of an earlier boot and is forgotten")
    });
    let tightened = opened.loose_mode.map(|mode| {
        let path = path.display();
        format!("{path} had mode {mode:o}; it is 600 now")
    });
    Ok(OpenState {
        notes: forgotten.chain(tightened).collect(),
        store: opened.store,
    })
}

/// One sandbox, with its lock held: no other process attaches or detaches it meanwhile.
#[derive(Debug)]
pub struct Session<K = Linux> {
    pub(crate) kernel: K,
    pub(crate) sandbox: SandboxId,
    pub(crate) lock: Lock,
    pub(crate) store: Store,
    pub(crate) markers: Markers,
    pub(crate) notes: Notes,
}

impl Session {
    /// Takes the lock of a sandbox and opens the state file.
    ///
    /// Never two sessions at once in one process: sandboxes share locks.
    ///
    /// # Errors
    /// The lock cannot be had before the deadline; the state file cannot be used.
    pub fn open(state: &Path, sandbox: &SandboxId, until: Deadline) -> Result<Self, NodeError> {
        Self::on(Linux, state, sandbox, until)
    }
}

impl<K: Kernel> Session<K> {
    /// As [`Session::open`], on a kernel.
    pub(crate) fn on(
        kernel: K,
        state: &Path,
        sandbox: &SandboxId,
        until: Deadline,
    ) -> Result<Self, NodeError> {
        let lock = Lock::take(state, sandbox, until)?;
        let OpenState { store, notes } = open_state_in(state, &kernel.boot()?)?;
        Ok(Self {
            kernel,
            sandbox: sandbox.clone(),
            lock,
            store,
            markers: Markers::beside(state)?,
            notes,
        })
    }

    /// What the sandbox holds already.
    ///
    /// # Errors
    /// The store failed.
    pub fn binding(&self) -> Result<Option<Binding>, NodeError> {
        Ok(self.store.get(&self.sandbox)?)
    }

    /// The state file, for reading what else is in it.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What there was to tell since the last call.
    pub fn take_notes(&mut self) -> Notes {
        std::mem::take(&mut self.notes)
    }

    /// Sees to it that the next transaction waits no longer than the deadline allows.
    pub(crate) fn mind_the_time(&self) -> Result<(), NodeError> {
        let left = self.lock.deadline().left();
        Ok(self.store.wait_at_most(left.clamp(SHORTEST, LONGEST))?)
    }
}
