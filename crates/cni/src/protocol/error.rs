//! Errors as a runtime reads them.

use podrail_core::words::visible;
use serde::Serialize;

/// Error codes. Below 100 they are the specification's; runtimes and their logs know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// The version is not spoken here.
    Version = 1,
    /// An environment variable is missing or wrong.
    Environment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// Standard input is no JSON of a network configuration.
    Decode = 6,
    /// The network configuration, or the pod's annotation, asks for what there is not.
    Config = 7,
    /// Nothing is wrong that time does not heal: the kubelet tries again.
    TryAgain = 11,
    /// The node or the pod has too few rails, and waiting does not help.
    Rails = 100,
    /// The pool has too few addresses.
    Addresses = 101,
    /// The kernel refused; everything was undone.
    Kernel = 102,
    /// The state file cannot be used.
    State = 103,
    /// CHECK found something wrong.
    Check = 104,
    /// Something of a sandbox could not be taken away; it stays reserved.
    Teardown = 105,
}

/// What went wrong, in the specification's form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CniError {
    /// The code.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// Causes and the next step.
    pub details: String,
}

impl CniError {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: String::new(),
        }
    }

    /// The same with causes or the next step.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// As it is printed on standard output. Kubelet and runtime show `msg` and `details` in the
    /// pod's events.
    #[must_use]
    pub fn to_json(&self, version: &str) -> String {
        #[derive(Serialize)]
        struct Answer<'a> {
            #[serde(rename = "cniVersion")]
            version: &'a str,
            code: u32,
            msg: String,
            #[serde(skip_serializing_if = "String::is_empty")]
            details: String,
        }
        let answer = Answer {
            version,
            code: self.code as u32,
            msg: visible(&format!("podrail: {}", self.message)),
            details: visible(&self.details),
        };
        // Plain texts and a number: this always serialises.
        serde_json::to_string(&answer).unwrap_or_default()
    }
}
