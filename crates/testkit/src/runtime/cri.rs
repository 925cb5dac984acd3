//! A real runtime over the container runtime interface.

use super::{Doing, Runtime, Sandbox, Seen, labels};
use crate::error::{Error, Result};
use crate::proto::cri::image_service_client::ImageServiceClient;
use crate::proto::cri::runtime_service_client::RuntimeServiceClient;
use crate::proto::cri::{
    Container, ContainerConfig, ContainerFilter, ContainerState, ContainerStatusRequest,
    CreateContainerRequest, ExecSyncRequest, ExecSyncResponse, ImageSpec, ImageStatusRequest,
    ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxFilter,
    PodSandboxState, PodSandboxStatusRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StatusRequest, StopContainerRequest,
    StopPodSandboxRequest, VersionRequest,
};
use crate::sockets;
use std::collections::HashMap;
use std::path::Path;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The kubelet's own limit.
const LARGEST_ANSWER: usize = 16 << 20;

/// A runtime at a unix socket. Connects when it is used, and again after the runtime's restart.
#[derive(Debug, Clone)]
pub struct Cri {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Cri {
    /// The runtime at a socket.
    pub fn at(socket: &Path) -> Self {
        let channel = sockets::lazy_channel(socket);
        Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(LARGEST_ANSWER),
            images: ImageServiceClient::new(channel).max_decoding_message_size(LARGEST_ANSWER),
        }
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    /// The runtime cannot be reached.
    pub async fn version(&self) -> Result<String> {
        let request = VersionRequest {
            version: "v1".to_owned(),
        };
        let answer = self.runtime.clone().version(request).await;
        let answer = answer.map_err(refused("Version"))?.into_inner();
        Ok(format!(
            "{} {}",
            answer.runtime_name, answer.runtime_version
        ))
    }

    async fn doing(&self, container: &Container) -> Result<Doing> {
        match container.state() {
            ContainerState::ContainerCreated => Ok(Doing::Created),
            ContainerState::ContainerRunning => Ok(Doing::Running),
            // After a power cut containerd calls a container unknown, whose process is gone.
            _ => self.end(&container.id).await,
        }
    }

    async fn end(&self, id: &str) -> Result<Doing> {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.runtime.clone().container_status(request).await;
        let answer = answer.map_err(refused("ContainerStatus"))?.into_inner();
        let status = answer.status.unwrap_or_default();
        Ok(Doing::Exited {
            code: status.exit_code,
            reason: status.reason,
            message: status.message,
        })
    }

