//! The store: each function is one transaction.

use crate::error::{ReserveError, StoreError};
use crate::read_only::ReadOnly;
use crate::types::{Binding, BootId, Decision, Released, Request, Reserved, Snapshot};
use crate::{file, rows, schema};
use podrail_core::ids::SandboxId;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state of a node, open for reading and writing by any number of processes at once.
#[derive(Debug)]
pub struct Store {
    pub(crate) conn: Connection,
    pub(crate) at: At,
}

/// Which file, for which boot.
#[derive(Debug)]
pub(crate) struct At {
    path: PathBuf,
    pub(crate) boot: BootId,
}

/// A store that was just opened, and what happened on the way.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What earlier boots had attached: its links and namespaces died with their kernel, and its
    /// rails and addresses are free now.
    pub dropped: Vec<Binding>,
    /// Permission bits of the file before they were tightened to 0600, where that was needed.
    pub loose_mode: Option<u32>,
}

impl Store {
    /// Opens the state file, and makes it (0600) and its directory (0700) where they are missing.
    ///
    /// # Guarantees
    /// Bindings of other boots are dropped, all in one transaction, and returned; a second opening
    /// in the same boot finds none. A file that is not certainly Podrail's is not changed. Known
    /// pods stay, slots wait on, and those of dropped bindings wait again (without a number): after a boot the kubelet
    /// starts its pods by what its checkpoint says, without allocating. One that waits too long
    /// costs a question at the kubelet.
    ///
    /// # Errors
    /// The file cannot be used as it is; see [`StoreError::hint`].
    pub fn open(path: &Path, boot: &BootId) -> Result<Opened, StoreError> {
        let prepared = file::prepare(path)?;
        let conn = schema::connect(&prepared.path)?;
        let at = At {
            path: prepared.path,
            boot: boot.clone(),
        };
        let mut store = Self { conn, at };
        let dropped = store.enter_boot()?;
        Ok(Opened {
            store,
            dropped,
            loose_mode: prepared.loose,
        })
    }

    /// From now on waits at most so long for the transactions of other processes.
    ///
    /// # Errors
    /// The store failed.
    pub fn wait_at_most(&self, time: Duration) -> Result<(), StoreError> {
        let set = self.conn.busy_timeout(time);
        set.map_err(|error| self.at.fail("setting how long to wait", error))
    }

    /// The directory of a state file, without links: made if it is missing, refused if it or the
    /// file is not safe to use. For what has to lie beside the file.
    ///
    /// # Errors
    /// See [`StoreError`]; no file was made.
    pub fn directory(path: &Path) -> Result<PathBuf, StoreError> {
        file::directory(path)
    }

    /// Reads the whole state without changing or making any file; no file is an empty state.
    ///
    /// # Errors
    /// The file cannot be read, or is none of Podrail's.
    pub fn open_read_only(path: &Path) -> Result<ReadOnly, StoreError> {
        ReadOnly::load(path)
    }

