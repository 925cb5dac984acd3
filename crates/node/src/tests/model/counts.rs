//! What was done in all histories, for the reader and against a run that tests nothing.

use std::collections::BTreeMap;
use std::fmt;

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) steps: u64,
    pub(super) attached: u64,
    pub(super) short: u64,
    pub(super) reboots: u64,
    pub(super) kills: BTreeMap<String, u64>,
    pub(super) errors: u64,
    pub(super) meanwhile: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: &Self) {
        self.steps += more.steps;
        self.attached += more.attached;
        self.short += more.short;
        self.reboots += more.reboots;
        self.errors += more.errors;
        self.meanwhile += more.meanwhile;
        for (stage, count) in &more.kills {
            *self.kills.entry(stage.clone()).or_default() += count;
        }
    }

    pub(super) fn kills(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Every kind of step and nearly every kind of fault point was met.
    pub(super) fn are_enough(&self) -> bool {
        let kinds = [self.attached, self.short, self.reboots, self.errors];
        self.steps >= 10_000
            && self.meanwhile > 0
            && kinds.iter().all(|count| *count > 0)
            && self.kills.len() >= 20
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills = self.kills();
        write!(
            f,
            "{} steps: {} ADDs with rails, {} short of rails or addresses, {} reboots, {kills} \
             kills at {} kinds of points, {} errors, {} calls of others in between; kills: {:?}",
            self.steps,
            self.attached,
            self.short,
            self.reboots,
            self.kills.len(),
            self.errors,
            self.meanwhile,
            self.kills
        )
    }
}
