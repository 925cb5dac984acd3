//! What every part of the agent has at hand.

use crate::board::Board;
use crate::options::Options;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Shared by all parts; a clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) options: Arc<Options>,
    pub(crate) board: Board,
    /// Slots were given away, garbage was collected, or the way to the plugin is another one: look
    /// again at what may be offered.
    pub(crate) look_again: Arc<Notify>,
    allocating: Arc<Mutex<()>>,
    blocked: Arc<Mutex<Option<String>>>,
}

impl Context {
    pub(crate) fn new(options: Options) -> Self {
        let unknown = || "the CNI configuration was not looked at yet".to_owned();
        Self {
            blocked: Arc::new(Mutex::new(options.plugin.is_some().then(unknown))),
            options: Arc::new(options),
            board: Board::new(),
            look_again: Arc::default(),
            allocating: Arc::default(),
        }
    }

    /// Why pods do not get to the plugin, as far as that is the agent's matter; none if they do.
    pub(crate) fn blocked(&self) -> Option<String> {
        let blocked = self.blocked.lock();
        blocked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says why pods do not get to the plugin, or that they do.
    pub(crate) fn set_blocked(&self, why: Option<String>) {
        let blocked = self.blocked.lock();
        let mut blocked = blocked.unwrap_or_else(PoisonError::into_inner);
        if *blocked != why {
            *blocked = why;
            self.look_again.notify_one();
        }
    }

    /// Held while slots are allocated, and while marks of slots are cleaned up: a mark without a
    /// row is then certainly left over.
    pub(crate) fn allocating(&self) -> MutexGuard<'_, ()> {
        self.allocating
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs blocking work; `None` if it panicked, which is logged.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let context = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&context)).await;
        done.inspect_err(|error| tracing::error!("a task ended early: {error}"))
            .ok()
    }
}
