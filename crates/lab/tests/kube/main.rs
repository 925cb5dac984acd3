//! The product in a cluster's node: real containerd and runc, a stand-in kubelet, the real kernel.
//!
//! Judges are the pods themselves, `ip -j`, sysfs and the post's own script. Without the lab's
//! assets these tests are skipped, and fail in CI.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a panic is the failure"
)]

mod pods;
mod support;
