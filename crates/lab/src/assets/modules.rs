//! The kernel modules of the guest and what they depend on, decompressed and in loading order.
//!
//! Packages carry no `modules.dep` (a maintainer script would make it), so each module's own
//! `.modinfo` section is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use super::kernel::decompress;
use crate::error::LabError;
use crate::plan::Module;
use crate::tree::Tree;

/// What a node and the tests on it load.
pub(super) const WANTED: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "virtio_blk",
    "ext4",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "ipvlan",
    "macvlan",
    "dummy",
    "veth",
    "bridge",
    "bonding",
    "8021q",
    "vrf",
    "tun",
    "cls_flower",
    "act_vlan",
    "act_mirred",
    "sch_ingress",
    "overlay",
    "nf_tables",
    "nft_chain_nat",
    "nft_masq",
    "nft_compat",
    "xt_MASQUERADE",
    "xt_comment",
    "9p",
    "9pnet_virtio",
];
/// Aliases of hardware, which nothing in the guest asks for.
const HARDWARE: [&str; 7] = ["pci:", "virtio:", "usb:", "of:", "acpi", "dmi:", "x86cpu:"];

/// Packs the wanted modules and returns their table, each after what it depends on.
pub(super) fn pack(
    packages: &Path,
    release: &str,
    tree: &mut Tree,
) -> Result<Vec<Module>, LabError> {
    let base = packages.join("usr/lib/modules").join(release);
    let files = Files::of(&base)?;
    let mut loaded: BTreeMap<String, (Module, Vec<u8>)> = BTreeMap::new();
    let mut order = Vec::new();
    for name in WANTED {
        add(name, &files, &mut loaded, &mut order)?;
    }
    let mut table = Vec::new();
    for name in order {
        let Some((module, bytes)) = loaded.remove(&name) else {
            continue;
        };
        if let Some(path) = &module.path {
            tree.file(path.trim_start_matches('/'), 0o644, bytes);
        }
        table.push(module);
    }
    Ok(table)
}

/// The modules of one kernel, by name, and those built in.
struct Files {
    base: PathBuf,
    by_name: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
}

impl Files {
    fn of(base: &Path) -> Result<Self, LabError> {
        let mut by_name = BTreeMap::new();
        walk(&base.join("kernel"), &mut by_name)?;
        let list = base.join("modules.builtin");
        let text = fs::read_to_string(&list).map_err(LabError::io("read", &list))?;
        let built_in = text
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self {
            base: base.into(),
            by_name,
            built_in,
        })
    }
}

/// Depth first: a module comes after all it depends on, once.
fn add(
    name: &str,
    files: &Files,
    loaded: &mut BTreeMap<String, (Module, Vec<u8>)>,
    order: &mut Vec<String>,
) -> Result<(), LabError> {
    let name = name.replace('-', "_");
    if loaded.contains_key(&name) {
        return Ok(());
    }
    if files.built_in.contains(&name) {
        let module = Module {
            name: name.clone(),
            path: None,
            depends: vec![],
            aliases: vec![],
        };
        loaded.insert(name.clone(), (module, Vec::new()));
        order.push(name);
        return Ok(());
    }
    let path = files
        .by_name
        .get(&name)
        .ok_or_else(|| LabError::asset(&files.base, format!("has no module {name}")))?;
    let packed = fs::read(path).map_err(LabError::io("read", path))?;
    let bytes = decompress(&packed).map_err(LabError::io("decompress", path))?;
    let information = information(&bytes).map_err(|what| LabError::asset(path, what))?;
    let module = describe(&name, &files.base, &information);
    let depends = module.depends.clone();
    loaded.insert(name.clone(), (module, bytes));
    for dependency in depends {
        add(&dependency, files, loaded, order)?;
    }
    order.push(name);
    Ok(())
}

fn describe(name: &str, base: &Path, information: &[(String, String)]) -> Module {
    let values = |key: &'static str| {
        information
            .iter()
            .filter(move |(found, _)| found == key)
            .map(|(_, value)| value.as_str())
    };
    let release = base.file_name().unwrap_or_default().to_string_lossy();
    let aliases =
        values("alias").filter(|alias| !HARDWARE.iter().any(|kind| alias.starts_with(kind)));
    Module {
        name: name.into(),
        path: Some(format!("/usr/lib/modules/{release}/{name}.ko")),
        depends: values("depends")
            .flat_map(|list| list.split(','))
            .filter(|one| !one.is_empty())
            .map(|one| one.replace('-', "_"))
            .collect(),
        aliases: aliases.map(String::from).collect(),
    }
}

/// The `key=value` pairs of a module's `.modinfo` section.
fn information(elf: &[u8]) -> Result<Vec<(String, String)>, String> {
    let file = object::File::parse(elf).map_err(|error| error.to_string())?;
    let section = file
        .section_by_name(".modinfo")
        .ok_or("has no .modinfo section")?;
    let data = section.data().map_err(|error| error.to_string())?;
    Ok(data
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect())
}

fn walk(dir: &Path, by_name: &mut BTreeMap<String, PathBuf>) -> Result<(), LabError> {
    for entry in fs::read_dir(dir).map_err(LabError::io("read", dir))? {
        let entry = entry.map_err(LabError::io("read", dir))?;
        let path = entry.path();
        if path.is_dir() {
            walk(&path, by_name)?;
        } else if let Some(name) = module_name(&path) {
            by_name.insert(name, path);
        }
    }
    Ok(())
}

/// `ib_core` from `.../ib-core.ko.xz`; nothing from other files.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, rest) = file.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"]
        .contains(&rest)
        .then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests;
