//! The part of core/v1 that the stand-in understands: Pod and ConfigMap, in YAML or JSON.
//!
//! Fields that do not matter on one node are skipped and named in a note.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A pod.
    Pod(Box<Pod>),
    /// Files for volumes.
    ConfigMap(ConfigMap),
}

/// Objects of a manifest, and what was skipped in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// In the order of the text.
    pub objects: Vec<Object>,
    /// Paths of fields that were skipped.
    pub notes: Vec<String>,
}

/// Files for volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigMap {
    /// Whose it is.
    pub metadata: Metadata,
    /// Text by file name.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
}

/// A pod as it was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// Who it is.
    pub metadata: Metadata,
    /// What it wants.
    pub spec: PodSpec,
    /// For tests: device ids by container and resource that are given instead of a random choice.
    #[serde(
        rename = "podrail.test/devices",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub devices: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Who an object is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// UID; given by the stand-in if absent.
    #[serde(default)]
    pub uid: String,
    /// Annotations, passed to the runtime as they are.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Labels, passed to the runtime with the kubelet's own.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// When a container is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whenever it ends.
    #[default]
    Always,
    /// When it ends with another code than 0.
    OnFailure,
    /// Not at all.
    Never,
}

/// What a pod wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// No network of its own.
    #[serde(default)]
    pub host_network: bool,
    /// Sees the node's processes.
    #[serde(default, rename = "hostPID")]
    pub host_pid: bool,
    /// For all but sidecars.
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    /// Seconds between TERM and KILL.
    #[serde(default)]
    pub termination_grace_period_seconds: Option<i64>,
    /// Run one after the other before the rest; with `restartPolicy: Always` they stay (sidecars).
    #[serde(default)]
    pub init_containers: Vec<Container>,
    /// The main containers.
    pub containers: Vec<Container>,
    /// What containers can mount.
    #[serde(default)]
    pub volumes: Vec<Volume>,
}

/// One container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Name.
    pub name: String,
    /// Image, which the runtime must have.
    #[serde(default)]
    pub image: String,
    /// Instead of the image's entry point.
    #[serde(default)]
    pub command: Vec<String>,
    /// Instead of the image's arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment.
    #[serde(default)]
    pub env: Vec<EnvVar>,
    /// Only of init containers: `Always` makes a sidecar.
    #[serde(default)]
    pub restart_policy: Option<RestartPolicy>,
    /// What it uses.
    #[serde(default)]
    pub resources: Resources,
    /// Who it runs as.
    #[serde(default)]
    pub security_context: SecurityContext,
    /// What it sees.
    #[serde(default)]
    pub volume_mounts: Vec<VolumeMount>,
}

/// One variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// Value.
    #[serde(default)]
    pub value: String,
}

/// What a container uses. Only extended resources (with a `/`) matter here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Amount by resource, a number or text.
    #[serde(default)]
    pub limits: BTreeMap<String, Value>,
    /// Equal to the limits for extended resources.
    #[serde(default)]
    pub requests: BTreeMap<String, Value>,
}

/// Who a container runs as.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// User id.
    #[serde(default)]
    pub run_as_user: Option<i64>,
    /// Everything allowed.
    #[serde(default)]
    pub privileged: bool,
    /// Nothing can be written but in volumes.
    #[serde(default)]
    pub read_only_root_filesystem: bool,
    /// Absent means true, as in Kubernetes.
    #[serde(default)]
    pub allow_privilege_escalation: Option<bool>,
    /// Which system calls; none means all, as in the kubelet.
    #[serde(default)]
    pub seccomp_profile: Option<Seccomp>,
    /// More or fewer capabilities than the runtime's default.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// Which system calls a container may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Seccomp {
    /// Those that the runtime thinks harmless.
    RuntimeDefault,
    /// All.
    Unconfined,
}

/// Names without `CAP_`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Added.
    #[serde(default)]
    pub add: Vec<String>,
    /// Taken.
    #[serde(default)]
    pub drop: Vec<String>,
}

/// Where a container sees a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    /// The volume.
    pub name: String,
    /// Path in the container.
    pub mount_path: String,
    /// Not writable.
    #[serde(default)]
    pub read_only: bool,
    /// Which mounts made later are seen on the other side.
    #[serde(default)]
    pub mount_propagation: Propagation,
}

