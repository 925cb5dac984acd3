//! Stand-ins that keep state: a kubelet that admits pods, hands out devices and drives a container
//! runtime, and a device plugin for GPUs.
//!
//! The stand-in kubelet behaves towards device plugins, clients of PodResources and the container
//! runtime as the real one (1.34 to 1.36): no scheduler, no API server, one node. Pods are files.

pub mod cli;
pub mod contract;
pub mod control;
pub mod devices;
pub mod engine;
pub mod error;
pub mod gpu_plugin;
pub mod knobs;
pub mod kubelet;
pub mod manifest;
pub mod podresources;
pub mod runtime;
pub mod status;

mod admission;
mod life;
mod settings;
mod sockets;
mod state;
mod worker;

pub use error::{Error, Result};
pub use kubelet::{Kubelet, Settings};

/// Messages and calls of the runtime interface, generated from `proto/`.
pub mod proto {
    /// The container runtime interface, `runtime.v1`.
    #[allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        reason = "generated from proto/cri.proto, which documents it"
    )]
    pub mod cri {
        tonic::include_proto!("runtime.v1");
    }
}
