//! Client of the kubelet's PodResources service, v1: which devices each admitted pod has.
//!
//! The kubelet answers a hundred calls a second, ten at once, and refuses the rest
//! (`pkg/kubelet/apis/podresources/grpc`): refused calls are repeated until the caller's deadline.

pub mod blocking;
mod error;
mod retry;

pub use error::PodResourcesError;

use crate::client::Connection;
use crate::grants::Grants;
use crate::proto::podresources as proto;
use podrail_core::pods::{DeviceGrant, ListedPod};
use proto::pod_resources_lister_client::PodResourcesListerClient;
use std::path::PathBuf;
use std::time::Instant;
use tonic::Code;

/// Where a kubelet with its usual root directory listens.
pub const DEFAULT_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// Largest answer taken, in bytes. The kubelet's own clients use the same limit.
pub const LARGEST_ANSWER: usize = 16 << 20;

/// The PodResources service behind one socket. Each call opens a connection of its own.
///
/// # Guarantees
/// A call that is dropped half-way leaves nothing behind, and may be made again.
#[derive(Debug, Clone)]
pub struct PodResources {
    socket: PathBuf,
}

impl PodResources {
    /// A client of the service at this socket. Does nothing yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// All pods that the kubelet has admitted, with their devices.
    ///
    /// Refused calls (rate limit, kubelet starting) are repeated until the deadline.
    ///
    /// # Errors
    /// See [`PodResourcesError`]; never later than the deadline.
    pub async fn list(&self, deadline: Instant) -> Result<Vec<ListedPod>, PodResourcesError> {
        retry::until(&self.socket, deadline, || self.list_once()).await
    }

    /// One pod by name, or none if the kubelet has not admitted such a pod.
    ///
    /// Kubelets older than 1.34 do not answer `Get`; their whole list is asked for then.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<ListedPod>, PodResourcesError> {
        let answer =
            retry::until(&self.socket, deadline, || self.get_once(namespace, name)).await?;
        match answer {
            Got::Pod(pod) => Ok(pod),
            Got::Unknown => {
                let pods = self.list(deadline).await?;
                Ok(pods
                    .into_iter()
                    .find(|pod| pod.namespace == namespace && pod.name == name))
            }
        }
    }

    async fn list_once(&self) -> Result<Vec<ListedPod>, PodResourcesError> {
        let answer = self
            .connect()
            .await?
            .list(proto::ListPodResourcesRequest {})
            .await
            .map_err(|status| PodResourcesError::of_status(&self.socket, status))?;
        let pods = answer.into_inner().pod_resources;
        Ok(pods.into_iter().map(listed).collect())
    }

    async fn get_once(&self, namespace: &str, name: &str) -> Result<Got, PodResourcesError> {
        let request = proto::GetPodResourcesRequest {
            pod_name: name.to_owned(),
            pod_namespace: namespace.to_owned(),
        };
        match self.connect().await?.get(request).await {
            Ok(answer) => Ok(Got::Pod(answer.into_inner().pod_resources.map(listed))),
            Err(status) => match PodResourcesError::of_status(&self.socket, status) {
                // The kubelet gives both "method disabled" and "pod not found" without a code.
                PodResourcesError::Answer { code, .. }
                    if [Code::Unimplemented, Code::Unknown, Code::NotFound].contains(&code) =>
                {
                    Ok(Got::Unknown)
                }
                error => Err(error),
            },
        }
    }

    async fn connect(&self) -> Result<PodResourcesListerClient<Connection>, PodResourcesError> {
        let connection = Connection::open(&self.socket)
            .await
            .map_err(|source| PodResourcesError::of_connect(&self.socket, source))?;
        let client = PodResourcesListerClient::with_origin(connection, Connection::origin());
        Ok(client.max_decoding_message_size(LARGEST_ANSWER))
    }
}

/// What `Get` told.
enum Got {
    Pod(Option<ListedPod>),
    /// It does not know: only the list can tell.
    Unknown,
}

fn listed(pod: proto::PodResources) -> ListedPod {
    ListedPod {
        devices: merged(pod.containers),
        namespace: pod.namespace,
        name: pod.name,
    }
}

fn merged(containers: Vec<proto::ContainerResources>) -> Vec<DeviceGrant> {
    let mut grants = Grants::new();
    for container in containers {
        for devices in container.devices {
            let name = container.name.clone();
            grants.add((), name, devices.resource_name, devices.device_ids);
        }
    }
    grants.finish().map(|((), grant)| grant).collect()
}

#[cfg(test)]
mod tests;
