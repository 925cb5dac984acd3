//! What the parts of the agent know of themselves, for `/healthz`, `/readyz` and `/metrics`.

use crate::metrics::Values;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Conditions of `/readyz`.
pub const CONDITIONS: [&str; 7] = [
    CONFIGURED, INSTALLED, CHAINED, DISCOVERED, OFFERED, REGISTERED, STATE,
];
/// The configuration file is valid, and in the state file.
pub const CONFIGURED: &str = "configured";
/// The plugin's program is in its place.
pub const INSTALLED: &str = "installed";
/// The runtime's configuration leads to the plugin.
pub const CHAINED: &str = "chained";
/// The node's facts were read, and it can have rails.
pub const DISCOVERED: &str = "discovered";
/// New pods may be given slots: they would get to the plugin, and there are addresses.
pub const OFFERED: &str = "offered";
/// The kubelet counts the slots.
pub const REGISTERED: &str = "registered";
/// The state file can be used.
pub const STATE: &str = "state";

/// A condition, and why it is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    holds: bool,
    reason: String,
}

/// A loop, and when it is late.
#[derive(Debug, Clone, Copy)]
struct Beat {
    last: Instant,
    longest: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    conditions: BTreeMap<&'static str, Condition>,
    beats: BTreeMap<&'static str, Beat>,
    values: Values,
    topology_changed: Option<Instant>,
}

/// Shared by all parts.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Inner>>);

impl Board {
    /// A board of which nothing holds yet.
    #[must_use]
    pub fn new() -> Self {
        let board = Self::default();
        let pending = || Condition {
            holds: false,
            reason: "not tried yet".into(),
        };
        board.lock().conditions = CONDITIONS.map(|name| (name, pending())).into();
        board
    }

    /// Says how a condition stands. Returns whether that is news, in words or in fact.
    pub fn set(&self, name: &'static str, holds: bool, reason: impl Into<String>) -> bool {
        let condition = Condition {
            holds,
            reason: reason.into(),
        };
        let before = self.lock().conditions.insert(name, condition.clone());
        before != Some(condition)
    }

    /// A loop has turned, and will again within `longest`.
    pub fn beat(&self, name: &'static str, longest: Duration) {
        let last = Instant::now();
        self.lock().beats.insert(name, Beat { last, longest });
    }

    /// The topology is another one.
    pub fn topology_changed(&self) {
        self.lock().topology_changed = Some(Instant::now());
    }

    /// Changes what `/metrics` tells.
    pub fn update(&self, change: impl FnOnce(&mut Values)) {
        change(&mut self.lock().values);
    }

    /// What `/metrics` tells, at `now`.
    #[must_use]
    pub fn values(&self, now: Instant) -> Values {
        let inner = self.lock();
        let mut values = inner.values.clone();
        let changed = inner.topology_changed;
        values.topology_age = changed.map(|at| now.saturating_duration_since(at).as_secs_f64());
        let conditions = inner.conditions.iter();
        values.conditions = conditions.map(|(name, c)| (*name, c.holds)).collect();
        values
    }

    /// The loops that are late at `now`.
    #[must_use]
    pub fn late(&self, now: Instant) -> Vec<&'static str> {
        let inner = self.lock();
        let is_late = |beat: &Beat| now.saturating_duration_since(beat.last) > beat.longest;
        let late = inner.beats.iter().filter(|(_, beat)| is_late(beat));
        late.map(|(name, _)| *name).collect()
    }

    /// Every condition: its name, whether it holds, and why.
    #[must_use]
    pub fn conditions(&self) -> Vec<(&'static str, bool, String)> {
        let inner = self.lock();
        let all = inner.conditions.iter();
        all.map(|(name, c)| (*name, c.holds, c.reason.clone()))
            .collect()
    }

    /// No function here can leave half a change behind, so a panic elsewhere does no harm.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
