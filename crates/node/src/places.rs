//! What agent and plugin must agree on, although they never speak: where things are on the node, how
//! the fields of the plugin's configuration are called, and its versions of the protocol.

use std::path::{Path, PathBuf};

/// Versions of the CNI protocol that the plugin speaks; a chain is called with one for all. 0.3.x
/// has no CHECK, but many clusters' own plugins are still configured with it.
pub const CNI_VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Where things are. The agent writes what differs from the default into the plugin's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// State file.
    pub state: PathBuf,
    /// Socket of the kubelet's PodResources.
    pub pod_resources: PathBuf,
    /// Checkpoint of the kubelet's device manager.
    pub checkpoint: PathBuf,
    /// Where the runtime looks for CDI files.
    pub cdi: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            state: "/var/lib/podrail/state.db".into(),
            pod_resources: "/var/lib/kubelet/pod-resources/kubelet.sock".into(),
            checkpoint: "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint".into(),
            cdi: "/var/run/cdi".into(),
        }
    }
}

impl Places {
    /// Names of the configuration's fields, in their order there.
    pub const FIELDS: [&str; 4] = ["state", "podResources", "checkpoint", "cdi"];

    /// The place that a field of the configuration names; none if there is no such field.
    pub fn field(&mut self, name: &str) -> Option<&mut PathBuf> {
        match name {
            "state" => Some(&mut self.state),
            "podResources" => Some(&mut self.pod_resources),
            "checkpoint" => Some(&mut self.checkpoint),
            "cdi" => Some(&mut self.cdi),
            _ => None,
        }
    }

    /// Fields that differ from the default, with their values.
    #[must_use]
    pub fn unusual(&self) -> Vec<(&'static str, &Path)> {
        let usual = Self::default();
        Self::FIELDS
            .into_iter()
            .zip([
                (&self.state, &usual.state),
                (&self.pod_resources, &usual.pod_resources),
                (&self.checkpoint, &usual.checkpoint),
                (&self.cdi, &usual.cdi),
            ])
            .filter(|(_, (here, usual))| here != usual)
            .map(|(field, (here, _))| (field, here.as_path()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let mut places = Places::default();
        assert_eq!(places.unusual(), []);
        for field in Places::FIELDS {
            *places.field(field).unwrap() = format!("/x/{field}").into();
        }
        let written: Vec<(&str, PathBuf)> = places
            .unusual()
            .into_iter()
            .map(|(field, path)| (field, path.to_owned()))
            .collect();
        assert_eq!(written.len(), Places::FIELDS.len());
        let mut read = Places::default();
        for (field, path) in written {
            *read.field(field).unwrap() = path;
        }
        assert_eq!(read, places);
        assert_eq!(read.field("other"), None);
    }
}
