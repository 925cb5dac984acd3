//! One node: its configuration, its facts, its locks, and the carrying out of a decision.
//!
//! What the commands, the plugin and the agent share. Reading order: [`Settings`], [`discover`],
//! [`Session`] (lock, state file, attach, detach), [`Markers`] (does a pod want rails at all?),
//! [`collect_garbage`].
//!
//! Deliberately absent: choosing rails (the caller of [`Session::attach`] does), Kubernetes, the
//! device files of containers (an [`Exposure`]), printing.

mod attach;
mod books;
mod cdi;
mod clock;
mod detach;
mod error;
mod facts;
pub mod fingerprint;
mod garbage;
mod kernel;
mod lock;
mod markers;
mod places;
pub mod recovery;
mod sandbox;
mod session;
mod settings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod topology;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use attach::{Exposure, HookError, Nothing};
pub use books::{bound, held, kept, previous_rp_filter};
pub use cdi::{CdiFiles, Orphans, conceal_slots, remove_orphans};
pub use clock::{Deadline, now};
pub use detach::Detached;
pub use error::{NodeError, in_words};
pub use facts::{boot_id, discover, require_ready};
pub use garbage::{Garbage, Gone, Sight, collect_garbage};
pub use kernel::{Kernel, Linux};
pub use markers::{Markers, allocate, forget_pod, forget_slots, repair};
pub use places::{CNI_VERSIONS, Places};
pub use sandbox::{Shown, attachment, foreign_netns, is_ready, netns_id};
pub use session::{Notes, OpenState, Session, open_state};
pub use settings::{BadSetup, Settings};
pub use topology::{refreshed, seen_topology, topology_now};
