//! Network namespaces that live as long as a file.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;

/// A fresh namespace, bound to a new file.
pub(super) fn create(path: &Path) -> Result<(), String> {
    let failed =
        |act: &str, error: &dyn std::fmt::Display| format!("{act} {}: {error}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| failed("create folder of", &error))?;
    }
    std::fs::File::create(path).map_err(|error| failed("create", &error))?;
    let target = path.to_owned();
    // Only a thread of its own may leave its namespace.
    let made = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let none: Option<&str> = None;
        mount(
            Some("/proc/thread-self/ns/net"),
            &target,
            none,
            MsFlags::MS_BIND,
            none,
        )
    });
    match made.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed("make the namespace", &error)),
        Err(_) => Err(failed("make the namespace", &"the thread died")),
    }
}

/// Ends it. What is gone already is no fault.
pub(super) fn remove(path: &Path) {
    // Somebody may hold it open; it ends with the last one.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    let _ = std::fs::remove_file(path);
}
