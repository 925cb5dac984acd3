//! Files below `/proc/sys`, as the calling thread's network namespace has them.

use podrail_core::plan::Sysctl;
use podrail_netlink::{NetNs, NetNsError};
use std::io;
use std::path::PathBuf;

/// Reads a sysctl in a namespace; nothing if there is no such setting (IPv6 disabled).
///
/// # Errors
/// The namespace cannot be entered. A setting that cannot be read counts as absent.
pub fn read_sysctl(pod: &NetNs, path: &str) -> Result<Option<String>, NetNsError> {
    let file = file(path);
    pod.run(|| {
        std::fs::read_to_string(file)
            .ok()
            .map(|text| text.trim().to_owned())
    })
}

/// Sets a value; the calling thread must be in the namespace. A setting of IPv6 that does not
/// exist is left out: the kernel may run without IPv6, and then there is nothing to guard.
pub(crate) fn write(sysctl: &Sysctl, value: &str) -> io::Result<()> {
    match std::fs::write(file(&sysctl.path), value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && sysctl.path.contains("/ipv6/") => {
            Ok(())
        }
        other => other,
    }
}

/// The file of a sysctl.
pub(crate) fn file(path: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(path)
}
