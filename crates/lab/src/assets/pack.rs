//! Takes programs out of unpacked packages, with the libraries they need.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::LabError;
use crate::tree::Tree;

/// Where Debian has them.
pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Loaded at run time, so no ELF header names them: libgcc, which `pthread_cancel` opens (perftest,
/// rping) and Rust programs of the host link; what these open.
const OPENED: [&str; 3] = ["libgcc_s.so.1", "libm.so.6", "libresolv.so.2"];
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Copies files of packages into a tree, and notes the libraries still to copy.
pub(super) struct Packer<'a> {
    packages: &'a Path,
    pub(super) tree: Tree,
    wanted: VecDeque<String>,
}

impl<'a> Packer<'a> {
    pub(super) fn new(packages: &'a Path) -> Self {
        Self {
            packages,
            tree: Tree::default(),
            wanted: VecDeque::new(),
        }
    }

    /// Merged /usr as in Debian.
    pub(super) fn merged_usr(&mut self) {
        for (link, target) in [
            ("bin", "usr/bin"),
            ("sbin", "usr/sbin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
            ("usr/bin/sh", "bash"),
            ("usr/bin/awk", "mawk"),
        ] {
            self.tree.symlink(link, target);
        }
    }

    /// Packs a program under its own path, `/usr/bin` or `/usr/sbin`.
    pub(super) fn program(&mut self, name: &str) -> Result<(), LabError> {
        let places = ["usr/bin", "usr/sbin"].map(|dir| format!("{dir}/{name}"));
        let found = places
            .iter()
            .find(|path| self.packages.join(path).exists())
            .ok_or_else(|| LabError::asset(self.packages, format!("has no program {name}")))?;
        self.binary(&self.packages.join(found), found)
    }

    /// Packs a file as `path` and notes the libraries it needs.
    pub(super) fn binary(&mut self, file: &Path, path: &str) -> Result<(), LabError> {
        let bytes = fs::read(file).map_err(LabError::io("read", file))?;
        let mode = fs::metadata(file)
            .map_err(LabError::io("inspect", file))?
            .permissions()
            .mode();
        if bytes.starts_with(b"\x7fELF") {
            let needed = needed(&bytes).map_err(|what| LabError::asset(file, what))?;
            self.wanted.extend(needed);
        }
        self.tree.file(path, mode, bytes);
        Ok(())
    }

    /// The rxe provider of libibverbs, which it opens by the name in its configuration.
    pub(super) fn rxe_provider(&mut self) -> Result<(), LabError> {
        let driver = "etc/libibverbs.d/rxe.driver";
        self.tree.file(driver, 0o644, "driver rxe\n");
        let dir = self.packages.join(LIBRARIES).join("libibverbs");
        for entry in fs::read_dir(&dir).map_err(LabError::io("read", &dir))? {
            let entry = entry.map_err(LabError::io("read", &dir))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("librxe") {
                self.binary(&entry.path(), &format!("{LIBRARIES}/libibverbs/{name}"))?;
            }
        }
        Ok(())
    }

    /// Packs the libraries of everything so far that `beneath` does not have, and the loader.
    pub(super) fn libraries(&mut self, beneath: &Tree) -> Result<(), LabError> {
        self.wanted.extend(OPENED.map(String::from));
        let mut done = BTreeSet::new();
        while let Some(name) = self.wanted.pop_front() {
            let path = format!("{LIBRARIES}/{name}");
            if beneath.contains(&path) || !done.insert(name) {
                continue;
            }
            let file = self.packages.join(&path);
            if !file.exists() {
                return Err(LabError::asset(&file, "is needed and in no package"));
            }
            self.binary(&file, &path)?;
        }
        let (file, path) = (
            self.packages.join(LIBRARIES).join(LOADER),
            format!("usr/lib64/{LOADER}"),
        );
        match beneath.contains(&path) {
            true => Ok(()),
            false => self.binary(&file, &path),
        }
    }

    /// A link for every busybox tool that no real program stands for.
    pub(super) fn applets(&mut self) -> Result<(), LabError> {
        let busybox: PathBuf = self.packages.join("usr/bin/busybox");
        let output = Command::new(&busybox).arg("--list").output();
        let output = output.map_err(LabError::io("run", &busybox))?;
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            let [bin, sbin] = ["usr/bin", "usr/sbin"].map(|dir| format!("{dir}/{name}"));
            // `modprobe` is the agent: the kernel calls it and the modules' table is the agent's.
            if name != "modprobe" && !self.tree.contains(&bin) && !self.tree.contains(&sbin) {
                self.tree.symlink(&bin, "busybox");
            }
        }
        Ok(())
    }
}

/// The libraries an ELF file names, without the loader.
fn needed(elf: &[u8]) -> Result<Vec<String>, String> {
    let file = object::File::parse(elf).map_err(|error| error.to_string())?;
    let object::File::Elf64(elf) = file else {
        return Err("is not a 64-bit ELF file".into());
    };
    let table = elf
        .elf_section_table()
        .dynamic_table(elf.endian(), elf.data());
    let table = table.map_err(|error| error.to_string())?;
    let entries = table
        .iter()
        .filter(|entry| entry.tag == object::elf::DT_NEEDED);
    let names = entries.map(|entry| {
        let name = table.string(entry).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(name).into_owned())
    });
    names.filter(|name| name.as_deref() != Ok(LOADER)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_test_itself() {
        let me = fs::read(std::env::current_exe().unwrap()).unwrap();
        let names = needed(&me).unwrap();
        assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
        assert!(names.iter().all(|name| name != LOADER), "{names:?}");
        assert!(needed(b"#!/bin/sh").is_err());
    }
}
