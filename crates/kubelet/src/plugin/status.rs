//! What others may know of the registration.

use super::RegisterError;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;

/// How the plugin stands with the kubelet, and since when.
#[derive(Debug, Clone)]
pub struct Status {
    /// How it stands.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// What went wrong last, until the next success.
    pub last_error: Option<Arc<RegisterError>>,
}

/// How the plugin stands with the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No list of slots yet: nothing to register.
    WaitingForSlots,
    /// On the way, or waiting for the kubelet.
    Registering,
    /// The kubelet took the registration and reads the list of slots.
    Registered,
    /// At an end.
    Stopped,
}

impl Status {
    /// The channel over which a run tells its status.
    #[must_use]
    pub fn channel() -> (watch::Sender<Self>, watch::Receiver<Self>) {
        watch::channel(Self {
            state: State::WaitingForSlots,
            since: SystemTime::now(),
            last_error: None,
        })
    }

    /// Whether the kubelet counts the slots.
    #[must_use]
    pub fn registered(&self) -> bool {
        self.state == State::Registered
    }

    pub(super) fn enter(&mut self, state: State) {
        if self.state != state {
            self.state = state;
            self.since = SystemTime::now();
        }
    }
}
