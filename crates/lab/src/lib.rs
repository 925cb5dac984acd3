//! Virtual rail nodes: a real kernel under QEMU.
//!
//! A [`Shape`] says what a node looks like; [`Assets`] are the kernel and the guest's programs,
//! fetched once; a [`Lab`] is a node that runs. In it the product's programs meet real sysfs, real
//! IPvlan, real GID tables and the reference tools. What it cannot show: NVIDIA's and Mellanox's
//! vendor ids (it has 1af4 and 1234), GPU class 0302 (0380 here), RoCE v1 GIDs, DOCA-OFED's zeroed
//! GIDs, bandwidth.
//!
//! Reading order: `shape` (what) -> `qemu` and `plan` (rendered) -> `assets` (from where) ->
//! `machine` (boot and use) -> `agent` (the other end, in the guest) -> `kube`, `testing`.

mod error;
mod shape;

mod plan;
mod qemu;

mod assets;
mod cpio;
mod tree;

mod machine;
mod wire;

#[doc(hidden)]
pub mod agent;

pub mod kube;
pub mod shell;
pub mod testing;

pub use assets::Assets;
pub use error::LabError;
pub use machine::{Builder, Cmd, Containerd, InNetns, Lab, Output, Process, Stream, TerminalSize};
pub use shape::{Device, Fault, Gpu, Kind, NAMES as SHAPES, Port, Root, Shape};
pub use wire::{BootReport, Status};
