//! What the runtime says in the environment.

use super::error::{CniError, Code};
use podrail_core::ids::{IfName, KubeName, PodUid, SandboxId};
use podrail_core::pods::PodRef;
use std::path::PathBuf;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Attach a sandbox.
    Add,
    /// Take it away.
    Del,
    /// See whether it stands.
    Check,
    /// Take all away but what is named.
    Gc,
    /// Can the plugin serve?
    Status,
    /// Which versions?
    Version,
}

impl Command {
    fn parse(text: &str) -> Result<Self, CniError> {
        Ok(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(CniError::new(
                    Code::Environment,
                    format!("CNI_COMMAND is {shown:?}"),
                )
                .details(
                    "a container runtime calls this program with CNI_COMMAND=ADD, DEL, CHECK, GC, STATUS or VERSION",
                ));
            }
        })
    }
}

/// One call of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What is asked.
    pub command: Command,
    /// Id of the sandbox; empty for GC, STATUS and VERSION.
    pub container: String,
    /// Path of its network namespace; empty or absent when it is gone.
    pub netns: Option<PathBuf>,
    /// Name of the cluster network's interface in it.
    pub interface: String,
    /// Who the pod is, where the runtime says so.
    pub args: PodArgs,
}

/// What `CNI_ARGS` says of the pod; texts as given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodArgs {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: Option<String>,
    /// `K8S_POD_NAME`.
    pub name: Option<String>,
    /// `K8S_POD_UID`.
    pub uid: Option<String>,
}

impl Call {
    /// Reads the variables through `var`, so that a test needs no environment of its own.
    ///
    /// # Errors
    /// An unknown command. What a command needs is checked when it is used, so that an odd value
    /// does not break a pod that wants no rails.
    pub fn read(var: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let command = Command::parse(&var("CNI_COMMAND").unwrap_or_default())?;
        let netns = var("CNI_NETNS").filter(|path| !path.is_empty());
        Ok(Self {
            command,
            container: var("CNI_CONTAINERID").unwrap_or_default(),
            netns: netns.map(PathBuf::from),
            interface: var("CNI_IFNAME").unwrap_or_default(),
            args: PodArgs::parse(&var("CNI_ARGS").unwrap_or_default()),
        })
    }

    /// The sandbox.
    ///
    /// # Errors
    /// `CNI_CONTAINERID` is missing or no id.
    pub fn sandbox(&self) -> Result<SandboxId, CniError> {
        SandboxId::parse(&self.container)
            .map_err(|error| CniError::new(Code::Environment, format!("CNI_CONTAINERID: {error}")))
    }

    /// The network namespace that is to be attached.
    ///
    /// # Errors
    /// `CNI_NETNS` is missing.
    pub fn required_netns(&self) -> Result<&PathBuf, CniError> {
        self.netns
            .as_ref()
            .ok_or_else(|| CniError::new(Code::Environment, "CNI_NETNS is missing"))
    }

    /// The name of the cluster network's interface, which no rail may take.
    ///
    /// # Errors
    /// `CNI_IFNAME` is missing or no interface name.
    pub fn cluster_interface(&self) -> Result<IfName, CniError> {
        IfName::parse(&self.interface)
            .map_err(|error| CniError::new(Code::Environment, format!("CNI_IFNAME: {error}")))
    }
}

impl PodArgs {
    /// Reads `KEY=VALUE;KEY=VALUE`; what is not about the pod is somebody else's.
    fn parse(text: &str) -> Self {
        let mut args = Self::default();
        for (key, value) in text.split(';').filter_map(|pair| pair.split_once('=')) {
            let place = match key {
                "K8S_POD_NAMESPACE" => &mut args.namespace,
                "K8S_POD_NAME" => &mut args.name,
                "K8S_POD_UID" => &mut args.uid,
                _ => continue,
            };
            *place = Some(value.to_owned());
        }
        args
    }

    /// The UID, if it is one: the key of the cheap test.
    #[must_use]
    pub fn uid(&self) -> Option<PodUid> {
        PodUid::parse(self.uid.as_deref()?).ok()
    }

    /// Namespace and name of the pod as the runtime gave them, unchecked.
    #[must_use]
    pub fn name(&self) -> Option<(&str, &str)> {
        Some((self.namespace.as_deref()?, self.name.as_deref()?))
    }

    /// The pod; none if the runtime does not speak of Kubernetes' pods: podman sets a name alone.
    ///
    /// # Errors
    /// Some of it is missing or malformed.
    pub fn pod(&self) -> Result<Option<PodRef>, CniError> {
        if self.uid.is_none() && self.namespace.is_none() {
            return Ok(None);
        }
        fn part<T, E: std::fmt::Display>(
            key: &str,
            value: Option<&String>,
            parse: impl Fn(&str) -> Result<T, E>,
        ) -> Result<T, CniError> {
            let wrong =
                |what: String| CniError::new(Code::Environment, format!("CNI_ARGS: {what}"));
            let value = value.ok_or_else(|| wrong(format!("{key} is missing")))?;
            parse(value).map_err(|error| wrong(format!("{key}: {error}")))
        }
        Ok(Some(PodRef {
            uid: part("K8S_POD_UID", self.uid.as_ref(), PodUid::parse)?,
            namespace: part(
                "K8S_POD_NAMESPACE",
                self.namespace.as_ref(),
                KubeName::parse,
            )?,
            name: part("K8S_POD_NAME", self.name.as_ref(), KubeName::parse)?,
        }))
    }
}
