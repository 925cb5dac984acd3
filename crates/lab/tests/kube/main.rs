//! The product in a cluster's node: real containerd and runc, a stand-in kubelet, the real kernel.
//!
//! Judges are the pods themselves, `ip -j`, sysfs and the post's own script. Without the lab's
//! assets these tests are skipped, and fail in CI.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: a panic is the failure"
)]

mod annotation;
mod by_hand;
mod containers;
mod degraded;
mod hand;
mod health;
mod inside;
mod pods;
mod power;
mod privileges;
mod races;
mod resource;
mod restarts;
mod support;

/// Calls of the plugin under faults: what takes seconds of it, in every run.
#[test]
fn calls_end_right() {
    let Some(lab) = hand::node() else { return };
    let short: Vec<_> = races::SHORT.into_iter().chain(degraded::SHORT).collect();
    support::run_all(&lab, &short);
}
