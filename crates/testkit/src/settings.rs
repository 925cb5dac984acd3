//! How a stand-in is started, and where its files are.

use std::path::{Path, PathBuf};

/// How a stand-in is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The kubelet's directory, `/var/lib/kubelet` on a node.
    pub root: PathBuf,
    /// For its dice.
    pub seed: u64,
    /// Instead of the image of every container.
    pub image: Option<String>,
    /// Says on stderr what it does.
    pub verbose: bool,
}

impl Settings {
    /// Settings for tests.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            seed: 1,
            image: None,
            verbose: false,
        }
    }

    /// Where plugins and the kubelet meet.
    pub fn plugins_directory(&self) -> PathBuf {
        self.root.join("device-plugins")
    }

    /// The socket of PodResources.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.root.join("pod-resources/kubelet.sock")
    }

    /// What only the stand-in has.
    pub fn state_directory(&self) -> PathBuf {
        self.root.join("standin")
    }

    /// Where commands are sent.
    pub fn control_socket(&self) -> PathBuf {
        self.state_directory().join("control.sock")
    }

    pub(crate) fn pods_directory(&self) -> PathBuf {
        self.state_directory().join("pods")
    }

    pub(crate) fn config_maps_directory(&self) -> PathBuf {
        self.state_directory().join("configmaps")
    }

    pub(crate) fn volumes_directory(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid).join("volumes")
    }
}
