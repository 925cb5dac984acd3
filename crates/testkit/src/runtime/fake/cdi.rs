//! Resolves CDI names as a runtime does: all files of the directories, at each creation.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

/// What is done to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Edits {
    #[serde(default)]
    pub(super) env: Vec<String>,
    #[serde(default)]
    pub(super) device_nodes: Vec<DeviceNode>,
    #[serde(default)]
    pub(super) mounts: Vec<Mount>,
}

/// A device node in the container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceNode {
    pub(super) path: String,
    #[serde(default)]
    pub(super) host_path: Option<String>,
}

/// A mount in the container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) host_path: String,
    pub(super) container_path: String,
}

impl Edits {
    fn add(&mut self, more: &Self) {
        self.env.extend_from_slice(&more.env);
        self.device_nodes.extend_from_slice(&more.device_nodes);
        self.mounts.extend_from_slice(&more.mounts);
    }
}

/// Edits of all names, in their order; the common edits of a file come first and once.
pub(super) fn resolve(directories: &[PathBuf], names: &[String]) -> Result<Edits, String> {
    let specs = specs(directories);
    let mut edits = Edits::default();
    let mut unresolved = Vec::new();
    let mut used: Vec<&Path> = Vec::new();
    for name in names {
        match find(&specs, name).as_slice() {
            [(path, spec, device)] => {
                if !used.contains(path) {
                    used.push(path);
                    edits.add(&spec.container_edits);
                }
                edits.add(&device.container_edits);
            }
            // A name that stands twice is a conflict, which a runtime treats as absent.
            _ => unresolved.push(name.as_str()),
        }
    }
    match unresolved.is_empty() {
        true => Ok(edits),
        false => Err(format!(
            "CDI device injection failed: unresolvable CDI devices {}",
            unresolved.join(", ")
        )),
    }
}

fn find<'a>(
    specs: &'a BTreeMap<PathBuf, Spec>,
    name: &str,
) -> Vec<(&'a Path, &'a Spec, &'a Device)> {
    let Some((kind, device)) = name.split_once('=') else {
        return vec![];
    };
    let of_kind = specs.iter().filter(|(_, spec)| spec.kind == kind);
    let devices = of_kind.flat_map(|(path, spec)| {
        spec.devices
            .iter()
            .map(move |device| (path.as_path(), spec, device))
    });
    devices
        .filter(|(_, _, found)| found.name == device)
        .collect()
}

/// Files that are no CDI are skipped, as runtimes do.
fn specs(directories: &[PathBuf]) -> BTreeMap<PathBuf, Spec> {
    let files = directories
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok());
    let paths = files.flatten().flatten().map(|entry| entry.path());
    let json = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    json.filter_map(|path| {
        let text = std::fs::read_to_string(&path).ok()?;
        let spec = serde_json::from_str(&text).ok()?;
        Some((path, spec))
    })
    .collect()
}
