//! Takes turns: as many nodes at once as the machine has processors, over all processes.
//!
//! A node keeps one processor busy. Two on one processor are each more than twice as slow, and
//! waits that are long enough for one node are not for a starved one.

use std::fs::File;
use std::path::PathBuf;
use std::thread::available_parallelism;

use crate::assets::Assets;
use crate::error::LabError;

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
        let paths: Vec<PathBuf> = (0..most)
            .map(|number| dir.join(number.to_string()))
            .collect();
        for path in &paths {
            let lock = File::create(path).map_err(LabError::io("create", path))?;
            if lock.try_lock().is_ok() {
                return Ok(Self { _lock: lock });
            }
        }
        // All are taken: this one waits for any of them, as well spread as can be.
        let number = usize::try_from(std::process::id()).unwrap_or(0) % most;
        let path = dir.join(number.to_string());
        let lock = File::create(&path).map_err(LabError::io("create", &path))?;
        lock.lock().map_err(LabError::io("lock", &path))?;
        Ok(Self { _lock: lock })
    }
}
