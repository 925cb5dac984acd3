//! A lab's own part of the initramfs: agent, plan, programs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Builder;
use crate::agent::{AGENT_PATH, MODPROBE_PATH};
use crate::assets::Assets;
use crate::cpio;
use crate::error::LabError;
use crate::plan::{MODULES_PATH, NodePlan, PLAN_PATH};
use crate::tree::Tree;

/// The file in the lab's folder.
const FILE: &str = "initrd";

/// The archive of what this lab adds to the base.
pub(super) fn own_files(
    assets: &Assets,
    agent: &Path,
    builder: &Builder,
) -> Result<Vec<u8>, LabError> {
    let mut tree = Tree::default();
    tree.file(AGENT_PATH, 0o755, stripped(agent)?);
    tree.symlink("init", &format!("/{AGENT_PATH}"));
    tree.symlink(MODPROBE_PATH, "podrail-lab-agent");
    let plan =
        serde_json::to_vec(&NodePlan::of(&builder.shape, builder.disk)).map_err(LabError::Json)?;
    tree.file(PLAN_PATH, 0o644, plan);
    if !builder.withheld.is_empty() {
        // A later archive's file replaces the base's: the module is then unknown to everyone.
        let mut table = assets.modules()?;
        table.retain(|module| !builder.withheld.contains(&module.name));
        tree.file(
            MODULES_PATH,
            0o644,
            serde_json::to_vec(&table).map_err(LabError::Json)?,
        );
    }
    for (name, path) in &builder.programs {
        tree.file(&format!("usr/bin/{name}"), 0o755, stripped(path)?);
    }
    Ok(cpio::archive(&tree))
}

/// The cached parts and the own files, end to end, in the lab's folder.
pub(super) fn write(dir: &Path, parts: &[PathBuf], own_files: &[u8]) -> Result<PathBuf, LabError> {
    let path = dir.join(FILE);
    let mut to = File::create(&path).map_err(LabError::io("create", &path))?;
    for part in parts {
        let mut from = File::open(part).map_err(LabError::io("open", part))?;
        io::copy(&mut from, &mut to).map_err(LabError::io("copy to", &path))?;
    }
    to.write_all(own_files)
        .map_err(LabError::io("write", &path))?;
    Ok(path)
}

/// A program without its symbols: a debug build is mostly symbols, and the guest copies every byte
/// under emulation. What `strip` does not take (a script) is packed as it is.
fn stripped(path: &Path) -> Result<Vec<u8>, LabError> {
    let bytes = fs::read(path).map_err(LabError::io("read", path))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(bytes);
    }
    let out = tempfile::NamedTempFile::new().map_err(LabError::io("create a file for", path))?;
    let status = Command::new("strip")
        .arg("-o")
        .arg(out.path())
        .arg(path)
        .status();
    match status.map_err(LabError::io("run", "strip"))?.success() {
        true => fs::read(out.path()).map_err(LabError::io("read", out.path())),
        false => Ok(bytes),
    }
}
