//! The whole agent beside the stand-in kubelet. Needs no privilege and no rails: the node is a
//! captured tree with one rail of four shares.

use podrail_agent::{Options, serve};
use podrail_core::ids::SlotId;
use podrail_node::{Markers, allocate, open_state};
use podrail_store::Store;
use podrail_testkit::kubelet::{Kubelet, Settings};
use podrail_testkit::runtime::fake::{FakeOptions, FakeRuntime};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
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
/// Four pods may share the one rail.
const CONFIG: &str = "rails: {shares: 4}\npool: {name: p, subnets: [10.0.0.0/24]}\n";
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
        for name in ["cdi", "bin", "net.d"] {
            fs::create_dir(path(name)).unwrap();
        }
        rail(&path("root"));
        fs::write(path("podrail-cni"), "program").unwrap();
        fs::write(path("config.yaml"), CONFIG).unwrap();
        fs::write(path("net.d/10-calico.conflist"), CALICO).unwrap();
        let runtime = Arc::new(FakeRuntime::new(FakeOptions {
            directory: path("runtime"),
            cdi: vec![path("cdi")],
            cni: None,
            check_devices: false,
        }));
        let settings = Settings::at(&path("kubelet"));
        let mut options = Options {
            root: path("root"),
            config: Some(path("config.yaml")),
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

    /// The kubelet counts the slots, and a look was taken: so many may be allocated.
    async fn settled(&self, healthy: usize) {
        self.page_with("/readyz", r#""registered":{"ok":true"#)
            .await;
        self.page_with("/readyz", r#""discovered":{"ok":true"#)
            .await;
        self.offered(healthy).await;
    }

    fn original(&self) -> PathBuf {
        self.options.cni_conf.join("10-calico.conflist")
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

/// A tree of a node with one rail.
fn rail(root: &Path) {
    let function = "sys/devices/pci0000:0b/0000:0b:00.0/0000:0c:00.0";
    let bridge = "sys/devices/pci0000:0b/0000:0b:00.0";
    for (path, text) in [
        ("sys/module/ib_core/parameters/netns_mode".into(), "Y"),
        ("sys/module/ipvlan/refcnt".into(), "0"),
        (format!("{bridge}/vendor"), "0x1000"),
        (format!("{bridge}/device"), "0xc010"),
        (format!("{bridge}/class"), "0x060400"),
        (format!("{function}/vendor"), "0x15b3"),
        (format!("{function}/device"), "0x1021"),
        (format!("{function}/class"), "0x020000"),
        (format!("{function}/numa_node"), "-1"),
        (format!("{function}/net/rdma0/address"), "02:00:00:00:00:01"),
        (format!("{function}/net/rdma0/mtu"), "4220"),
        (format!("{function}/net/rdma0/ifindex"), "7"),
        (format!("{function}/net/rdma0/type"), "1"),
        (format!("{function}/net/rdma0/flags"), "0x1003"),
        (format!("{function}/net/rdma0/operstate"), "up"),
        (format!("{function}/net/rdma0/carrier"), "1"),
        (format!("{function}/net/rdma0/dev_port"), "0"),
        (
            format!("{function}/infiniband/mlx5_0/node_guid"),
            "0200:00ff:fe00:0001",
        ),
        (
            format!("{function}/infiniband/mlx5_0/ports/1/link_layer"),
            "Ethernet",
        ),
        (
            format!("{function}/infiniband/mlx5_0/ports/1/state"),
            "4: ACTIVE",
        ),
        (
            format!("{function}/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0"),
            "rdma0",
        ),
        ("sys/class/infiniband_verbs/uverbs0/ibdev".into(), "mlx5_0"),
    ] {
        let path = root.join::<String>(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    for (link, target) in [
        ("sys/bus/pci/devices/0000:0b:00.0", bridge),
        ("sys/bus/pci/devices/0000:0c:00.0", function),
        ("sys/class/net/rdma0", &format!("{function}/net/rdma0")),
        (
            "sys/class/infiniband/mlx5_0",
            &format!("{function}/infiniband/mlx5_0"),
        ),
        (&format!("{function}/infiniband/mlx5_0/device"), function),
    ] {
        let link = root.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(root.join(target), link).unwrap();
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
async fn slots_are_offered_over_every_restart() {
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
async fn before_the_first_look_only_slots_that_pods_have_are_healthy() {
    let mut node = Node::new();
    fs::remove_dir_all(node.options.root.join("sys")).unwrap();
    let mut state = open_state(&node.options.paths.state).unwrap();
    state.store.grow_slots(4).unwrap();
    state.store.allocate(&[SlotId(2)], 0).unwrap();
    drop(state);
    node.start_kubelet();
    let agent = node.start_agent();
    node.page_with("/readyz", r#""discovered":{"ok":false,"reason":"no sysfs"#)
        .await;
    node.offered(1).await;
    rail(&node.options.root);
    node.offered(4).await;
    agent.end().await;
}

#[tokio::test]
async fn no_new_pod_is_let_in_while_nothing_leads_to_the_plugin() {
    let mut node = Node::new();
    fs::remove_file(node.original()).unwrap();
    node.start_kubelet();
    let agent = node.start_agent();
    node.page_with("/metrics", r#"podrail_slots{state="unhealthy"} 4"#)
        .await;
    node.settled(0).await;
    node.page_with(
        "/readyz",
        "no slots for new pods: not chained: the cluster's",
    )
    .await;
    fs::write(node.original(), CALICO).unwrap();
    node.settled(4).await;
    node.page_with("/readyz", r#""ready":true"#).await;
    // The copy still leads to the plugin while the original is being written.
    fs::write(node.original(), "{").unwrap();
    node.page_with("/readyz", "00-podrail.conflist stays as it is")
        .await;
    node.page_with("/readyz", r#""offered":{"ok":true"#).await;
    fs::remove_file(node.original()).unwrap();
    node.offered(0).await;
    fs::write(node.original(), CALICO).unwrap();
    node.offered(4).await;
    agent.end().await;
    // Addresses are needed as well, and nothing else if the chain is somebody else's matter.
    node.options.plugin = None;
    fs::remove_file(node.original()).unwrap();
    let agent = node.start_agent();
    node.settled(4).await;
    agent.end().await;
    fs::write(
        node.folder.path().join("config.yaml"),
        "rails: {shares: 4}\n",
    )
    .unwrap();
    let agent = node.start_agent();
    node.settled(0).await;
    node.page_with("/readyz", "names no address pool").await;
    agent.end().await;
}

#[tokio::test]
async fn an_allocation_marks_the_slots_and_takes_their_old_devices_away() {
    let mut node = Node::new();
    node.start_kubelet();
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
    assert_eq!(waiting, [0, 1, 2, 3]);
    agent.end().await;
    // Of a pod that is gone for long: the kubelet's checkpoint says that nobody has slots 8 and 9.
    let markers = Markers::beside(&node.options.paths.state).unwrap();
    let mut state = open_state(&node.options.paths.state).unwrap();
    allocate(&mut state.store, &markers, &[SlotId(9)], 0).unwrap();
    markers.mark_waiting(&[SlotId(8)]).unwrap();
    let agent = node.start_agent();
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
    fs::remove_dir_all(&node.options.cni_conf).unwrap();
    fs::remove_dir_all(&node.options.root).unwrap();
    let agent = node.start_agent();
    node.page_with("/readyz", "cannot open the directory").await;
    fs::create_dir(&node.options.cni_conf).unwrap();
    node.page_with("/readyz", "has not written a configuration")
        .await;
    let original = node.original();
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
