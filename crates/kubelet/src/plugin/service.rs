//! What the kubelet calls on the plugin's socket.

use crate::proto::deviceplugin as proto;
use podrail_core::cdi::KIND;
use podrail_core::ids::SlotId;
use proto::device_plugin_server::DevicePlugin;
use std::collections::BTreeSet;
use std::error::Error;
use std::future::Future;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// A slot as the kubelet sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Its id.
    pub id: SlotId,
    /// Whether the kubelet may give it to a pod.
    pub healthy: bool,
}

/// Prepares slots that the kubelet is about to give to containers.
pub trait Allocator: Send + Sync + 'static {
    /// Called before the kubelet gets its answer, once per request: one list of slots for each
    /// container, ascending, no slot twice, all of the advertised list. Which pods is unknown.
    ///
    /// The kubelet never tells that slots are free again, and may ask for the same slots any number
    /// of times.
    fn allocate(
        &self,
        containers: &[Vec<SlotId>],
    ) -> impl Future<Output = Result<(), AllocateError>> + Send;
}

/// The slots cannot be prepared. The kubelet then refuses the pod.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare the slots")]
pub struct AllocateError {
    source: Box<dyn Error + Send + Sync>,
}

impl AllocateError {
    /// For this reason.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: source.into(),
        }
    }
}

/// Streams of lists: how many were opened ever, how many are open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Streams {
    pub(super) opened: u64,
    pub(super) open: usize,
}

/// The plugin's side of the protocol.
pub(super) struct Service<A> {
    allocator: A,
    slots: watch::Receiver<Vec<Slot>>,
    ended: watch::Receiver<bool>,
    streams: watch::Sender<Streams>,
}

impl<A> Service<A> {
    pub(super) fn new(
        allocator: A,
        slots: watch::Receiver<Vec<Slot>>,
        ended: watch::Receiver<bool>,
        streams: watch::Sender<Streams>,
    ) -> Self {
        Self {
            allocator,
            slots,
            ended,
            streams,
        }
    }

    /// The slots of each container, ascending.
    fn requested(
        &self,
        containers: &[proto::ContainerAllocateRequest],
    ) -> Result<Vec<Vec<SlotId>>, Status> {
        let known: BTreeSet<SlotId> = self.slots.borrow().iter().map(|slot| slot.id).collect();
        let mut seen = BTreeSet::new();
        let mut slot_of = |text: &String| {
            let slot =
                SlotId::parse(text).map_err(|bad| Status::invalid_argument(bad.to_string()))?;
            if !known.contains(&slot) {
                return Err(Status::invalid_argument(format!(
                    "{slot} is no slot of this node"
                )));
            }
            if !seen.insert(slot) {
                return Err(Status::invalid_argument(format!(
                    "{slot} is requested twice"
                )));
            }
            Ok(slot)
        };
        let mut lists = Vec::with_capacity(containers.len());
        for container in containers {
            let slots: Result<Vec<SlotId>, Status> =
                container.devices_ids.iter().map(&mut slot_of).collect();
            let mut slots = slots?;
            slots.sort_unstable();
            lists.push(slots);
        }
        Ok(lists)
    }
}

#[tonic::async_trait]
impl<A: Allocator> DevicePlugin for Service<A> {
    type ListAndWatchStream = ReceiverStream<Result<proto::ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(
        &self,
        _request: Request<proto::Empty>,
    ) -> Result<Response<proto::DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    async fn list_and_watch(
        &self,
        _request: Request<proto::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (lists, stream) = mpsc::channel(1);
        let feed = Feed {
            slots: self.slots.clone(),
            ended: self.ended.clone(),
            lists,
            _open: OpenStream::new(self.streams.clone()),
        };
        tokio::spawn(feed.run());
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn get_preferred_allocation(
        &self,
        _request: Request<proto::PreferredAllocationRequest>,
    ) -> Result<Response<proto::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented(
            "all slots are alike: none is preferred",
        ))
    }

    async fn allocate(
        &self,
        request: Request<proto::AllocateRequest>,
    ) -> Result<Response<proto::AllocateResponse>, Status> {
        let containers = self.requested(&request.into_inner().container_requests)?;
        let prepared = self.allocator.allocate(&containers).await;
        prepared.map_err(|error| Status::internal(with_causes(&error)))?;
        let container_responses = containers.iter().map(|slots| answer(slots)).collect();
        Ok(Response::new(proto::AllocateResponse {
            container_responses,
        }))
    }

    async fn pre_start_container(
        &self,
        _request: Request<proto::PreStartContainerRequest>,
    ) -> Result<Response<proto::PreStartContainerResponse>, Status> {
        Ok(Response::new(proto::PreStartContainerResponse {}))
    }
}

/// What the plugin wants of the kubelet beyond lists and allocations: nothing.
pub(super) fn options() -> proto::DevicePluginOptions {
    proto::DevicePluginOptions {
        pre_start_required: false,
        get_preferred_allocation_available: false,
    }
}

/// Names only: environment and device nodes are in the CDI files, which know the rails.
fn answer(slots: &[SlotId]) -> proto::ContainerAllocateResponse {
    let name = |slot: &SlotId| proto::CdiDevice {
        name: format!("{KIND}={slot}"),
    };
    proto::ContainerAllocateResponse {
        cdi_devices: slots.iter().map(name).collect(),
        ..Default::default()
    }
}

/// Across a process boundary the chain of causes has to be text.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Feeds one stream with the current list, then with each change.
struct Feed {
    slots: watch::Receiver<Vec<Slot>>,
    ended: watch::Receiver<bool>,
    lists: mpsc::Sender<Result<proto::ListAndWatchResponse, Status>>,
    _open: OpenStream,
}

impl Feed {
    async fn run(mut self) {
        let mut sent = Vec::new();
        loop {
            let list = self.slots.borrow_and_update().clone();
            // The kubelet would forget the resource for an empty list.
            if !list.is_empty() && list != sent {
                if self.lists.send(Ok(response(&list))).await.is_err() {
                    return;
                }
                sent = list;
            }
            tokio::select! {
                () = self.lists.closed() => return,
                _ended = self.ended.wait_for(|ended| *ended) => return,
                () = changed(&mut self.slots) => {}
            }
        }
    }
}

/// The next change; none comes once the sender is gone.
async fn changed(slots: &mut watch::Receiver<Vec<Slot>>) {
    if slots.changed().await.is_err() {
        std::future::pending().await
    }
}

/// No topology: with NUMA hints the Topology Manager could reject pods because of rails.
fn response(list: &[Slot]) -> proto::ListAndWatchResponse {
    let device = |slot: &Slot| proto::Device {
        id: slot.id.to_string(),
        health: if slot.healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
        topology: None,
    };
    proto::ListAndWatchResponse {
        devices: list.iter().map(device).collect(),
    }
}

/// Counts a stream as open while it lives.
struct OpenStream(watch::Sender<Streams>);

impl OpenStream {
    fn new(streams: watch::Sender<Streams>) -> Self {
        streams.send_modify(|streams| {
            streams.opened += 1;
            streams.open += 1;
        });
        Self(streams)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0
            .send_modify(|streams| streams.open = streams.open.saturating_sub(1));
    }
}
