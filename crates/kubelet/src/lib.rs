//! Speaks with the kubelet: device plugin, registration, PodResources, checkpoint.

/// Messages and services as the kubelet speaks them, generated from `proto/`.
pub mod proto {
    /// Device plugins, `v1beta1`.
    #[allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
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
        reason = "generated from proto/podresources.proto, which documents it"
    )]
    pub mod podresources {
        tonic::include_proto!("v1");
    }
}
