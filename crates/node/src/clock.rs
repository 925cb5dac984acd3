//! Time: what hour it is, and how long something may still take.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Until when a piece of work may wait for others.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// What all waiting for one sandbox may take: below the four minutes that a kubelet gives it
    /// (twice `--runtime-request-timeout`), with room for the work itself.
    pub const PATIENCE: Duration = Duration::from_secs(90);

    /// So much time from now on.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// What is left of it; nothing once it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::within(Self::PATIENCE)
    }
}

/// Seconds since 1970, for the state file.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
