//! What tests can turn while the stand-in runs.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How PodResources' `Get` behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Get {
    /// As from 1.34 on.
    On,
    /// As in kubelets that do not have it: Unimplemented.
    Off,
    /// As with its feature gate off.
    Disabled,
}

/// How `List` cuts a container's devices of one resource into entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One entry per NUMA node.
    Numa,
    /// One entry per device, as seen of 1.36.
    Device,
}

/// All knobs, with their defaults as the real kubelet behaves, but shorter waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Knobs {
    /// `Get` of PodResources.
    pub get: Get,
    /// Entries of PodResources.
    pub layout: Layout,
    /// Milliseconds before each answer of PodResources.
    pub delay_ms: u64,
    /// 100 requests per second, 10 at once; beyond that ResourceExhausted.
    pub rate_limit: bool,
    /// MiB of pods without devices of interest that are added to `List`.
    pub padding_mib: u64,
    /// Pods that are added to `List`: resource by device ids.
    pub extra_pods: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// What `List` and `Get` say instead of a device id.
    pub rename_devices: BTreeMap<String, String>,
    /// Milliseconds until a failed start is tried again; the real kubelet takes 10 to 15 s.
    pub backoff_ms: u64,
    /// Milliseconds between two looks at the runtime.
    pub relist_ms: u64,
    /// Milliseconds until a sandbox that was replaced is removed; the real kubelet takes a minute.
    pub sandbox_gc_ms: u64,
    /// Milliseconds between the first look at the plugins and the admission of pods that are found
    /// at start. The real kubelet waits for the API server here.
    pub admission_delay_ms: u64,
    /// Milliseconds between admission and the sandbox.
    pub sandbox_delay_ms: u64,
    /// Admitted pods wait before their sandbox until this is off again.
    pub hold_sandboxes: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            get: Get::On,
            layout: Layout::Device,
            delay_ms: 0,
            rate_limit: true,
            padding_mib: 0,
            extra_pods: BTreeMap::new(),
            rename_devices: BTreeMap::new(),
            backoff_ms: 1_000,
            relist_ms: 300,
            sandbox_gc_ms: 5_000,
            admission_delay_ms: 2_000,
            sandbox_delay_ms: 0,
            hold_sandboxes: false,
        }
    }
}

impl Knobs {
    /// Turns one knob; the value is JSON, or plain text.
    ///
    /// # Errors
    /// Names an unknown knob, or the shape that its value must have.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        let refused = |error: serde_json::Error| Error::Refused(format!("knob {key}: {error}"));
        let mut all = serde_json::to_value(&*self).map_err(refused)?;
        if let Some(map) = all.as_object_mut() {
            map.insert(key.to_owned(), value);
        }
        *self = serde_json::from_value(all).map_err(refused)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Get, Knobs};

    #[test]
    fn a_knob_takes_json_or_text_and_refuses_the_rest() {
        let mut knobs = Knobs::default();
        knobs.set("get", "off").unwrap();
        knobs.set("delay-ms", "250").unwrap();
        assert_eq!((knobs.get, knobs.delay_ms), (Get::Off, 250));
        assert!(
            knobs
                .set("delay", "250")
                .unwrap_err()
                .to_string()
                .contains("unknown field")
        );
        assert!(knobs.set("delay-ms", "soon").is_err());
        assert_eq!(knobs.delay_ms, 250);
    }
}
