//! Speaks with the kubelet: device plugin, registration, PodResources, checkpoint.
//!
//! - [`plugin`]: offers slots as an extended resource and stays registered ([`plugin::run`]).
//! - [`podresources`]: which devices each admitted pod got ([`podresources::blocking::list`]).
//! - [`checkpoint`]: the same with pod UIDs and plain init containers, from the kubelet's file.
//!
//! Deliberately absent: what a slot becomes, and which slots are healthy. The caller knows.

pub mod checkpoint;
mod client;
mod grants;
pub mod plugin;
pub mod podresources;

/// Messages and services as the kubelet speaks them, generated from `proto/`.
pub mod proto {
    /// Device plugins, `v1beta1`.
    #[allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::too_many_lines,
        reason = "generated from proto/deviceplugin.proto, which documents it"
    )]
    pub mod deviceplugin {
        tonic::include_proto!("v1beta1");
    }
    /// PodResources, `v1`.
    #[allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::too_many_lines,
        reason = "generated from proto/podresources.proto, which documents it"
    )]
    pub mod podresources {
        tonic::include_proto!("v1");
    }
}
