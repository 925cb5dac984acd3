//! Takes turns: as many nodes at once as the machine has processors, over all processes.
//!
//! A node keeps one processor busy. Two on one processor are each more than twice as slow, and
//! waits that are long enough for one node are not for a starved one.

use std::fs::File;
use std::path::PathBuf;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use crate::assets::Assets;
use crate::error::LabError;

const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

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
        let most = available_parallelism().map_or(1, usize::from);
        loop {
            for number in 0..most {
                if let Some(turn) = Self::take(dir.join(number.to_string()))? {
                    return Ok(turn);
                }
            }
            sleep(BETWEEN_LOOKS);
        }
    }

    fn take(path: PathBuf) -> Result<Option<Self>, LabError> {
        let lock = File::create(&path).map_err(LabError::io("create", &path))?;
        Ok(lock.try_lock().is_ok().then_some(Self { _lock: lock }))
    }
}
