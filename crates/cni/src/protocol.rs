//! The CNI protocol: environment and standard input in, a result or an error out.
//!
//! Facts: the CNI specification 1.1.0, and what libcni, containerd and CRI-O send. The previous
//! result is kept as raw text, so that it leaves exactly as it came.

mod config;
mod env;
mod error;

pub use config::{Attachment, NetConf, Settings, parse};
pub use env::{Call, Command, PodArgs};
pub use error::{CniError, Code};

use serde::Serialize;

/// Versions of the protocol that this plugin speaks. 0.3.x has no CHECK, but many clusters' own
/// plugins are still configured with it, and a chain has one version.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Spoken where the caller's version is not known (an unreadable configuration).
pub const NEWEST: &str = "1.1.0";

/// Answer to VERSION.
#[must_use]
pub fn version_answer() -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        cni_version: &'static str,
        supported_versions: [&'static str; 5],
    }
    let answer = Answer {
        cni_version: NEWEST,
        supported_versions: VERSIONS,
    };
    // Plain texts: this always serialises.
    serde_json::to_string(&answer).unwrap_or_default()
}

#[cfg(test)]
mod tests;
