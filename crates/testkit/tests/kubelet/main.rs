//! The stand-in kubelet with the fake runtime: what a device plugin, a client of PodResources and a
//! runtime see of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bench;
mod devices;
mod network;
mod pods;
mod restart;
