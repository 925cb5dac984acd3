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
    /// Slots were given away, or garbage was collected: look again at what is busy.
    pub(crate) look_again: Arc<Notify>,
    allocating: Arc<Mutex<()>>,
}

impl Context {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options: Arc::new(options),
            board: Board::new(),
            look_again: Arc::default(),
            allocating: Arc::default(),
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
