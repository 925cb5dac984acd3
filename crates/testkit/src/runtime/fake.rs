//! A runtime without containers, for tests: sandboxes with a network namespace and a CNI chain,
//! CDI names resolved, containers as plain processes of the host.

mod calls;
mod cdi;
mod cni;
mod netns;
mod process;

pub use cni::Chain;

use super::{Doing, Seen};
use crate::error::{Error, Result};
use crate::proto::cri::{ContainerConfig, NamespaceMode, PodSandboxConfig};
use cni::Attachment;
use nix::sys::signal::Signal;
use process::Program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How the fake behaves.
#[derive(Debug, Clone)]
pub struct FakeOptions {
    /// A folder of its own.
    pub directory: PathBuf,
    /// Where CDI files are.
    pub cdi: Vec<PathBuf>,
    /// Without it pods have no network namespace, which needs no privilege.
    pub cni: Option<Chain>,
    /// Whether device nodes that CDI names must be there, as for a real runtime.
    pub check_devices: bool,
}

/// What a container would get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Got {
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Paths of device nodes in the container.
    pub devices: Vec<String>,
    /// Host path by path in the container.
    pub mounts: BTreeMap<String, String>,
}

struct FakeSandbox {
    config: PodSandboxConfig,
    ready: bool,
    netns: Option<PathBuf>,
    /// Until the first DEL.
    result: Value,
    addresses: Vec<String>,
}

struct FakeContainer {
    seen: Seen,
    got: Got,
    program: Program,
    log: PathBuf,
    pid: Option<u32>,
}

#[derive(Default)]
struct World {
    sandboxes: BTreeMap<String, FakeSandbox>,
    containers: BTreeMap<String, FakeContainer>,
}

/// The fake. What it runs ends when it is dropped; a kubelet's end leaves it alone.
pub struct FakeRuntime {
    options: FakeOptions,
    world: Arc<Mutex<World>>,
    changes: Arc<watch::Sender<u64>>,
}

