//! The same calls for programs without an async runtime, as the CNI plugin is.

use super::{PodResources, PodResourcesError};
use podrail_core::pods::ListedPod;
use std::path::Path;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};

/// All admitted pods; see [`PodResources::list`]. Not for use inside an async task.
///
/// # Errors
/// As [`PodResources::list`], and [`PodResourcesError::Runtime`].
pub fn list(socket: &Path, deadline: Instant) -> Result<Vec<ListedPod>, PodResourcesError> {
    runtime()?.block_on(PodResources::new(socket).list(deadline))
}

/// One pod by name; see [`PodResources::get`]. Not for use inside an async task.
///
/// # Errors
/// As [`PodResources::get`], and [`PodResourcesError::Runtime`].
pub fn get(
    socket: &Path,
    namespace: &str,
    name: &str,
    deadline: Instant,
) -> Result<Option<ListedPod>, PodResourcesError> {
    runtime()?.block_on(PodResources::new(socket).get(namespace, name, deadline))
}

fn runtime() -> Result<Runtime, PodResourcesError> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| PodResourcesError::Runtime { source })
}
