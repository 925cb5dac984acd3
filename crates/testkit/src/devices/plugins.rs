//! Speaks with device plugins: takes registrations, follows their lists, asks for allocations.

use crate::error::{Error, Result};
use crate::sockets;
use crate::state::Shared;
use podrail_kubelet::proto::deviceplugin::device_plugin_client::DevicePluginClient;
use podrail_kubelet::proto::deviceplugin::registration_server::{Registration, RegistrationServer};
use podrail_kubelet::proto::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreferredAllocationRequest, RegisterRequest,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};

/// A plugin that is connected.
#[derive(Debug, Clone)]
pub struct Plugin {
    client: DevicePluginClient<Channel>,
    options: DevicePluginOptions,
    /// Tells a plugin from the one that registered after it.
    number: u64,
}

/// Connected plugins by resource.
#[derive(Debug, Default)]
pub struct Plugins {
    connected: BTreeMap<String, Plugin>,
    count: u64,
}

impl Plugins {
    /// The plugin of a resource.
    pub fn get(&self, resource: &str) -> Option<Plugin> {
        self.connected.get(resource).cloned()
    }

    fn add(&mut self, resource: &str, mut plugin: Plugin) -> u64 {
        self.count += 1;
        plugin.number = self.count;
        self.connected.insert(resource.to_owned(), plugin);
        self.count
    }

    fn is_current(&self, resource: &str, number: u64) -> bool {
        let plugin = self.connected.get(resource);
        plugin.is_some_and(|plugin| plugin.number == number)
    }
}

impl Plugin {
    async fn connect(socket: &Path) -> std::result::Result<Self, Status> {
        let unreachable = |error: tonic::transport::Error| {
            Status::internal(format!(
                "failed to dial device plugin: {}",
                crate::error::in_words(&error)
            ))
        };
        let channel = sockets::channel(socket).await.map_err(unreachable)?;
        let mut client = DevicePluginClient::new(channel);
        let options = client
            .get_device_plugin_options(Empty {})
            .await?
            .into_inner();
        Ok(Self {
            client,
            options,
            number: 0,
        })
    }

    /// Which of the free devices the plugin would give, if it has an opinion.
    ///
    /// # Errors
    /// The plugin refuses or is gone.
    pub async fn preferred(
        &mut self,
        resource: &str,
        request: ContainerPreferredAllocationRequest,
    ) -> Result<Option<Vec<String>>> {
        if !self.options.get_preferred_allocation_available {
            return Ok(None);
        }
        let request = PreferredAllocationRequest {
            container_requests: vec![request],
        };
        let answer = self.client.get_preferred_allocation(request).await;
        let answer = answer.map_err(refused(resource))?.into_inner();
        Ok(answer
            .container_responses
            .into_iter()
            .next()
            .map(|r| r.device_i_ds))
    }

    /// Asks for devices of one container.
    ///
    /// # Errors
    /// The plugin refuses or is gone.
    pub async fn allocate(
        &mut self,
        resource: &str,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse> {
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                devices_ids: ids.to_vec(),
            }],
        };
        let answer = self.client.allocate(request).await;
        let mut answers = answer
            .map_err(refused(resource))?
            .into_inner()
            .container_responses;
        match (answers.pop(), answers.is_empty()) {
            (Some(answer), true) => Ok(answer),
            _ => Err(Error::Plugin {
                resource: resource.to_owned(),
                message: "not one answer for one container".to_owned(),
            }),
        }
    }
}

fn refused(resource: &str) -> impl FnOnce(Status) -> Error {
    let resource = resource.to_owned();
    move |status| Error::Plugin {
        resource,
        message: words(&status),
    }
}

/// A status as the kubelet prints it.
pub(crate) fn words(status: &Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}

/// Empties the directory but for the checkpoint, as every kubelet does at start.
///
/// # Errors
/// The directory cannot be made or read, or a file in it cannot be removed.
pub fn clear(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(Error::io("create", directory))?;
    let entries = std::fs::read_dir(directory).map_err(Error::io("list", directory))?;
    for entry in entries {
        let path = entry.map_err(Error::io("list", directory))?.path();
        if !path.ends_with(super::checkpoint::FILE) && !path.is_dir() {
            std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Serves registrations until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, directory: PathBuf, shared: Arc<Shared>) {
    let service = RegistrationServer::new(Registrar {
        directory,
        shared: Arc::clone(&shared),
    });
    let incoming = UnixListenerStream::new(listener);
    let served = Server::builder()
        .add_service(service)
        .serve_with_incoming(incoming)
        .await;
    if let Err(error) = served {
        shared.note(&format!(
            "registrations end: {}",
            crate::error::in_words(&error)
        ));
    }
}

struct Registrar {
    directory: PathBuf,
    shared: Arc<Shared>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(
        &self,
        request: Request<RegisterRequest>,
    ) -> std::result::Result<Response<Empty>, Status> {
        let request = request.into_inner();
        check(&request)?;
        let plugin = Plugin::connect(&self.directory.join(&request.endpoint)).await?;
        let client = plugin.client.clone();
        let resource = request.resource_name;
        let number = self
            .shared
            .with(|state| state.plugins.add(&resource, plugin));
        self.shared
            .note(&format!("plugin of {resource} registered"));
        self.shared
            .spawn(follow(Arc::clone(&self.shared), resource, number, client));
        Ok(Response::new(Empty {}))
    }
}

fn check(request: &RegisterRequest) -> std::result::Result<(), Status> {
    let RegisterRequest {
        version,
        endpoint,
        resource_name,
        ..
    } = request;
    if version != "v1beta1" {
        return Err(Status::unknown(format!(
            "requested API version {version:?} is not supported by kubelet. Supported version is \
             [\"v1beta1\"]"
        )));
    }
    let (domain, name) = resource_name.split_once('/').unwrap_or_default();
    if domain.is_empty() || name.is_empty() || domain.ends_with("kubernetes.io") {
        return Err(Status::unknown(format!(
            "the ResourceName {resource_name:?} is invalid"
        )));
    }
    match endpoint.is_empty() || endpoint.contains('/') {
        true => Err(Status::unknown(format!(
            "endpoint {endpoint:?} is no file name"
        ))),
        false => Ok(()),
    }
}

async fn follow(
    shared: Arc<Shared>,
    resource: String,
    number: u64,
    mut client: DevicePluginClient<Channel>,
) {
    if let Ok(list) = client.list_and_watch(Empty {}).await {
        take_lists(&shared, &resource, number, list.into_inner()).await;
    }
    shared.with(|state| {
        if state.plugins.is_current(&resource, number) {
            state.books.lose(&resource);
            state.plugins.connected.remove(&resource);
        }
    });
    shared.note(&format!("plugin of {resource} is gone"));
}

async fn take_lists(
    shared: &Shared,
    resource: &str,
    number: u64,
    mut lists: Streaming<ListAndWatchResponse>,
) {
    while let Ok(Some(list)) = lists.message().await {
        shared.note(&said(resource, &list.devices));
        shared.with(|state| {
            if state.plugins.is_current(resource, number) {
                state.books.update(resource, &list.devices);
            }
        });
    }
}

fn said(resource: &str, devices: &[Device]) -> String {
    let bad = devices.iter().filter(|device| device.health != "Healthy");
    let bad: Vec<&str> = bad.map(|device| device.id.as_str()).collect();
    let count = devices.len();
    format!(
        "plugin of {resource} lists {count}, unhealthy: [{}]",
        bad.join(" ")
    )
}
