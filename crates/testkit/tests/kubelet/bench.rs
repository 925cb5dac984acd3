//! One node in a folder: kubelet, runtime, plugins, and pods in short words.

use podrail_kubelet::proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use podrail_testkit::engine::Engine;
use podrail_testkit::gpu_plugin::{Gpu, GpuPlugin};
use podrail_testkit::kubelet::Condition;
use podrail_testkit::runtime::fake::{Chain, FakeOptions, FakeRuntime};
use podrail_testkit::status::PodStatus;
use podrail_testkit::{Kubelet, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// Patience for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A node.
pub(crate) struct Bench {
    pub(crate) kubelet: Option<Kubelet>,
    pub(crate) runtime: Arc<FakeRuntime>,
    pub(crate) folder: TempDir,
}

impl Bench {
    /// Without networks: needs no privilege.
    pub(crate) fn new() -> Self {
        Self::with(|_| None)
    }

    pub(crate) fn with(cni: impl FnOnce(&Path) -> Option<Chain>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cdi = folder.path().join("cdi");
        std::fs::create_dir(&cdi).unwrap();
        let runtime = Arc::new(FakeRuntime::new(FakeOptions {
            directory: folder.path().join("runtime"),
            cdi: vec![cdi],
            cni: cni(folder.path()),
            check_devices: true,
        }));
        let mut bench = Self {
            kubelet: None,
            runtime,
            folder,
        };
        bench.start();
        bench
    }

    pub(crate) fn start(&mut self) {
        let settings = Settings::at(&self.folder.path().join("kubelet"));
        let kubelet = Kubelet::start(settings, self.runtime.clone()).unwrap();
        for (key, value) in [
            ("backoff-ms", "50"),
            ("relist-ms", "20"),
            ("sandbox-gc-ms", "100"),
            ("admission-delay-ms", "500"),
        ] {
            kubelet.set(key, value).unwrap();
        }
        self.kubelet = Some(kubelet);
    }

    pub(crate) fn stop(&mut self) {
        self.kubelet.take().unwrap().stop();
    }

    pub(crate) fn kubelet(&self) -> &Kubelet {
        self.kubelet.as_ref().unwrap()
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.folder.path().join("kubelet/device-plugins")
    }

    /// GPUs `gpu-0`... on two NUMA nodes, and slots `slot-0`... with CDI names.
    pub(crate) async fn plug(&self, gpus: usize, slots: usize) -> Engine {
        let plugs = self.plug_quietly(gpus, slots);
        for (resource, count) in [("nvidia.com/gpu", gpus), ("test.io/rail", slots)] {
            self.kubelet()
                .wait_allocatable(resource, count, PATIENCE)
                .await
                .unwrap();
        }
        plugs
    }

    pub(crate) fn plug_quietly(&self, gpus: usize, slots: usize) -> Engine {
        let gpu = |n: usize| Gpu {
            id: format!("gpu-{n}"),
            numa: Some((n % 2) as i64),
        };
        let slot = |n: usize| Gpu {
            id: format!("slot-{n}"),
            numa: None,
        };
        let gpu_plugin = GpuPlugin::nvidia(self.plugins(), (0..gpus).map(gpu).collect());
        let slot_plugin = GpuPlugin {
            resource: "test.io/rail".into(),
            variable: "SLOTS".into(),
            cdi: Some("test.io/rail".into()),
            ..GpuPlugin::nvidia(self.plugins(), (0..slots).map(slot).collect())
        };
        let engine = Engine::start().unwrap();
        for plugin in [gpu_plugin, slot_plugin] {
            engine
                .handle()
                .spawn(async move { plugin.run().await.unwrap() });
        }
        engine
    }

    pub(crate) fn write_cdi(&self, slot: &str) {
        let text = format!(
            r#"{{"cdiVersion":"0.6.0","kind":"test.io/rail","devices":[{{"name":"{slot}","containerEdits":
            {{"env":["RAIL_OF_{}=here"],"deviceNodes":[{{"path":"/dev/null"}}]}}}}]}}"#,
            slot.replace('-', "_")
        );
        let directory = self.folder.path().join("cdi");
        let temporary = directory.join(format!("{slot}.new"));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(&temporary, directory.join(format!("{slot}.json"))).unwrap();
    }

    pub(crate) fn apply(&self, name: &str, spec: &str) {
        self.kubelet()
            .apply(&format!(
                "kind: Pod\nmetadata: {{name: {name}}}\nspec: {spec}"
            ))
            .unwrap();
    }

    pub(crate) async fn wait(&self, name: &str, condition: Condition) -> Option<PodStatus> {
        let key = format!("default/{name}");
        self.kubelet()
            .wait(&key, condition, PATIENCE)
            .await
            .unwrap();
        self.kubelet().get(&key).ok()
    }

    pub(crate) async fn ready(&self, name: &str) -> PodStatus {
        self.wait(name, Condition::Ready).await.unwrap()
    }

    pub(crate) fn set(&self, key: &str, value: &str) {
        self.kubelet().set(key, value).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        self.kubelet()
            .delete(&format!("default/{name}"), false, Some(0))
            .unwrap();
    }

    /// Waits until something is true of a pod.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        met: impl Fn(&PodStatus) -> bool,
    ) -> PodStatus {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let status = self.kubelet().get(&format!("default/{name}")).unwrap();
            if met(&status) {
                return status;
            }
            assert!(
                tokio::time::Instant::now() < end,
                "never {what}; last: {status:#?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn pod_resources(&self) -> PodResourcesListerClient<Channel> {
        let path = self
            .folder
            .path()
            .join("kubelet/pod-resources/kubelet.sock");
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move {
                tokio::net::UnixStream::connect(path)
                    .await
                    .map(hyper_util::rt::TokioIo::new)
            }
        });
        let endpoint = Endpoint::from_static("http://unix.invalid");
        PodResourcesListerClient::new(endpoint.connect_with_connector(connect).await.unwrap())
    }

    pub(crate) fn checkpoint(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.plugins().join("kubelet_internal_checkpoint"));
        serde_json::from_str(&text.unwrap()).unwrap()
    }
}

/// How often something happened to a pod.
pub(crate) fn count(status: &PodStatus, reason: &str) -> usize {
    status
        .events
        .iter()
        .filter(|event| event.reason == reason)
        .count()
}
