//! The CNI protocol: environment and standard input in, a result or an error out.
//!
//! Facts: the CNI specification 1.1.0, and what libcni, containerd and CRI-O send. The previous
//! result is kept as raw text, so that it leaves exactly as it came.

mod config;
mod env;
mod error;

pub use config::{Attachment, NetConf, parse};
pub use env::{Call, Command, PodArgs};
pub use error::{CniError, Code};
/// What the plugin shares with the agent, which writes its configuration.
pub use podrail_node::{CNI_VERSIONS as VERSIONS, Places as Settings};

use serde::Serialize;

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
