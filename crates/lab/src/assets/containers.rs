//! containerd with runc, and the images of the pods: an archive of its own, so that only the labs that
//! run containers copy it.

use std::path::Path;

use super::image::{self, Image};
use super::pack::Packer;
use crate::error::LabError;
use crate::tree::Tree;

/// Packages fetched by name beside the guest's.
pub(super) const PACKAGES: &[&str] = &["containerd", "runc"];
/// Programs packed for the node.
pub(super) const PROGRAMS: &[&str] = &["containerd", "containerd-shim-runc-v2", "ctr", "runc"];
/// Programs packed for the pods: what a user of RDMA has in an image, and what tests look with.
pub(super) const POD_PROGRAMS: &[&str] = &[
    "bash",
    "busybox",
    "ip",
    "ping",
    "ibv_devinfo",
    "ibv_devices",
    "ibv_rc_pingpong",
    "ib_write_bw",
    "mawk",
    "setpriv",
];
/// Configuration of containerd and the cluster's network.
pub(super) const FILES: [(&str, &str); 3] = [
    (
        "etc/containerd/config.toml",
        include_str!("containers/config.toml"),
    ),
    (
        "etc/cni/net.d/10-cluster.conflist",
        include_str!("containers/10-cluster.conflist"),
    ),
    // containerd gives each pod a copy.
    ("etc/resolv.conf", "nameserver 127.0.0.1\n"),
];
/// The image of every sandbox.
const PAUSE: &str = "localhost/pause:1";
/// The image of the pods.
const RDMA: &str = "localhost/rdma:1";

/// What containerd needs beyond the guest's `base`.
pub(super) fn pack(packages: &Path, base: &Tree) -> Result<Tree, LabError> {
    let mut packer = Packer::new(packages);
    for name in PROGRAMS {
        packer.program(name)?;
    }
    packer.libraries(base)?;
    let mut tree = packer.tree;
    for (path, text) in FILES {
        tree.file(path, 0o644, text);
    }
    let mut pause = Tree::default();
    pause.file("pause", 0o755, sleeper());
    let images = [
        Image {
            name: PAUSE,
            files: &pause,
            command: "/pause",
        },
        Image {
            name: RDMA,
            files: &pod(packages)?,
            command: "/usr/bin/bash",
        },
    ];
    tree.file("lab/images.tar", 0o644, image::archive(&images)?);
    Ok(tree)
}

/// The root of the pods' image.
fn pod(packages: &Path) -> Result<Tree, LabError> {
    let mut packer = Packer::new(packages);
    packer.merged_usr();
    for name in POD_PROGRAMS {
        packer.program(name)?;
    }
    packer.rxe_provider()?;
    packer.libraries(&Tree::default())?;
    packer.applets()?;
    let mut tree = packer.tree;
    for (path, text) in [
        (
            "etc/passwd",
            "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/tmp:/bin/bash\n\
             nobody:x:65534:65534::/:/bin/false\n",
        ),
        ("etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"),
    ] {
        tree.file(path, 0o644, text);
    }
    tree.directory("root");
    tree.directory_with_mode("tmp", 0o1777);
    Ok(tree)
}

/// An ELF program that sleeps for ever, without a library: importing and starting it costs nothing.
fn sleeper() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    // mov eax, 34 (pause); syscall; jmp back
    const CODE: [u8; 9] = [0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];
    // Executable, x86-64, version 1.
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    // Entry, program headers' place, no sections.
    for word in [BASE + HEADERS, 64, 0] {
        elf.extend_from_slice(&word.to_le_bytes());
    }
    // No flags; sizes and counts of headers.
    elf.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        elf.extend_from_slice(&half.to_le_bytes());
    }
    // One segment to load, readable and executable: this whole file.
    for word in [1_u32, 5] {
        elf.extend_from_slice(&word.to_le_bytes());
    }
    let size = HEADERS + 9;
    for word in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend_from_slice(&word.to_le_bytes());
    }
    elf.extend_from_slice(&CODE);
    elf
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    #[test]
    fn the_sleeper_runs_until_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        std::fs::write(&path, sleeper()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).stdin(Stdio::null()).spawn().unwrap();
        // State S with a system call number of 34: it is where it should stay.
        let call = format!("/proc/{}/syscall", child.id());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let state = std::fs::read_to_string(&call).unwrap_or_default();
            if state.starts_with("34 ") {
                break;
            }
            assert_eq!(child.try_wait().unwrap(), None, "ended; last state {state}");
            assert!(std::time::Instant::now() < deadline, "state {state}");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
