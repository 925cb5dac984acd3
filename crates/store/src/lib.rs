//! The state of a node in one SQLite file: who holds which shares of which rails, and which
//! addresses, for which pod; in which order addresses were freed; which slots wait to be bound; and
//! what the node is set up as.
//!
//! Each public function is one transaction. The constraints that matter (a share of a rail and an
//! address belong to one sandbox) are in the database, so no process can get around them.
//! Deliberately absent: any choice. [`Store::reserve`] asks its caller, under the write lock.

mod error;
mod file;
mod inspect;
mod read_only;
mod rebuild;
mod rows;
mod schema;
mod setup;
mod slots;
mod store;
mod types;

pub use error::{Conflict, ReserveError, StoreError};
pub use inspect::Inspected;
pub use read_only::ReadOnly;
pub use rebuild::{Content, Held};
pub use store::{Opened, Store};
pub use types::{
    Binding, BootId, BoundRail, Decision, Holding, KnownPod, Lease, NetnsId, Released, Request,
    Reserved, SeenTopology, Setup, Snapshot, State, Waiting,
};

#[cfg(test)]
mod tests;
