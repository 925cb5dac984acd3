//! Takes turns: as many nodes at once as the machine has processors, over all processes.
//!
//! A node keeps one processor busy. Two on one processor are each more than twice as slow, and
//! waits that are long enough for one node are not for a starved one.

use std::fs::File;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::assets::Assets;
use crate::error::LabError;

/// Between two looks at whether a turn is free; a node runs for seconds at least.
const PAUSE: Duration = Duration::from_millis(50);

/// A test may need two nodes that see each other.
fn most() -> usize {
    available_parallelism().map_or(1, usize::from).max(2)
}

/// The right to run a node. The kernel takes it back with the process, however that ends.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for one.
    pub(super) fn wait() -> Result<Self, LabError> {
        let dir = Assets::root().join("turns");
        std::fs::create_dir_all(&dir).map_err(LabError::io("create", &dir))?;
        let mut turns = (0..most())
            .map(|number| dir.join(number.to_string()))
            .cycle();
        // Any that gets free, not one of them: who waits for another node's turn may hold one.
        loop {
            for path in turns.by_ref().take(most()) {
                let lock = File::create(&path).map_err(LabError::io("create", &path))?;
                if lock.try_lock().is_ok() {
                    return Ok(Self { _lock: lock });
                }
            }
            // Nobody tells when a file's lock is given back.
            std::thread::park_timeout(PAUSE);
        }
    }
}
