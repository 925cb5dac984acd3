//! Who may depend on whom. Edges point down only.

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use std::path::Path;

/// Each crate and the crates of ours that it may use outside its tests.
const LAYERS: [(&str, &[&str]); 14] = [
    ("podrail-core", &[]),
    ("podrail-host", &["podrail-core"]),
    ("podrail-netlink", &["podrail-core"]),
    ("podrail-store", &["podrail-core"]),
    ("podrail-kubelet", &["podrail-core"]),
    ("podrail-attach", &["podrail-core", "podrail-netlink"]),
    (
        "podrail-node",
        &[
            "podrail-core",
            "podrail-host",
            "podrail-netlink",
            "podrail-store",
            "podrail-attach",
        ],
    ),
    ("podrail-cni", &BELOW_PROGRAMS),
    ("podrail-agent", &BELOW_PROGRAMS),
    (
        "podrail",
        &[
            "podrail-core",
            "podrail-host",
            "podrail-netlink",
            "podrail-store",
            "podrail-attach",
            "podrail-node",
            "podrail-kubelet",
            "podrail-agent",
        ],
    ),
    ("podrail-testkit", &["podrail-core", "podrail-kubelet"]),
    (
        "podrail-fuzz",
        &[
            "podrail-core",
            "podrail-host",
            "podrail-store",
            "podrail-node",
            "podrail-kubelet",
            "podrail-cni",
        ],
    ),
    ("podrail-lab", &["podrail-core"]),
    ("xtask", &["podrail-core", "podrail-testkit", "podrail-lab"]),
];

/// What the plugin and the agent may use.
const BELOW_PROGRAMS: [&str; 7] = [
    "podrail-core",
    "podrail-host",
    "podrail-netlink",
    "podrail-store",
    "podrail-attach",
    "podrail-node",
    "podrail-kubelet",
];

/// What the pure crate may use of others. Anything that does I/O is absent.
const CORE_MAY_USE: [&str; 5] = ["ipnet", "serde", "serde_json", "thiserror", "pathfinding"];

/// I/O of the standard library, which the pure crate does not do.
const NOT_IN_CORE: [&str; 7] = [
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::env",
    "std::time",
    "std::thread",
];

/// Faults of the dependency graph, and I/O in the pure crate.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("run cargo metadata")?;
    let mut faults = graph_faults(&metadata);
    for package in metadata.workspace_packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path)
            .with_context(|| format!("read {}", package.manifest_path))?;
        faults.extend(lint_fault(package.name.as_str(), &manifest));
    }
    faults.extend(core_faults(root)?);
    Ok(faults)
}

fn graph_faults(metadata: &Metadata) -> Vec<String> {
    let packages = metadata.workspace_packages();
    let ours = |name: &str| packages.iter().any(|package| package.name.as_str() == name);
    packages
        .iter()
        .flat_map(|package| package_faults(package, &ours))
        .collect()
}

fn package_faults(package: &Package, ours: &impl Fn(&str) -> bool) -> Vec<String> {
    let name = package.name.as_str();
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return vec![format!(
            "{name}: is not in the table of layers (xtask/src/tidy/layers.rs)"
        )];
    };
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .filter(|dependency| {
            let used = dependency.name.as_str();
            let up = ours(used) && !allowed.contains(&used);
            up || (name == "podrail-core" && !CORE_MAY_USE.contains(&used))
        })
        .map(|dependency| format!("{name}: may not depend on {}", dependency.name))
        .collect()
}

/// A crate that does not take the workspace's lints.
pub(crate) fn lint_fault(name: &str, manifest: &str) -> Option<String> {
    let inherits = manifest.contains("[lints]\nworkspace = true");
    (!inherits).then(|| format!("{name}: Cargo.toml lacks `[lints] workspace = true`"))
}

fn core_faults(root: &Path) -> Result<Vec<String>> {
    let files = super::tracked_files(root)?;
    let core = files.iter().filter(|file| {
        file.starts_with("crates/core/src")
            && file.extension().is_some_and(|e| e == "rs")
            && super::budget::counts(file)
    });
    let mut faults = Vec::new();
    for file in core {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue;
        };
        faults.extend(io_faults(file, &text));
    }
    Ok(faults)
}

/// Uses of I/O in a file of the pure crate.
pub(crate) fn io_faults(file: &Path, text: &str) -> Vec<String> {
    NOT_IN_CORE
        .iter()
        .filter(|banned| text.contains(*banned))
        .map(|banned| format!("{}: the pure crate uses {banned}", file.display()))
        .collect()
}
