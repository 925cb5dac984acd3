//! What the node is set up as: written by the agent, read by the plugin. Each function is one
//! transaction.

use crate::error::StoreError;
use crate::rows;
use crate::store::Store;
use crate::types::{SeenTopology, Setup};

impl Store {
    /// Keeps what the node is set up as, in place of what was kept before.
    ///
    /// # Guarantees
    /// Twice is as once, and an equal value costs no wait for the disk. Half-way: all or nothing.
    ///
    /// # Errors
    /// The store failed.
    pub fn put_setup(&mut self, setup: &Setup) -> Result<(), StoreError> {
        self.write("keeping the setup", |tx, _| rows::keep_setup(tx, setup))
    }

    /// What the node is set up as; none before an agent has said so.
    ///
    /// # Errors
    /// The store failed.
    pub fn setup(&self) -> Result<Option<Setup>, StoreError> {
        self.read(rows::setup)
    }

    /// Keeps GPUs and rails (JSON text) as seen in this boot.
    ///
    /// # Guarantees
    /// As [`Self::put_setup`].
    ///
    /// # Errors
    /// The store failed.
    pub fn put_topology(&mut self, text: &str) -> Result<(), StoreError> {
        self.write("keeping the topology", |tx, boot| {
            rows::keep_topology(tx, boot, text)
        })
    }

    /// GPUs and rails as seen in this boot, as JSON text; what an earlier boot saw does not count.
    ///
    /// # Errors
    /// The store failed.
    pub fn topology(&self) -> Result<Option<String>, StoreError> {
        let seen = self.read(rows::topology)?;
        let now = |seen: SeenTopology| (seen.boot == self.at.boot).then_some(seen.text);
        Ok(seen.and_then(now))
    }

    /// Raises the number of slots that the kubelet is told of to `wanted`, if it is lower, and
    /// returns it: slots may be with pods, so within a boot they never become fewer. What an earlier
    /// boot told counts until then, and no longer.
    ///
    /// # Guarantees
    /// Twice is as once.
    ///
    /// # Errors
    /// The store failed.
    pub fn grow_slots(&mut self, wanted: u16) -> Result<u16, StoreError> {
        self.write("counting slots", |tx, boot| {
            rows::grow_slots(tx, boot, wanted)
        })
    }
}