/// Which mounts made later are seen on the other side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// None.
    #[default]
    None,
    /// The container sees the node's.
    HostToContainer,
    /// Both see both.
    Bidirectional,
}

/// A source of files. One without a known source is an empty folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name within the pod.
    pub name: String,
    /// A path of the node.
    #[serde(default)]
    pub host_path: Option<HostPath>,
    /// A config map that was applied before.
    #[serde(default)]
    pub config_map: Option<ConfigMapSource>,
}

/// A path of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPath {
    /// Absolute.
    pub path: String,
    /// What must be there; `DirectoryOrCreate` makes it.
    #[serde(default, rename = "type")]
    pub kind: String,
}

/// A config map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Its name, in the pod's namespace.
    pub name: String,
    /// Mode of its files, 0644 if absent.
    #[serde(default)]
    pub default_mode: Option<u32>,
}

impl Metadata {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Container {
    /// Whether it is a sidecar, if it stands among the init containers.
    pub fn stays(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }

    /// Amounts of extended resources, zeros left out.
    pub fn extended(&self) -> BTreeMap<String, usize> {
        let limits = self.resources.limits.iter();
        limits
            .filter(|(name, _)| name.contains('/'))
            .filter_map(|(name, amount)| Some((name.clone(), whole(amount)?)))
            .filter(|(_, amount)| *amount > 0)
            .collect()
    }
}

fn whole(amount: &Value) -> Option<usize> {
    match amount {
        Value::Number(number) => usize::try_from(number.as_u64()?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

impl Pod {
    /// Init containers first, then main ones: the order of admission.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.spec
            .init_containers
            .iter()
            .chain(&self.spec.containers)
    }

    /// Whether a container ends before the main ones start.
    pub fn is_plain_init(&self, container: &str) -> bool {
        let mut init = self.spec.init_containers.iter();
        init.any(|c| c.name == container && !c.stays())
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let key = self.metadata.key();
        if self.spec.containers.is_empty() {
            faults.push(format!("pod {key}: spec.containers is empty"));
        }
        for container in self.all_containers() {
            for (name, amount) in &container.resources.limits {
                if name.contains('/') && whole(amount).is_none() {
                    let container = &container.name;
                    faults.push(format!(
                        "pod {key}: {container}: {name}: {amount} is no count"
                    ));
                }
            }
        }
        faults
    }
}

/// Reads a manifest of one or more documents.
///
/// # Errors
/// Names the field that has the wrong shape, or a kind that is not known.
pub fn parse(text: &str) -> Result<Manifest> {
    // Manifests write modes as YAML 1.1 does, `0555`.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Error::Manifest(error.to_string()))?;
    let mut manifest = Manifest {
        objects: vec![],
        notes: vec![],
    };
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        manifest.add(document)?;
    }
    Ok(manifest)
}

impl Manifest {
    fn add(&mut self, mut document: Value) -> Result<()> {
        let kind = take_text(&mut document, "kind");
        take_text(&mut document, "apiVersion");
        let notes = &mut self.notes;
        let object = match kind.as_str() {
            "Pod" => Object::Pod(Box::new(checked(read(document, notes)?)?)),
            "ConfigMap" => Object::ConfigMap(read(document, notes)?),
            other => return Err(Error::Manifest(format!("kind {other:?} is not known here"))),
        };
        self.objects.push(object);
        Ok(())
    }
}

fn checked(pod: Pod) -> Result<Pod> {
    let faults = pod.faults();
    match faults.is_empty() {
        true => Ok(pod),
        false => Err(Error::Manifest(faults.join("; "))),
    }
}

fn take_text(document: &mut Value, field: &str) -> String {
    let taken = document.as_object_mut().and_then(|map| map.remove(field));
    let text = taken.as_ref().and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn read<T: serde::de::DeserializeOwned>(document: Value, notes: &mut Vec<String>) -> Result<T> {
    serde_ignored::deserialize(document, |path| notes.push(format!("{path} is skipped")))
        .map_err(|error| Error::Manifest(error.to_string()))
}

#[cfg(test)]
mod tests;
