//! The state of a node in one SQLite file: who holds which shares of which rails, and which
//! addresses; and in which order addresses were freed.
//!
//! Each public function is one transaction. The constraints that matter (a share of a rail and an
//! address belong to one sandbox) are in the database, so no process can get around them.
//! Deliberately absent: any choice. [`Store::reserve`] asks its caller, under the write lock.

mod error;
mod file;
mod read_only;
mod rows;
mod schema;
mod store;
mod types;

pub use error::{Conflict, ReserveError, StoreError};
pub use read_only::ReadOnly;
pub use store::{Opened, Store};
pub use types::{
    Binding, BootId, BoundRail, Decision, Holding, Lease, NetnsId, Released, Request, Reserved,
    Snapshot, State,
};

#[cfg(test)]
mod tests;
