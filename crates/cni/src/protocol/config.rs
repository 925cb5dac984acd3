//! What the runtime writes on standard input.

use super::error::{CniError, Code};
use super::{Settings, VERSIONS};
use podrail_core::words::brief;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The network configuration as it came. Every field stays raw text until it is asked for: an odd
/// one that only a pod with rails needs must not break a pod that wants none.
#[derive(Debug)]
pub struct NetConf {
    version: String,
    fields: BTreeMap<String, Box<RawValue>>,
}

/// An attachment that is to stay.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// Sandbox.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Interface of the cluster network.
    #[serde(rename = "ifname", default)]
    pub interface: String,
}

/// The annotation of a pod that names its networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Capability by which a runtime passes a pod's annotations (containerd, CRI-O).
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
/// GC: what is to stay; the second name is that of early drafts, which libcni still writes.
const VALID: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
/// Fields that the specification or libcni puts into a plugin's configuration.
const STANDARD: [&str; 12] = [
    "cniVersion",
    "name",
    "type",
    "capabilities",
    "runtimeConfig",
    "prevResult",
    "args",
    "ipam",
    "dns",
    "ipMasq",
    "disableCheck",
    "disableGC",
];

/// Reads standard input.
///
/// # Errors
/// It is no JSON object, or its version is not spoken here.
pub fn parse(text: &[u8]) -> Result<NetConf, CniError> {
    let undecodable = |details: String| {
        CniError::new(Code::Decode, "standard input is no network configuration")
            .details(brief(&details))
    };
    let fields: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(text).map_err(|error| undecodable(error.to_string()))?;
    let version = fields
        .get("cniVersion")
        .ok_or_else(|| undecodable("it has no cniVersion".into()))?;
    let version: String = serde_json::from_str(version.get())
        .map_err(|error| undecodable(format!("cniVersion: {error}")))?;
    if VERSIONS.contains(&version.as_str()) {
        return Ok(NetConf { version, fields });
    }
    let shown: String = version.chars().take(40).collect();
    let message = format!("CNI version {shown:?} is not supported");
    Err(CniError::new(Code::Version, message)
        .details(format!("supported: {}", VERSIONS.join(", "))))
}

impl NetConf {
    /// Version of the protocol.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Result of the plugins before this one, as it came.
    #[must_use]
    pub fn previous(&self) -> Option<&str> {
        self.raw("prevResult")
    }

    /// Where things are.
    ///
    /// # Errors
    /// A field of ours is malformed, or unknown: a setting is never dropped silently.
    pub fn settings(&self) -> Result<Settings, CniError> {
        let mut settings = Settings::default();
        for key in self.fields.keys() {
            if STANDARD.contains(&key.as_str()) || key.starts_with("cni.dev/") {
                continue;
            }
            let known = Settings::FIELDS.join(", ");
            let place = settings.field(key).ok_or_else(|| {
                wrong(key, "unknown field").details(format!("known here: {known}"))
            })?;
            *place = self
                .path(key)
                .ok_or_else(|| wrong(key, "expected an absolute path"))?;
        }
        Ok(settings)
    }

    /// Where things are, for what must work whatever the configuration has come to: CRI-O ends a
    /// pod with the one that it was started with. What is not understood has its default.
    #[must_use]
    pub fn lenient_settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            state: self.path("state").unwrap_or(default.state),
            pod_resources: self.path("podResources").unwrap_or(default.pod_resources),
            checkpoint: self.path("checkpoint").unwrap_or(default.checkpoint),
            cdi: self.path("cdi").unwrap_or(default.cdi),
        }
    }

    /// The state file alone, for the cheap test; the default if the field is odd.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.path("state").unwrap_or(Settings::default().state)
    }

    /// The pod's annotation that names networks.
    ///
    /// # Errors
    /// The annotations are no mapping of texts.
    pub fn networks(&self) -> Result<Option<String>, CniError> {
        let field = format!("runtimeConfig[{ANNOTATIONS:?}]");
        let runtime: Option<BTreeMap<String, Box<RawValue>>> =
            self.parsed("runtimeConfig", "runtimeConfig", "no mapping")?;
        let Some(raw) = runtime.and_then(|mut all| all.remove(ANNOTATIONS)) else {
            return Ok(None);
        };
        let annotations: Option<BTreeMap<String, String>> =
            decoded(raw.get(), &field, "no mapping of texts")?;
        Ok(annotations.and_then(|mut all| all.remove(NETWORKS)))
    }

    /// What is to stay; none if the runtime does not say, which is no leave to take all away.
    ///
    /// # Errors
    /// The list is malformed.
    pub fn valid_attachments(&self) -> Result<Option<Vec<Attachment>>, CniError> {
        let key = VALID.into_iter().find(|key| self.raw(key).is_some());
        match key {
            Some(key) => self.parsed(key, key, "no list of attachments"),
            None => Ok(None),
        }
    }

    fn raw(&self, key: &str) -> Option<&str> {
        let raw = self.fields.get(key)?.get();
        (raw != "null").then_some(raw)
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        let path: String = serde_json::from_str(self.raw(key)?).ok()?;
        path.starts_with('/').then(|| path.into())
    }

    fn parsed<T: DeserializeOwned>(
        &self,
        key: &str,
        field: &str,
        what: &str,
    ) -> Result<Option<T>, CniError> {
        self.raw(key)
            .map_or(Ok(None), |raw| decoded(raw, field, what))
    }
}

fn decoded<T: DeserializeOwned>(raw: &str, field: &str, what: &str) -> Result<T, CniError> {
    serde_json::from_str(raw).map_err(|error| wrong(field, what).details(brief(&error.to_string())))
}

fn wrong(field: &str, what: &str) -> CniError {
    let field = brief(field);
    CniError::new(
        Code::Config,
        format!("network configuration: {field}: {what}"),
    )
}