    /// Gives a request its rails and addresses, as `decide` says, and keeps them as pending.
    ///
    /// `decide` runs under the write lock: it has to be quick, and must not wait for anyone who
    /// might be waiting for this store.
    ///
    /// # Guarantees
    /// Twice: an equal request gets what the first one got, and `decide` is not asked.
    /// Half-way: whatever fails, panics or is killed, all of the decision is kept or nothing.
    /// No share of a rail and no address ever has two holders. Slots that are bound now no longer
    /// wait; their pod is known from now on.
    ///
    /// # Errors
    /// Other arguments for a sandbox that is bound; `decide` failed; its decision gives away what
    /// is taken; a slot of it was allocated after [`Request::seen`], so that it is another pod's by
    /// now; the store failed.
    pub fn reserve<E: std::error::Error + 'static>(
        &mut self,
        request: &Request,
        decide: impl FnOnce(&Snapshot) -> Result<Decision, E>,
    ) -> Result<Reserved, ReserveError<E>> {
        let Self { conn, at } = self;
        let fail = |error| at.fail("reserving rails", error);
        let tx = at.begin(conn, "reserving rails")?;
        let sandbox = &request.sandbox;
        if let Some(existing) = rows::binding(&tx, sandbox).map_err(fail)? {
            return same_request(existing, request);
        }
        let snapshot = snapshot(&tx).map_err(fail)?;
        let decision = decide(&snapshot).map_err(|source| ReserveError::Decide {
            sandbox: sandbox.clone(),
            source,
        })?;
        let written = rows::decision(&tx, request, &decision, &at.boot);
        let binding = written.map_err(|refused| at.refused(sandbox, refused))?;
        tx.commit().map_err(fail)?;
        Ok(Reserved::New(binding))
    }

    /// Says that what was reserved is attached.
    ///
    /// # Guarantees
    /// Twice is as once.
    ///
    /// # Errors
    /// The sandbox has no binding; the store failed.
    pub fn mark_ready(&mut self, sandbox: &SandboxId) -> Result<(), StoreError> {
        let Self { conn, at } = self;
        let fail = |error| at.fail("marking a binding ready", error);
        let tx = at.begin(conn, "marking a binding ready")?;
        if !rows::mark_ready(&tx, sandbox).map_err(fail)? {
            let sandbox = sandbox.clone();
            return Err(StoreError::NoBinding { sandbox });
        }
        tx.commit().map_err(fail)
    }

    /// Frees all that a sandbox holds. To be called last, when nothing of it is in use any more.
    ///
    /// # Guarantees
    /// Twice: the second time there is nothing. Half-way: all is freed or nothing.
    /// The order of releases is kept, see [`Snapshot::freed`].
    ///
    /// # Errors
    /// The store failed.
    pub fn release(&mut self, sandbox: &SandboxId) -> Result<Released, StoreError> {
        let Self { conn, at } = self;
        let fail = |error| at.fail("releasing rails", error);
        let tx = at.begin(conn, "releasing rails")?;
        let Some(binding) = rows::binding(&tx, sandbox).map_err(fail)? else {
            return Ok(Released::Nothing);
        };
        rows::free(&tx, &binding).map_err(fail)?;
        tx.commit().map_err(fail)?;
        Ok(Released::Freed(Box::new(binding)))
    }

    /// What a sandbox holds.
    ///
    /// # Errors
    /// The store failed.
    pub fn get(&self, sandbox: &SandboxId) -> Result<Option<Binding>, StoreError> {
        self.read(|tx| rows::binding(tx, sandbox))
    }

    /// All bindings, by sandbox.
    ///
    /// # Errors
    /// The store failed.
    pub fn list(&self) -> Result<Vec<Binding>, StoreError> {
        self.read(rows::bindings)
    }

    /// What a choice would have to respect now; it may be out of date at once.
    ///
    /// # Errors
    /// The store failed.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.read(snapshot)
    }

    /// Whether nobody was ever bound in this file: it is new, or was made anew.
    ///
    /// # Errors
    /// The store failed.
    pub fn is_unused(&self) -> Result<bool, StoreError> {
        Ok(self.read(rows::sequence)? == 0)
    }

    /// Takes the file over for this boot, and returns what was dropped.
    fn enter_boot(&mut self) -> Result<Vec<Binding>, StoreError> {
        let Self { conn, at } = self;
        let fail = |error| at.fail("entering a new boot", error);
        if rows::boot(conn).map_err(fail)?.as_deref() == Some(at.boot.as_str()) {
            return Ok(Vec::new());
        }
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(fail)?;
        let dropped = rows::enter_boot(&tx, &at.boot).map_err(fail)?;
        tx.commit().map_err(fail)?;
        Ok(dropped)
    }

    /// One transaction that changes the file; one that changes nothing does not wait for the disk.
    pub(crate) fn write<T>(
        &mut self,
        doing: &'static str,
        change: impl FnOnce(&Connection, &BootId) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let Self { conn, at } = self;
        let tx = at.begin(conn, doing)?;
        let fail = |error| at.fail(doing, error);
        let value = change(&tx, &at.boot).map_err(fail)?;
        tx.commit().map_err(fail)?;
        Ok(value)
    }

    /// Several queries on one state of the file.
    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let tx = self.conn.unchecked_transaction();
        tx.and_then(|tx| query(&tx))
            .map_err(|error| self.at.fail("reading it", error))
    }
}

impl At {
    pub(crate) fn fail(&self, doing: &'static str, error: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, doing, error)
    }

    pub(crate) fn refused<E: std::error::Error + 'static>(
        &self,
        sandbox: &SandboxId,
        refused: rows::Refused,
    ) -> ReserveError<E> {
        let sandbox = sandbox.clone();
        match refused {
            rows::Refused::Conflict(source) => ReserveError::Conflict { sandbox, source },
            rows::Refused::GivenAway(slot) => ReserveError::GivenAway { sandbox, slot },
            rows::Refused::Sqlite(error) => self.fail("reserving rails", error).into(),
        }
    }

    /// Takes the write lock, and makes sure that the file is still of this boot.
    pub(crate) fn begin<'c>(
        &self,
        conn: &'c mut Connection,
        doing: &'static str,
    ) -> Result<Transaction<'c>, StoreError> {
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| self.fail(doing, error))?;
        let found = rows::boot(&tx).map_err(|error| self.fail(doing, error))?;
        if found.as_deref() == Some(self.boot.as_str()) {
            return Ok(tx);
        }
        Err(StoreError::OtherBoot {
            path: self.path.clone(),
            ours: self.boot.to_string(),
            found: found.unwrap_or_default(),
        })
    }
}

fn same_request<E: std::error::Error + 'static>(
    existing: Binding,
    request: &Request,
) -> Result<Reserved, ReserveError<E>> {
    if existing.request.fingerprint == request.fingerprint {
        return Ok(Reserved::Existing(existing));
    }
    Err(ReserveError::OtherArguments {
        sandbox: request.sandbox.clone(),
        existing: existing.request.fingerprint,
        asked: request.fingerprint.clone(),
    })
}

fn snapshot(conn: &Connection) -> rusqlite::Result<Snapshot> {
    let bindings = rows::bindings(conn)?;
    Ok(Snapshot::new(
        &bindings,
        rows::freed(conn)?,
        rows::cursors(conn)?,
    ))
}