impl FakeRuntime {
    /// A runtime with nothing in it.
    pub fn new(options: FakeOptions) -> Self {
        Self {
            options,
            world: Arc::new(Mutex::new(World::default())),
            changes: Arc::new(watch::channel(0).0),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// What a container would have got.
    pub fn got(&self, container: &str) -> Option<Got> {
        self.world()
            .containers
            .get(container)
            .map(|found| found.got.clone())
    }

    /// The network namespace of a sandbox.
    pub fn netns(&self, sandbox: &str) -> Option<PathBuf> {
        self.world().sandboxes.get(sandbox)?.netns.clone()
    }

    /// The pause process dies.
    pub fn kill_pause(&self, sandbox: &str) {
        if let Some(sandbox) = self.world().sandboxes.get_mut(sandbox) {
            sandbox.ready = false;
        }
    }

    /// Everything stops at once: processes and namespaces are gone, records stay.
    pub fn power_cut(&self) {
        let mut world = self.world();
        for sandbox in world.sandboxes.values_mut() {
            sandbox.ready = false;
            if let Some(path) = sandbox.netns.take() {
                netns::remove(&path);
            }
        }
        for container in world.containers.values_mut() {
            let Some(pid) = container.pid else { continue };
            process::signal(pid, Signal::SIGKILL);
            // As containerd says it of a container whose end nobody saw.
            container.seen.doing = Doing::Exited {
                code: 255,
                reason: "Unknown".to_owned(),
                message: String::new(),
            };
        }
    }

    async fn network(
        &self,
        id: &str,
        config: &PodSandboxConfig,
    ) -> std::result::Result<(), String> {
        let Some(chain) = &self.options.cni else {
            return Ok(());
        };
        if is_host_network(config) {
            return Ok(());
        }
        let path = self.options.directory.join("netns").join(id);
        netns::create(&path)?;
        self.change(id, |sandbox| sandbox.netns = Some(path.clone()));
        let netns = path.display().to_string();
        let attachment = Attachment {
            id,
            netns: &netns,
            config,
        };
        let result = chain.add(&attachment).await?;
        let addresses = addresses(&result);
        self.change(id, |sandbox| {
            sandbox.result = result;
            sandbox.addresses = addresses;
        });
        Ok(())
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut FakeSandbox)) {
        if let Some(sandbox) = self.world().sandboxes.get_mut(id) {
            change(sandbox);
        }
    }

    fn reserve(&self, id: &str, config: &PodSandboxConfig) -> Result<()> {
        let mut world = self.world();
        let same = |sandbox: &FakeSandbox| sandbox.config.metadata == config.metadata;
        if world.sandboxes.values().any(same) {
            let name = &config.metadata;
            return Err(refused(
                "RunPodSandbox",
                format!("name {name:?} is reserved"),
            ));
        }
        let sandbox = FakeSandbox {
            config: config.clone(),
            ready: false,
            netns: None,
            result: Value::Null,
            addresses: vec![],
        };
        world.sandboxes.insert(id.to_owned(), sandbox);
        Ok(())
    }

    fn resolve(&self, config: &ContainerConfig) -> Result<Got> {
        let names: Vec<String> = config
            .cdi_devices
            .iter()
            .map(|cdi| cdi.name.clone())
            .collect();
        let edits = cdi::resolve(&self.options.cdi, &names)
            .map_err(|cause| refused("CreateContainer", cause))?;
        let mut got = Got {
            devices: config
                .devices
                .iter()
                .map(|d| d.container_path.clone())
                .collect(),
            ..Got::default()
        };
        got.env
            .insert("PATH".to_owned(), std::env::var("PATH").unwrap_or_default());
        got.env.extend(
            config
                .envs
                .iter()
                .map(|env| (env.key.clone(), env.value.clone())),
        );
        let mounts = config.mounts.iter();
        got.mounts = mounts
            .map(|m| (m.container_path.clone(), m.host_path.clone()))
            .collect();
        for variable in &edits.env {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            got.env.insert(name.to_owned(), value.to_owned());
        }
        for node in edits.device_nodes {
            let host = node.host_path.as_ref().unwrap_or(&node.path);
            if self.options.check_devices && !Path::new(host).exists() {
                let cause = format!("failed to stat CDI host device {host:?}");
                return Err(refused("CreateContainer", cause));
            }
            got.devices.push(node.path);
        }
        got.mounts.extend(
            edits
                .mounts
                .into_iter()
                .map(|m| (m.container_path, m.host_path)),
        );
        Ok(got)
    }

    /// Waits until a container has ended, or the time is up.
    async fn ended(&self, id: &str, limit: Duration) -> bool {
        let mut changes = self.changes.subscribe();
        let wait = async { while self.pid(id).is_some() && changes.changed().await.is_ok() {} };
        tokio::time::timeout(limit, wait).await.is_ok()
    }

    fn pid(&self, id: &str) -> Option<u32> {
        self.world().containers.get(id)?.pid
    }
}

impl Drop for FakeRuntime {
    fn drop(&mut self) {
        self.power_cut();
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(call: &'static str, message: String) -> Error {
    Error::Runtime { call, message }
}

fn new_id() -> String {
    (0..64).map(|_| fastrand::digit(16)).collect()
}

fn is_host_network(config: &PodSandboxConfig) -> bool {
    let security = config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.as_ref());
    options.is_some_and(|options| options.network() == NamespaceMode::Node)
}

/// Of the result's addresses those that containerd takes: of eth0, or of no interface.
fn addresses(result: &Value) -> Vec<String> {
    let ips = result
        .get("ips")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let addresses = ips.filter_map(|ip| ip.get("address")?.as_str());
    addresses
        .map(|text| text.split('/').next().unwrap_or(text).to_owned())
        .collect()
}
