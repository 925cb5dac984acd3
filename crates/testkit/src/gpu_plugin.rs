//! A device plugin for GPUs, or anything else: answers with an environment variable, as NVIDIA's
//! does, and with CDI names if wanted.

use crate::error::{Error, Result, in_words};
use crate::sockets;
use podrail_kubelet::proto::deviceplugin::device_plugin_server::{
    DevicePlugin, DevicePluginServer,
};
use podrail_kubelet::proto::deviceplugin::registration_client::RegistrationClient;
use podrail_kubelet::proto::deviceplugin::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse, Device,
    DevicePluginOptions, Empty, ListAndWatchResponse, NumaNode, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
    RegisterRequest, TopologyInfo,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// How often the plugin looks whether the kubelet has emptied the directory.
const LOOK: Duration = Duration::from_millis(200);

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Id that the kubelet sees, "GPU-...".
    pub id: String,
    /// Its NUMA node.
    pub numa: Option<i64>,
}

impl std::str::FromStr for Gpu {
    type Err = String;

    /// `ID` or `ID@NODE`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (id, numa) = match text.split_once('@') {
            None => (text, None),
            Some((id, node)) => {
                let node = node
                    .parse()
                    .map_err(|_| format!("{node:?} is no NUMA node"))?;
                (id, Some(node))
            }
        };
        match id.is_empty() {
            true => Err("a GPU needs an id".to_owned()),
            false => Ok(Self {
                id: id.to_owned(),
                numa,
            }),
        }
    }
}

/// What the plugin serves.
#[derive(Debug, Clone)]
pub struct GpuPlugin {
    /// The kubelet's directory for plugins.
    pub directory: PathBuf,
    /// `nvidia.com/gpu`.
    pub resource: String,
    /// Name of the variable that holds the ids.
    pub variable: String,
    /// CDI kind: each id is answered as a CDI name of it, too.
    pub cdi: Option<String>,
    /// All GPUs.
    pub gpus: Vec<Gpu>,
}

impl GpuPlugin {
    /// NVIDIA's resource and variable.
    pub fn nvidia(directory: PathBuf, gpus: Vec<Gpu>) -> Self {
        Self {
            directory,
            resource: "nvidia.com/gpu".to_owned(),
            variable: "NVIDIA_VISIBLE_DEVICES".to_owned(),
            cdi: None,
            gpus,
        }
    }

    fn endpoint(&self) -> String {
        format!("standin-{}.sock", self.resource.replace('/', "-"))
    }

    /// Serves and registers, again after each restart of the kubelet, until it is dropped.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub async fn run(self) -> Result<()> {
        loop {
            let socket = self.directory.join(self.endpoint());
            let listener = sockets::listen(&socket)?;
            let (devices, _) = watch::channel(self.devices());
            let service = DevicePluginServer::new(Served {
                plugin: self.clone(),
                devices,
            });
            let incoming = UnixListenerStream::new(listener);
            let server = Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming);
            tokio::select! {
                served = server => served.map_err(|error| Error::Plugin {
                    resource: self.resource.clone(),
                    message: in_words(&error),
                })?,
                () = self.registered_until_gone() => {}
            }
        }
    }

    /// Registers, then returns when the kubelet has removed the socket.
    async fn registered_until_gone(&self) {
        let socket = self.directory.join(self.endpoint());
        let mut registered = false;
        while socket.exists() {
            if !registered {
                registered = self.register().await.is_ok();
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn register(&self) -> std::result::Result<(), Status> {
        let socket = self.directory.join("kubelet.sock");
        let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let channel = sockets::channel(&socket).await.map_err(unreachable)?;
        let request = RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: self.endpoint(),
            resource_name: self.resource.clone(),
            options: None,
        };
        RegistrationClient::new(channel)
            .register(request)
            .await
            .map(drop)
    }

    fn devices(&self) -> Vec<Device> {
        let device = |gpu: &Gpu| Device {
            id: gpu.id.clone(),
            health: "Healthy".to_owned(),
            topology: gpu.numa.map(|id| TopologyInfo {
                nodes: vec![NumaNode { id }],
            }),
        };
        self.gpus.iter().map(device).collect()
    }
}

impl GpuPlugin {
    fn answer(&self, ids: &[String]) -> ContainerAllocateResponse {
        let cdi = self
            .cdi
            .iter()
            .flat_map(|kind| ids.iter().map(move |id| format!("{kind}={id}")));
        ContainerAllocateResponse {
            envs: HashMap::from([(self.variable.clone(), ids.join(","))]),
            cdi_devices: cdi.map(|name| CdiDevice { name }).collect(),
            ..Default::default()
        }
    }
}

struct Served {
    plugin: GpuPlugin,
    devices: watch::Sender<Vec<Device>>,
}

type Lists =
    std::pin::Pin<Box<dyn Stream<Item = std::result::Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Served {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> std::result::Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> std::result::Result<Response<Lists>, Status> {
        let lists = WatchStream::new(self.devices.subscribe());
        let lists = lists.map(|devices| Ok(ListAndWatchResponse { devices }));
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> std::result::Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("no preference"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> std::result::Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let answers = requests
            .into_iter()
            .map(|request| self.plugin.answer(&request.devices_ids));
        Ok(Response::new(AllocateResponse {
            container_responses: answers.collect(),
        }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> std::result::Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