    async fn seen(&self, container: Container) -> Result<Seen> {
        let doing = self.doing(&container).await?;
        let metadata = container.metadata.unwrap_or_default();
        let mut labels = container.labels;
        Ok(Seen {
            pod: labels.remove(labels::POD_UID).unwrap_or_default(),
            id: container.id,
            sandbox: container.pod_sandbox_id,
            name: metadata.name,
            attempt: metadata.attempt,
            doing,
        })
    }
}

fn refused(call: &'static str) -> impl FnOnce(Status) -> Error {
    move |status| Error::Runtime {
        call,
        message: crate::devices::plugins::words(&status),
    }
}

/// What is gone already needs no removal.
fn or_gone<T>(call: &'static str, answer: std::result::Result<T, Status>) -> Result<()> {
    match answer {
        Err(status) if status.code() != Code::NotFound => Err(refused(call)(status)),
        _ => Ok(()),
    }
}

fn selector(pod: Option<&str>) -> HashMap<String, String> {
    let pod = pod.map(|uid| (labels::POD_UID.to_owned(), uid.to_owned()));
    pod.into_iter().collect()
}

fn sandbox(item: PodSandbox) -> Sandbox {
    let ready = item.state() == PodSandboxState::SandboxReady;
    let metadata = item.metadata.unwrap_or_default();
    Sandbox {
        id: item.id,
        pod: metadata.uid,
        attempt: metadata.attempt,
        ready,
    }
}

#[tonic::async_trait]
impl Runtime for Cri {
    async fn run_sandbox(&self, config: &PodSandboxConfig) -> Result<String> {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let answer = self.runtime.clone().run_pod_sandbox(request).await;
        Ok(answer
            .map_err(refused("RunPodSandbox"))?
            .into_inner()
            .pod_sandbox_id)
    }

    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        or_gone(
            "StopPodSandbox",
            self.runtime.clone().stop_pod_sandbox(request).await,
        )
    }

    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        or_gone(
            "RemovePodSandbox",
            self.runtime.clone().remove_pod_sandbox(request).await,
        )
    }

    async fn sandboxes(&self, pod: Option<&str>) -> Result<Vec<Sandbox>> {
        let filter = PodSandboxFilter {
            id: String::new(),
            label_selector: selector(pod),
        };
        let request = ListPodSandboxRequest {
            filter: Some(filter),
        };
        let answer = self.runtime.clone().list_pod_sandbox(request).await;
        let items = answer
            .map_err(refused("ListPodSandbox"))?
            .into_inner()
            .items;
        Ok(items.into_iter().map(sandbox).collect())
    }

    async fn addresses(&self, sandbox: &str) -> Result<Vec<String>> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: sandbox.to_owned(),
            verbose: false,
        };
        let answer = self.runtime.clone().pod_sandbox_status(request).await;
        let status = answer
            .map_err(refused("PodSandboxStatus"))?
            .into_inner()
            .status;
        let network = status.unwrap_or_default().network.unwrap_or_default();
        let more = network.additional_ips.into_iter().map(|ip| ip.ip);
        let all = std::iter::once(network.ip).chain(more);
        Ok(all.filter(|ip| !ip.is_empty()).collect())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config.clone()),
            sandbox_config: Some(sandbox_config.clone()),
        };
        let answer = self.runtime.clone().create_container(request).await;
        Ok(answer
            .map_err(refused("CreateContainer"))?
            .into_inner()
            .container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = StartContainerRequest {
            container_id: id.to_owned(),
        };
        let answer = self.runtime.clone().start_container(request).await;
        answer.map(drop).map_err(refused("StartContainer"))
    }

    async fn stop_container(&self, id: &str, grace: i64) -> Result<()> {
        let request = StopContainerRequest {
            container_id: id.to_owned(),
            timeout: grace,
        };
        or_gone(
            "StopContainer",
            self.runtime.clone().stop_container(request).await,
        )
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        or_gone(
            "RemoveContainer",
            self.runtime.clone().remove_container(request).await,
        )
    }

    async fn containers(&self, pod: Option<&str>) -> Result<Vec<Seen>> {
        let filter = ContainerFilter {
            label_selector: selector(pod),
            ..Default::default()
        };
        let request = ListContainersRequest {
            filter: Some(filter),
        };
        let answer = self.runtime.clone().list_containers(request).await;
        let items = answer
            .map_err(refused("ListContainers"))?
            .into_inner()
            .containers;
        let mut seen = Vec::new();
        for item in items {
            seen.push(self.seen(item).await?);
        }
        Ok(seen)
    }

    async fn exec(&self, id: &str, command: &[String], timeout: i64) -> Result<ExecSyncResponse> {
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout,
        };
        let answer = self.runtime.clone().exec_sync(request).await;
        Ok(answer.map_err(refused("ExecSync"))?.into_inner())
    }

    async fn unready(&self) -> Result<Vec<String>> {
        let answer = self
            .runtime
            .clone()
            .status(StatusRequest { verbose: false })
            .await;
        let status = answer.map_err(refused("Status"))?.into_inner().status;
        let conditions = status.unwrap_or_default().conditions.into_iter();
        Ok(conditions
            .filter(|condition| !condition.status)
            // containerd 2.x lists deprecations as a condition too.
            .filter(|c| ["RuntimeReady", "NetworkReady"].contains(&c.r#type.as_str()))
            .map(|c| format!("{}: {}: {}", c.r#type, c.reason, c.message))
            .collect())
    }

    async fn has_image(&self, image: &str) -> Result<bool> {
        let request = ImageStatusRequest {
            image: Some(ImageSpec {
                image: image.to_owned(),
            }),
        };
        let answer = self.images.clone().image_status(request).await;
        Ok(answer
            .map_err(refused("ImageStatus"))?
            .into_inner()
            .image
            .is_some())
    }
}
