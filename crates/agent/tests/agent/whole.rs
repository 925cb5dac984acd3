//! The whole agent beside the stand-in kubelet. Needs no privilege and no rails: the node has no
//! sysfs here, so the agent offers what an earlier run left in the state file.

use podrail_agent::{Options, serve};
use podrail_core::ids::SlotId;
use podrail_node::{Markers, allocate, open_state};
use podrail_store::Store;
use podrail_testkit::kubelet::{Kubelet, Settings};
use podrail_testkit::runtime::fake::{FakeOptions, FakeRuntime};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

const PATIENCE: Duration = Duration::from_secs(30);
const RESOURCE: &str = "podrail.io/rail";
const CALICO: &str = r#"{"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "calico"}]}"#;

struct Node {
    folder: TempDir,
    runtime: Arc<FakeRuntime>,
    kubelet: Option<Kubelet>,
    options: Options,
}

/// A running agent.
struct Agent {
    end: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Node {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["root", "cdi", "bin", "net.d"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("podrail-cni"), "program").unwrap();
        let runtime = Arc::new(FakeRuntime::new(FakeOptions {
            directory: path("runtime"),
            cdi: vec![path("cdi")],
            cni: None,
            check_devices: false,
        }));
        let settings = Settings::at(&path("kubelet"));
        let mut options = Options {
            root: path("root"),
            device_plugins: settings.plugins_directory(),
            plugin: Some(path("podrail-cni")),
            cni_bin: path("bin"),
            cni_conf: path("net.d"),
            listen: free_address(),
            ..Options::default()
        };
        options.paths.state = path("state/state.db");
        options.paths.cdi = path("cdi");
        options.paths.pod_resources = settings.pod_resources_socket();
        options.paths.checkpoint = options.device_plugins.join("kubelet_internal_checkpoint");
        let mut state = open_state(&options.paths.state).unwrap();
        state.store.grow_slots(4).unwrap();
        Self {
            runtime,
            kubelet: None,
            options,
            folder,
        }
    }

    fn start_kubelet(&mut self) {
        let settings = Settings::at(&self.folder.path().join("kubelet"));
        let kubelet = Kubelet::start(settings, self.runtime.clone()).unwrap();
        kubelet.set("backoff-ms", "50").unwrap();
        self.kubelet = Some(kubelet);
    }

    fn kubelet(&self) -> &Kubelet {
        self.kubelet.as_ref().unwrap()
    }

    fn start_agent(&self) -> Agent {
        let (end, ends) = oneshot::channel();
        let ended = tokio::spawn(serve(self.options.clone(), async move {
            ends.await.unwrap();
        }));
        Agent { end, ended }
    }

    async fn offered(&self, count: usize) {
        let kubelet = self.kubelet();
        let offered = kubelet.wait_allocatable(RESOURCE, count, PATIENCE);
        offered.await.unwrap();
    }

    /// A page of the agent; nothing while it does not answer.
    async fn page(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(self.options.listen).await {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.read_to_string(&mut answer).await.unwrap();
        }
        answer
    }

    async fn page_with(&self, path: &str, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut clock = interval(Duration::from_millis(50));
        loop {
            let answer = self.page(path).await;
            if answer.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "no {words:?} in {answer}");
            clock.tick().await;
        }
    }

    fn chain(&self) -> PathBuf {
        self.options.cni_conf.join("00-podrail.conflist")
    }

    fn cdi(&self, slot: u16) -> PathBuf {
        let name = format!("podrail.io-rail_{}.json", SlotId(slot));
        self.options.paths.cdi.join(name)
    }

    fn marked(&self) -> Vec<SlotId> {
        let markers = Markers::beside(&self.options.paths.state).unwrap();
        markers.waiting().unwrap().into_iter().collect()
    }
}

impl Agent {
    async fn end(self) {
        self.end.send(()).unwrap();
        self.ended.await.unwrap();
    }
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut clock = interval(Duration::from_millis(20));
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        clock.tick().await;
    }
}

