//! The guest's programs: named binaries with their library closure, busybox for the rest.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cpio::Archive;
use crate::error::LabError;

/// Packages fetched by name; apt adds what they depend on.
pub(super) const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "busybox-static",
    "containernetworking-plugins",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "jq",
    "kmod",
    "mawk",
    "mount",
    "pciutils",
    "perftest",
    "rdmacm-utils",
    "sqlite3",
    "strace",
    "tcpdump",
    "util-linux",
];
/// Programs packed; everything else of the packages is left out.
pub(super) const PROGRAMS: &[&str] = &[
    "bash",
    "busybox",
    "ip",
    "rdma",
    "tc",
    "ss",
    "bridge",
    "ethtool",
    "ping",
    "tcpdump",
    "ibv_devinfo",
    "ibv_devices",
    "ibv_rc_pingpong",
    "ib_write_bw",
    "ib_read_bw",
    "ib_send_bw",
    "ib_write_lat",
    "rping",
    "ucmatose",
    "udaddy",
    "strace",
    "jq",
    "mawk",
    "sqlite3",
    "lspci",
    "setpriv",
    "nsenter",
    "unshare",
    "mount",
    "umount",
    "flock",
    "setsid",
    "prlimit",
    "lsns",
];
/// The reference CNI plugins that the lab compares with.
pub(super) const PLUGINS: &[&str] = &[
    "ipvlan",
    "host-local",
    "tuning",
    "sbr",
    "loopback",
    "static",
    "bridge",
];

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Loaded at run time, so no ELF header names them: the rxe provider of libibverbs; libgcc, which
/// `pthread_cancel` opens (perftest, rping) and Rust programs of the host link; what these open.
const OPENED: [&str; 3] = ["libgcc_s.so.1", "libm.so.6", "libresolv.so.2"];
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Packs the guest's root, without modules and a lab's own files.
pub(super) fn pack(tree: &Path, archive: &mut Archive) -> Result<(), LabError> {
    let mut packer = Packer {
        tree,
        archive,
        wanted: OPENED.map(String::from).into(),
    };
    packer.layout();
    for name in PROGRAMS {
        packer.program(name)?;
    }
    for name in PLUGINS {
        let path = format!("usr/lib/cni/{name}");
        packer.binary(&tree.join(&path), &path)?;
    }
    packer.providers()?;
    packer.libraries()?;
    packer.applets()
}

struct Packer<'a> {
    tree: &'a Path,
    archive: &'a mut Archive,
    /// Libraries still to pack.
    wanted: VecDeque<String>,
}

impl Packer<'_> {
    /// Merged /usr as in Debian, and the folders that the agent mounts on.
    fn layout(&mut self) {
        for dir in [
            "proc", "sys", "dev", "run", "tmp", "root", "mnt", "var/lib", "opt/cni", "lab/root",
        ] {
            self.archive.directory(dir);
        }
        for (link, target) in [
            ("bin", "usr/bin"),
            ("sbin", "usr/sbin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
            ("var/run", "/run"),
            ("opt/cni/bin", "/usr/lib/cni"),
            ("usr/bin/sh", "bash"),
            ("usr/bin/awk", "mawk"),
        ] {
            self.archive.symlink(link, target);
        }
        // The kernel opens it for PID 1 before devtmpfs is there.
        self.archive.character_device("dev/console", (5, 1));
        for (path, text) in [
            (
                "etc/passwd",
                "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
            ),
            ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
            ("etc/hosts", "127.0.0.1 localhost\n"),
            ("etc/hostname", "rail-node\n"),
            ("etc/libibverbs.d/rxe.driver", "driver rxe\n"),
        ] {
            self.archive.file(path, 0o644, text.as_bytes());
        }
    }

    fn program(&mut self, name: &str) -> Result<(), LabError> {
        let places = ["usr/bin", "usr/sbin"].map(|dir| format!("{dir}/{name}"));
        let found = places.iter().find(|path| self.tree.join(path).exists());
        let path =
            found.ok_or_else(|| LabError::asset(self.tree, format!("has no program {name}")))?;
        self.binary(&self.tree.join(path), path)
    }

    /// Packs a file as `path` and notes the libraries it needs.
    fn binary(&mut self, file: &Path, path: &str) -> Result<(), LabError> {
        let bytes = fs::read(file).map_err(LabError::io("read", file))?;
        let mode = fs::metadata(file)
            .map_err(LabError::io("inspect", file))?
            .permissions()
            .mode();
        if bytes.starts_with(b"\x7fELF") {
            let needed = needed(&bytes).map_err(|what| LabError::asset(file, what))?;
            self.wanted.extend(needed);
        }
        self.archive.file(path, mode, &bytes);
        Ok(())
    }

    fn providers(&mut self) -> Result<(), LabError> {
        let dir = self.tree.join(LIBRARIES).join("libibverbs");
        for entry in fs::read_dir(&dir).map_err(LabError::io("read", &dir))? {
            let entry = entry.map_err(LabError::io("read", &dir))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("librxe") {
                self.binary(&entry.path(), &format!("{LIBRARIES}/libibverbs/{name}"))?;
            }
        }
        Ok(())
    }

    fn libraries(&mut self) -> Result<(), LabError> {
        let mut done = BTreeSet::new();
        while let Some(name) = self.wanted.pop_front() {
            if !done.insert(name.clone()) {
                continue;
            }
            let file = self.tree.join(LIBRARIES).join(&name);
            if !file.exists() {
                return Err(LabError::asset(&file, "is needed and in no package"));
            }
            self.binary(&file, &format!("{LIBRARIES}/{name}"))?;
        }
        let loader = self.tree.join(LIBRARIES).join(LOADER);
        self.binary(&loader, &format!("usr/lib64/{LOADER}"))
    }

    /// A link for every busybox tool that no real program stands for.
    fn applets(&mut self) -> Result<(), LabError> {
        let busybox: PathBuf = self.tree.join("usr/bin/busybox");
        let output = Command::new(&busybox).arg("--list").output();
        let output = output.map_err(LabError::io("run", &busybox))?;
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            let [bin, sbin] = ["usr/bin", "usr/sbin"].map(|dir| format!("{dir}/{name}"));
            // `modprobe` is the agent: the kernel calls it and the modules' table is the agent's.
            if name != "modprobe" && !self.archive.contains(&bin) && !self.archive.contains(&sbin) {
                self.archive.symlink(&bin, "busybox");
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
