//! A process in small: tasks on a thread of their own that end together.

use crate::error::{Error, Result};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Runs tasks until it is dropped; then all of them and their connections are gone, as with a
/// killed process.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// An engine without tasks.
    ///
    /// # Errors
    /// The system gives no event queue.
    pub fn start() -> Result<Self> {
        let made = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = made.map_err(Error::io("start", "the engine of a stand-in"))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            // A dropped sender ends it too.
            let _ = runtime.block_on(stopped);
        });
        Ok(Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// For tasks.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but that a task panicked.
            let _ = thread.join();
        }
    }
}
