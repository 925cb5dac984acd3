//! PodResources v1 as the kubelet serves it, with its limits and its gaps.

use crate::devices::{Grant, NO_NUMA};
use crate::knobs::{Get, Knobs, Layout};
use crate::manifest::Pod;
use crate::state::{Entry, Shared, State};
use podrail_kubelet::proto::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use podrail_kubelet::proto::podresources::{
    ContainerDevices, ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Requests per second, and at once, that the kubelet allows.
const RATE: f64 = 100.0;
const BURST: f64 = 10.0;

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, shared: Arc<Shared>) {
    let lister = Lister {
        shared: Arc::clone(&shared),
        limit: Mutex::new(Limit {
            tokens: BURST,
            at: Instant::now(),
        }),
    };
    let service = PodResourcesListerServer::new(lister);
    let incoming = UnixListenerStream::new(listener);
    let served = Server::builder()
        .add_service(service)
        .serve_with_incoming(incoming)
        .await;
    if let Err(error) = served {
        shared.note(&format!(
            "PodResources ends: {}",
            crate::error::in_words(&error)
        ));
    }
}

struct Lister {
    shared: Arc<Shared>,
    limit: Mutex<Limit>,
}

/// A bucket of tokens.
struct Limit {
    tokens: f64,
    at: Instant,
}

impl Limit {
    fn allow(&mut self, now: Instant) -> bool {
        let refill = now.duration_since(self.at).as_secs_f64() * RATE;
        self.tokens = (self.tokens + refill).min(BURST);
        self.at = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

impl Lister {
    /// What every call goes through first.
    async fn enter(&self) -> Result<Knobs, Status> {
        self.shared
            .pod_resources_calls
            .fetch_add(1, Ordering::Relaxed);
        let knobs = self.shared.look(|state| state.knobs.clone());
        if knobs.rate_limit {
            let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
            if !limit.allow(Instant::now()) {
                return Err(Status::resource_exhausted("rejected by rate limit"));
            }
        }
        tokio::time::sleep(Duration::from_millis(knobs.delay_ms)).await;
        Ok(knobs)
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let knobs = self.enter().await?;
        let mut pods = self.shared.look(|state| {
            let entries = state.pods.values().filter(|entry| is_listed(entry));
            entries
                .map(|entry| resources(state, &entry.record.pod))
                .collect::<Vec<_>>()
        });
        pods.extend(extra(&knobs));
        pods.extend(padding(knobs.padding_mib));
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: pods,
        }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let knobs = self.enter().await?;
        match knobs.get {
            Get::On => {}
            Get::Off => return Err(Status::unimplemented("unknown method Get")),
            Get::Disabled => return Err(Status::unknown("PodResources API Get method disabled")),
        }
        let GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        let found = self.shared.look(|state| {
            let named = |entry: &&Entry| {
                let metadata = &entry.record.pod.metadata;
                is_listed(entry) && metadata.name == pod_name && metadata.namespace == pod_namespace
            };
            let entry = state.pods.values().find(named)?;
            Some(resources(state, &entry.record.pod))
        });
        let missing = || {
            Status::unknown(format!(
                "pod {pod_name} in namespace {pod_namespace} not found"
            ))
        };
        let pod_resources = Some(found.ok_or_else(missing)?);
        Ok(Response::new(GetPodResourcesResponse { pod_resources }))
    }
}

/// Admitted pods that have not ended; one deleted by force is unknown to the kubelet's lists.
fn is_listed(entry: &Entry) -> bool {
    entry.admitted && entry.record.verdict.is_none() && entry.counts()
}

fn resources(state: &State, pod: &Pod) -> PodResources {
    let shown = pod.all_containers().filter(|c| !pod.is_plain_init(&c.name));
    let containers = shown.map(|container| {
        let grants = state.books.of_container(&pod.metadata.uid, &container.name);
        ContainerResources {
            name: container.name.clone(),
            devices: grants
                .iter()
                .flat_map(|grant| entries(&state.knobs, grant))
                .collect(),
        }
    });
    PodResources {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        containers: containers.collect(),
    }
}

fn entries(knobs: &Knobs, grant: &Grant) -> Vec<ContainerDevices> {
    let renamed = |id: &String| knobs.rename_devices.get(id).unwrap_or(id).clone();
    let groups = grant
        .devices
        .iter()
        .map(|(node, ids)| (*node, ids.iter().map(renamed).collect()));
    let entry = |node: i64, device_ids: Vec<String>| ContainerDevices {
        resource_name: grant.resource.clone(),
        device_ids,
        topology: (node != NO_NUMA).then(|| TopologyInfo {
            nodes: vec![NumaNode { id: node }],
        }),
    };
    match knobs.layout {
        Layout::Numa => groups.map(|(node, ids)| entry(node, ids)).collect(),
        Layout::Device => groups
            .flat_map(|(node, ids): (i64, Vec<String>)| ids.into_iter().map(move |id| (node, id)))
            .map(|(node, id)| entry(node, vec![id]))
            .collect(),
    }
}

fn extra(knobs: &Knobs) -> impl Iterator<Item = PodResources> {
    knobs.extra_pods.iter().map(|(name, devices)| {
        let devices = devices.iter().map(|(resource, ids)| ContainerDevices {
            resource_name: resource.clone(),
            device_ids: ids.clone(),
            topology: None,
        });
        one_container("extra", name.clone(), devices.collect())
    })
}

fn one_container(namespace: &str, name: String, devices: Vec<ContainerDevices>) -> PodResources {
    PodResources {
        name,
        namespace: namespace.to_owned(),
        containers: vec![ContainerResources {
            name: "main".to_owned(),
            devices,
        }],
    }
}

/// Pods of 1 MiB each, with devices that are of no interest.
fn padding(mib: u64) -> impl Iterator<Item = PodResources> {
    const IDS: usize = 1024;
    // Tag and length of one field take 3 bytes at this size.
    let id = "x".repeat((1 << 20) / IDS - 3);
    (0..mib).map(move |number| {
        let devices = ContainerDevices {
            resource_name: "example.com/padding".to_owned(),
            device_ids: vec![id.clone(); IDS],
            topology: None,
        };
        one_container("padding", format!("padding-{number}"), vec![devices])
    })
}
