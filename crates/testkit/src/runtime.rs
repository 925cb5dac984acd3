//! What the stand-in kubelet asks of a container runtime; two of them.

pub mod cri;
pub mod fake;

use crate::error::Result;
use crate::proto::cri::{ContainerConfig, ExecSyncResponse, PodSandboxConfig};

/// Labels by which the kubelet finds its own sandboxes and containers again.
pub mod labels {
    /// Name of the pod.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Namespace of the pod.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// UID of the pod.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Name of the container.
    pub const CONTAINER: &str = "io.kubernetes.container.name";
}

/// A pod sandbox as the runtime lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Id.
    pub id: String,
    /// UID of its pod.
    pub pod: String,
    /// Counts the sandboxes of the pod.
    pub attempt: u32,
    /// Whether its pause process and namespaces are there.
    pub ready: bool,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// Made, not started.
    Created,
    /// Runs.
    Running,
    /// Has ended.
    Exited {
        /// With this code.
        code: i32,
        /// "Completed", "Error", "StartError".
        reason: String,
        /// More words.
        message: String,
    },
}

/// A container as the runtime lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Id.
    pub id: String,
    /// UID of its pod.
    pub pod: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Its name in the pod.
    pub name: String,
    /// Counts its starts.
    pub attempt: u32,
    /// What it does.
    pub doing: Doing,
}

/// A container runtime. Dropping a future cancels the call, as the end of a gRPC call does.
#[tonic::async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Starts a sandbox with its network; gives its id.
    async fn run_sandbox(&self, config: &PodSandboxConfig) -> Result<String>;
    /// Takes its network away and ends its processes. Twice is no fault.
    async fn stop_sandbox(&self, id: &str) -> Result<()>;
    /// Forgets it and its containers. Twice is no fault.
    async fn remove_sandbox(&self, id: &str) -> Result<()>;
    /// Sandboxes of one pod, by UID, or of all.
    async fn sandboxes(&self, pod: Option<&str>) -> Result<Vec<Sandbox>>;
    /// The pod's addresses.
    async fn addresses(&self, sandbox: &str) -> Result<Vec<String>>;
    /// Makes a container; CDI names are resolved here.
    async fn create_container(
        &self,
        sandbox: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String>;
    /// Starts it.
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Ends it: TERM, and KILL after `grace` seconds. Twice is no fault.
    async fn stop_container(&self, id: &str, grace: i64) -> Result<()>;
    /// Forgets it.
    async fn remove_container(&self, id: &str) -> Result<()>;
    /// Containers of one pod, by UID, or of all.
    async fn containers(&self, pod: Option<&str>) -> Result<Vec<Seen>>;
    /// Runs a command in a container; `timeout` in seconds, 0 is without end.
    async fn exec(&self, id: &str, command: &[String], timeout: i64) -> Result<ExecSyncResponse>;
    /// What is not ready, in words; empty when all is.
    async fn unready(&self) -> Result<Vec<String>>;
    /// Whether the runtime can start this image.
    async fn has_image(&self, image: &str) -> Result<bool>;
}
