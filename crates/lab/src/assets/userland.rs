//! The guest's programs: named binaries with their library closure, busybox for the rest.

use std::path::Path;

use super::pack::Packer;
use crate::error::LabError;
use crate::tree::Tree;

/// Packages fetched by name; apt adds what they depend on.
pub(super) const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "busybox-static",
    "containernetworking-plugins",
    "e2fsprogs",
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
    "findmnt",
    "flock",
    "setsid",
    "prlimit",
    "lsns",
    "mke2fs",
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

/// The guest's root, without modules and a lab's own files.
pub(super) fn pack(packages: &Path) -> Result<Tree, LabError> {
    let mut packer = Packer::new(packages);
    layout(&mut packer);
    for name in PROGRAMS {
        packer.program(name)?;
    }
    for name in PLUGINS {
        let path = format!("usr/lib/cni/{name}");
        packer.binary(&packages.join(&path), &path)?;
        // Where runtimes look, and where an installer puts its own beside them.
        let link = format!("opt/cni/bin/{name}");
        packer.tree.symlink(&link, &format!("/{path}"));
    }
    packer.rxe_provider()?;
    packer.libraries(&Tree::default())?;
    packer.applets()?;
    Ok(packer.tree)
}

/// The folders that the agent mounts on, and the files that every program expects.
fn layout(packer: &mut Packer<'_>) {
    packer.merged_usr();
    let tree = &mut packer.tree;
    for dir in [
        "proc", "sys", "dev", "run", "tmp", "root", "mnt", "var/lib", "lab/root", "persist",
    ] {
        tree.directory(dir);
    }
    tree.symlink("var/run", "/run");
    // The kernel opens it for PID 1 before devtmpfs is there.
    tree.character_device("dev/console", (5, 1));
    for (path, text) in [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
        ),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("etc/hosts", "127.0.0.1 localhost\n"),
        ("etc/hostname", "rail-node\n"),
    ] {
        tree.file(path, 0o644, text);
    }
}
