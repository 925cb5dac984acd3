//! The client against a PodResources server on a real socket that answers as told.

use super::*;
use prost::Message;
use proto::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use proto::{ContainerDevices, ContainerResources};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixSocket};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Gives its replies in order, the last one for ever.
#[derive(Clone, Default)]
struct Script {
    lists: Arc<Mutex<VecDeque<Reply>>>,
    gets: Arc<Mutex<VecDeque<Reply>>>,
    calls: Arc<Mutex<usize>>,
}

#[derive(Clone)]
enum Reply {
    Pods(Vec<proto::PodResources>),
    Fail(Status),
    Never,
}

impl Script {
    fn new(lists: Vec<Reply>, gets: Vec<Reply>) -> Self {
        Self {
            lists: Arc::new(Mutex::new(lists.into())),
            gets: Arc::new(Mutex::new(gets.into())),
            calls: Arc::default(),
        }
    }

    fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    async fn next(
        &self,
        replies: &Mutex<VecDeque<Reply>>,
    ) -> Result<Vec<proto::PodResources>, Status> {
        *self.calls.lock().unwrap() += 1;
        let reply = {
            let mut replies = replies.lock().unwrap();
            match replies.len() {
                1 => replies.front().cloned(),
                _ => replies.pop_front(),
            }
        };
        match reply.expect("no call of this kind was expected") {
            Reply::Pods(pods) => Ok(pods),
            Reply::Fail(status) => Err(status),
            Reply::Never => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Script {
    async fn list(
        &self,
        _: Request<proto::ListPodResourcesRequest>,
    ) -> Result<Response<proto::ListPodResourcesResponse>, Status> {
        let pod_resources = self.next(&self.lists).await?;
        Ok(Response::new(proto::ListPodResourcesResponse {
            pod_resources,
        }))
    }

    async fn get(
        &self,
        _: Request<proto::GetPodResourcesRequest>,
    ) -> Result<Response<proto::GetPodResourcesResponse>, Status> {
        let pod_resources = self.next(&self.gets).await?.pop();
        Ok(Response::new(proto::GetPodResourcesResponse {
            pod_resources,
        }))
    }
}

struct Kubelet {
    dir: TempDir,
    tasks: JoinSet<()>,
}

impl Kubelet {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            tasks: JoinSet::new(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("kubelet.sock")
    }

    fn client(&self) -> PodResources {
        PodResources::new(self.socket())
    }

    fn serve(&mut self, script: &Script) {
        self.serve_on(UnixListener::bind(self.socket()).unwrap(), script);
    }

    fn serve_on(&mut self, listener: UnixListener, script: &Script) {
        let server = Server::builder()
            .add_service(PodResourcesListerServer::new(script.clone()))
            .serve_with_incoming(UnixListenerStream::new(listener));
        self.tasks.spawn(async move { server.await.unwrap() });
    }
}

fn running(lists: Vec<Reply>, gets: Vec<Reply>) -> (Kubelet, Script) {
    let script = Script::new(lists, gets);
    let mut kubelet = Kubelet::new();
    kubelet.serve(&script);
    (kubelet, script)
}

fn after(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

fn pod(name: &str, containers: &[(&str, &str, &[&str])]) -> proto::PodResources {
    let container = |(name, resource, ids): &(&str, &str, &[&str])| ContainerResources {
        name: (*name).to_owned(),
        devices: vec![ContainerDevices {
            resource_name: (*resource).to_owned(),
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            topology: None,
        }],
    };
    proto::PodResources {
        name: name.to_owned(),
        namespace: "train".to_owned(),
        containers: containers.iter().map(container).collect(),
    }
}

fn rate_limit() -> Reply {
    Reply::Fail(Status::resource_exhausted("rejected by rate limit"))
}

#[tokio::test]
async fn devices_that_the_kubelet_split_come_together() {
    let mut split = pod("a", &[("main", "nvidia.com/gpu", &["GPU-1"])]);
    let more = pod("a", &[("main", "nvidia.com/gpu", &["GPU-0", "GPU-1"])]);
    let other = pod("a", &[("main", "podrail.io/rail", &["slot-00"])]);
    for part in [more, other] {
        split.containers[0]
            .devices
            .extend(part.containers[0].devices.clone());
    }
    split
        .containers
        .extend(pod("a", &[("side", "nvidia.com/gpu", &["GPU-2"])]).containers);
    let (kubelet, _) = running(vec![Reply::Pods(vec![split, pod("b", &[])])], vec![]);

    let pods = kubelet.client().list(after(5000)).await.unwrap();
    let grant = |container: &str, resource: &str, ids: &[&str]| DeviceGrant {
        container: container.to_owned(),
        resource: resource.to_owned(),
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    };
    let listed = |name: &str, devices| ListedPod {
        namespace: "train".to_owned(),
        name: name.to_owned(),
        devices,
    };
    assert_eq!(
        pods,
        [
            listed(
                "a",
                vec![
                    grant("main", "nvidia.com/gpu", &["GPU-0", "GPU-1"]),
                    grant("main", "podrail.io/rail", &["slot-00"]),
                    grant("side", "nvidia.com/gpu", &["GPU-2"]),
                ]
            ),
            listed("b", vec![]),
        ]
    );
}

#[tokio::test]
async fn get_asks_for_one_pod_where_the_kubelet_can() {
    let (kubelet, script) = running(vec![], vec![Reply::Pods(vec![pod("a", &[])])]);
    let found = kubelet.client().get("train", "a", after(5000)).await;
    assert_eq!(found.unwrap().unwrap().name, "a");
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn get_takes_the_list_where_the_kubelet_cannot() {
    for refusal in [
        Status::unimplemented("unknown method Get"),
        Status::unknown("PodResources API Get method disabled"),
        Status::unknown("pod a in namespace train not found"),
        Status::not_found("pod a in namespace train not found"),
    ] {
        let pods = vec![pod("z", &[]), pod("a", &[])];
        let (kubelet, _) = running(vec![Reply::Pods(pods)], vec![Reply::Fail(refusal)]);
        let client = kubelet.client();
        let found = client.get("train", "a", after(5000)).await.unwrap();
        assert_eq!(found.unwrap().name, "a");
        assert_eq!(client.get("train", "q", after(5000)).await.unwrap(), None);
        assert_eq!(client.get("other", "a", after(5000)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_rate_limit_is_waited_out() {
    let replies = vec![
        rate_limit(),
        rate_limit(),
        rate_limit(),
        Reply::Pods(vec![pod("a", &[])]),
    ];
    let (kubelet, script) = running(replies, vec![]);
    assert_eq!(kubelet.client().list(after(5000)).await.unwrap().len(), 1);
    assert_eq!(script.calls(), 4);
}

#[tokio::test]
async fn a_rate_limit_without_end_is_named_at_the_deadline() {
    let (kubelet, script) = running(vec![rate_limit()], vec![]);
    let start = Instant::now();
    let error = kubelet.client().list(after(300)).await.unwrap_err();
    assert!(
        start.elapsed() < Duration::from_millis(1000),
        "{:?}",
        start.elapsed()
    );
    assert!(error.retryable());
    assert!(error.hint().contains("too often"), "{}", error.hint());
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("rejected by rate limit"), "{cause}");
    assert!((2..40).contains(&script.calls()), "{}", script.calls());
}

/// An answer whose message has exactly this many bytes.
fn answer_of(bytes: usize) -> Vec<proto::PodResources> {
    let size = |pods: &Vec<proto::PodResources>| {
        let pod_resources = pods.clone();
        proto::ListPodResourcesResponse { pod_resources }.encoded_len()
    };
    let id = "GPU-0123456789".repeat(64);
    let ids = vec![id.as_str(); 64];
    let mut pods = vec![pod("p", &[("c", "r/x", &ids)]); bytes / (64 * 64 * 14) - 2];
    let last = pod("", &[]);
    pods.push(last);
    while size(&pods) != bytes {
        let missing = bytes - size(&pods);
        let name = &mut pods.last_mut().unwrap().name;
        name.push_str(&"x".repeat(missing.min(missing / 2 + 1)));
    }
    pods
}

#[tokio::test]
async fn an_answer_of_16_mib_is_taken() {
    let pods = answer_of(LARGEST_ANSWER);
    let count = pods.len();
    let (kubelet, _) = running(vec![Reply::Pods(pods)], vec![]);
    let start = Instant::now();
    let pods = kubelet.client().list(after(20_000)).await.unwrap();
    println!("16 MiB in {:?}", start.elapsed());
    assert_eq!(pods.len(), count);
}

#[tokio::test]
async fn an_answer_of_17_mib_is_refused_at_once() {
    for over in [LARGEST_ANSWER + 1, 17 << 20] {
        let (kubelet, script) = running(vec![Reply::Pods(answer_of(over))], vec![]);
        let error = kubelet.client().list(after(20_000)).await.unwrap_err();
        assert!(
            matches!(error, PodResourcesError::TooLarge { .. }),
            "{error:?}"
        );
        assert!(!error.retryable());
        assert!(error.to_string().contains("16 MiB"), "{error}");
        assert_eq!(script.calls(), 1);
    }
}

#[tokio::test]
async fn the_servers_own_size_limit_is_no_rate_limit() {
    let words = "trying to send message larger than max (20000000 vs. 16777216)";
    let reply = Reply::Fail(Status::resource_exhausted(words));
    let (kubelet, _) = running(vec![reply], vec![]);
    let error = kubelet.client().list(after(5000)).await.unwrap_err();
    assert!(
        matches!(error, PodResourcesError::TooLarge { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_slow_answer_ends_at_the_deadline() {
    let (kubelet, _) = running(vec![Reply::Never], vec![Reply::Never]);
    let start = Instant::now();
    let listed = kubelet.client().list(after(200)).await.unwrap_err();
    let got = kubelet
        .client()
        .get("train", "a", after(200))
        .await
        .unwrap_err();
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "{:?}",
        start.elapsed()
    );
    for error in [listed, got] {
        assert!(
            matches!(error, PodResourcesError::Deadline { source: None, .. }),
            "{error:?}"
        );
        assert!(error.hint().contains("slow"));
    }
}

#[tokio::test]
async fn a_call_that_was_dropped_can_be_made_again() {
    let (kubelet, script) = running(vec![Reply::Never, Reply::Pods(vec![])], vec![]);
    let client = kubelet.client();
    let dropped = tokio::time::timeout(Duration::from_millis(100), client.list(after(5000))).await;
    assert!(dropped.is_err());
    assert_eq!(client.list(after(5000)).await.unwrap(), []);
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn the_kubelets_words_are_passed_on() {
    let words = "w".repeat(1000);
    let reply = Reply::Fail(Status::internal(words));
    let (kubelet, script) = running(vec![reply], vec![]);
    let error = kubelet.client().list(after(5000)).await.unwrap_err();
    assert!(error.to_string().contains("Internal: \"www"), "{error}");
    assert!(error.to_string().len() < 400);
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn a_missing_socket_is_told_after_a_second() {
    let kubelet = Kubelet::new();
    let start = Instant::now();
    let error = kubelet.client().list(after(20_000)).await.unwrap_err();
    assert!(
        matches!(error, PodResourcesError::Missing { .. }),
        "{error:?}"
    );
    assert!(error.retryable());
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_kubelet_that_comes_late_is_waited_for() {
    let mut kubelet = Kubelet::new();
    let client = kubelet.client();
    // Bound and not yet listening: refused.
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(kubelet.socket()).unwrap();
    let error = client.list(after(100)).await.unwrap_err();
    let cause = error.source().unwrap();
    assert!(cause.to_string().contains("nobody answers"), "{cause}");

    let waiting = tokio::spawn(async move { client.list(after(10_000)).await });
    tokio::task::yield_now().await;
    let script = Script::new(vec![Reply::Pods(vec![pod("a", &[])])], vec![]);
    kubelet.serve_on(socket.listen(16).unwrap(), &script);
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_peer_that_is_no_kubelet_ends_at_the_deadline() {
    for noise in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0xff; 4096]] {
        let mut kubelet = Kubelet::new();
        let listener = UnixListener::bind(kubelet.socket()).unwrap();
        kubelet.tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // The client may be gone already.
                let _written = stream.write_all(noise).await;
            }
        });
        let error = kubelet.client().list(after(300)).await.unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(
            cause.contains("broke") || cause.contains("cannot connect"),
            "{cause}"
        );
    }
}

#[tokio::test]
async fn the_blocking_calls_need_no_runtime() {
    let pods = vec![pod("a", &[("c", "podrail.io/rail", &["slot-00"])])];
    let unknown = Reply::Fail(Status::unimplemented("Get"));
    let (kubelet, _) = running(vec![Reply::Pods(pods)], vec![unknown]);
    let socket = kubelet.socket();
    let calls = tokio::task::spawn_blocking(move || {
        let pods = blocking::list(&socket, after(5000)).unwrap();
        assert_eq!(pods[0].devices[0].ids, ["slot-00"]);
        let pod = blocking::get(&socket, "train", "a", after(5000)).unwrap();
        assert_eq!(pod.as_ref(), pods.first());
    });
    calls.await.unwrap();
}
