//! The product on virtual nodes: each module boots its own and looks at the kernel with `ip`,
//! `rdma`, `strace` and the reference plugins, never with the product's own readers.
//!
//! Level of proof L2: a real kernel with emulated devices.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

mod faults;
mod journey;
mod lost_state;
mod reference;
mod refusals;
