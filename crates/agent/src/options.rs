//! What the agent is told at its start.

use crate::http::DEFAULT_LISTEN;
use crate::install::Installer;
use podrail_kubelet::plugin::DEFAULT_DIRECTORY;
use podrail_node::Places;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Read when no other configuration is named, if it exists.
const DEFAULT_CONFIG: &str = "/etc/podrail/config.yaml";

/// Paths and addresses; the default is a node as kubelet and runtime set it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Below which sysfs and /proc are read.
    pub root: PathBuf,
    /// The configuration; `None`: the usual one, if it exists.
    pub config: Option<PathBuf>,
    /// Addresses of the node; interfaces that have one are no rails.
    pub node_addresses: Vec<IpAddr>,
    /// The kubelet's directory for device plugins.
    pub device_plugins: PathBuf,
    /// What the plugin is told as well: state file, kubelet, CDI.
    pub paths: Places,
    /// The delivered `podrail-cni`; `None`: program and chain are somebody else's matter.
    pub plugin: Option<PathBuf>,
    /// The runtime's directory of CNI programs.
    pub cni_bin: PathBuf,
    /// The runtime's directory of CNI configurations.
    pub cni_conf: PathBuf,
    /// Where metrics and health are told.
    pub listen: SocketAddr,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root: "/".into(),
            config: None,
            node_addresses: vec![],
            device_plugins: DEFAULT_DIRECTORY.into(),
            paths: Places::default(),
            plugin: None,
            cni_bin: "/opt/cni/bin".into(),
            cni_conf: "/etc/cni/net.d".into(),
            listen: DEFAULT_LISTEN,
        }
    }
}

impl Options {
    /// What puts the plugin on the node; none if that is somebody else's matter.
    #[must_use]
    pub fn installer(&self) -> Option<Installer> {
        Some(Installer {
            source: self.plugin.clone()?,
            bin_dir: self.cni_bin.clone(),
            conf_dir: self.cni_conf.clone(),
            places: self.paths.clone(),
        })
    }

    /// Path of the configuration.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.config.clone().unwrap_or(DEFAULT_CONFIG.into())
    }
}