#[tokio::test]
async fn slots_are_offered_before_anything_is_known_and_over_every_restart() {
    let mut node = Node::new();
    let agent = node.start_agent();
    node.page_with("/readyz", r#""registered":{"ok":false"#)
        .await;
    node.start_kubelet();
    node.offered(4).await;
    node.page_with("/readyz", r#""registered":{"ok":true"#)
        .await;
    node.page_with("/metrics", "podrail_registrations_total 1")
        .await;
    node.page_with("/healthz", "ok").await;
    // The kubelet goes and comes.
    node.kubelet.take().unwrap().stop();
    node.start_kubelet();
    node.offered(4).await;
    node.page_with("/metrics", "podrail_registrations_total 2")
        .await;
    // The agent goes and comes.
    agent.end().await;
    assert_eq!(node.page("/healthz").await, "");
    let agent = node.start_agent();
    node.page_with("/readyz", r#""registered":{"ok":true"#)
        .await;
    node.offered(4).await;
    agent.end().await;
}

#[tokio::test]
async fn an_allocation_marks_the_slots_and_takes_their_old_devices_away() {
    let mut node = Node::new();
    node.start_kubelet();
    // Of a pod that is gone for long; the file of slot 2 was somebody's.
    let markers = Markers::beside(&node.options.paths.state).unwrap();
    let mut state = open_state(&node.options.paths.state).unwrap();
    allocate(&mut state.store, &markers, &[SlotId(9)], 0).unwrap();
    markers.mark_waiting(&[SlotId(8)]).unwrap();
    let agent = node.start_agent();
    node.offered(4).await;
    for slot in 0..4 {
        fs::write(node.cdi(slot), "{}").unwrap();
    }
    let pod = "kind: Pod\nmetadata: {name: job}\nspec: {containers: [{name: main, resources: \
               {limits: {podrail.io/rail: 4}}}]}";
    node.kubelet().apply(pod).unwrap();
    node.page_with("/metrics", "podrail_allocations_total 1")
        .await;
    for slot in 0..4 {
        assert!(!node.cdi(slot).exists(), "slot {slot}");
    }
    let state = Store::open_read_only(&node.options.paths.state).unwrap();
    let waiting: Vec<u16> = state.waiting().keys().map(|slot| slot.0).collect();
    assert!(waiting.starts_with(&[0, 1, 2, 3]), "{waiting:?}");
    // Once the kubelet has a checkpoint, it is certain that nobody has slots 8 and 9.
    let ours: Vec<SlotId> = (0..4).map(SlotId).collect();
    until("the old marks go", || node.marked() == ours).await;
    node.page_with(
        "/metrics",
        r#"podrail_garbage_collected_total{kind="markers"} 1"#,
    )
    .await;
    agent.end().await;
}

#[tokio::test]
async fn the_chain_follows_the_cluster_while_everything_else_is_missing() {
    let node = Node::new();
    fs::remove_dir(&node.options.cni_conf).unwrap();
    let agent = node.start_agent();
    node.page_with("/readyz", "cannot open the directory").await;
    fs::create_dir(&node.options.cni_conf).unwrap();
    node.page_with("/readyz", "has not written a configuration")
        .await;
    let original = node.options.cni_conf.join("10-calico.conflist");
    fs::write(&original, CALICO).unwrap();
    until("ours appears", || node.chain().exists()).await;
    fs::write(&original, CALICO.replace("\"calico\"", "\"other\"")).unwrap();
    let types = || -> Option<Vec<Value>> {
        let list: Value = serde_json::from_slice(&fs::read(node.chain()).ok()?).ok()?;
        let plugins = list["plugins"].as_array()?.iter();
        Some(plugins.map(|plugin| plugin["type"].clone()).collect())
    };
    let expected: Vec<Value> = vec!["other".into(), "podrail-cni".into()];
    until("ours follows", || types() == Some(expected.clone())).await;
    node.page_with("/readyz", r#""chained":{"ok":true"#).await;
    fs::remove_file(&original).unwrap();
    until("ours goes", || !node.chain().exists()).await;
    agent.end().await;
}

#[tokio::test]
async fn a_wrong_configuration_is_told_and_the_last_good_one_counts() {
    let mut node = Node::new();
    let config = node.folder.path().join("config.yaml");
    fs::write(&config, "resource: example.com/fast\n").unwrap();
    node.options.config = Some(config.clone());
    node.start_kubelet();
    fs::create_dir(node.options.root.join("sys")).unwrap();
    let agent = node.start_agent();
    node.page_with("/readyz", "the kubelet counts example.com/fast")
        .await;
    node.page_with("/readyz", r#""discovered":{"ok":"#).await;
    agent.end().await;
    fs::write(&config, "resource: 7\nother: 8\n").unwrap();
    let agent = node.start_agent();
    node.page_with("/readyz", "config.yaml is not valid").await;
    node.page_with("/readyz", "the kubelet counts example.com/fast")
        .await;
    agent.end().await;
}
