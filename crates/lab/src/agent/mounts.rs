//! The guest's file systems.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

use super::Trouble;

/// Mounts what every process expects, on a root that `pivot_root` works on.
pub(super) fn mount_all() -> Result<(), Trouble> {
    leave_initial_root()?;
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        file_system(kind, target)?;
    }
    // As udev has it; programs and shells open these.
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        link(target, &format!("/dev/{name}"))?;
    }
    fs::create_dir_all("/run/netns").map_err(Trouble::at("create /run/netns"))
}

/// The initial root cannot be pivoted away from, so the same tree is mounted over it: container
/// runtimes and mount namespaces then behave as on a disk.
fn leave_initial_root() -> Result<(), Trouble> {
    let step = || Trouble::at("move the root");
    mount(
        Some("/"),
        "/mnt",
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .map_err(step())?;
    chdir("/mnt").map_err(step())?;
    mount(
        Some("/mnt"),
        "/",
        None::<&str>,
        MsFlags::MS_MOVE,
        None::<&str>,
    )
    .map_err(step())?;
    chroot(".").map_err(step())?;
    chdir("/").map_err(step())
}

pub(super) fn file_system(kind: &str, target: &str) -> Result<(), Trouble> {
    fs::create_dir_all(target).map_err(Trouble::at(format!("create {target}")))?;
    mount(
        Some(kind),
        target,
        Some(kind),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(Trouble::at(format!("mount {kind} on {target}")))
}

pub(super) fn bind(source: &str, target: &str) -> Result<(), Trouble> {
    fs::create_dir_all(target).map_err(Trouble::at(format!("create {target}")))?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, flags, None::<&str>)
        .map_err(Trouble::at(format!("bind {source} to {target}")))
}

/// A root for programs that take one: the real `/sys` and `/dev`, and a `/proc` with the NVIDIA
/// driver's tree, which the real one cannot be given.
pub(super) fn root_view(gpus: &[crate::plan::GpuFile]) -> Result<(), Trouble> {
    const ROOT: &str = "/lab/root";
    bind("/sys", &format!("{ROOT}/sys"))?;
    bind("/dev", &format!("{ROOT}/dev"))?;
    for dir in ["run", "etc", "var", "tmp"] {
        link(&format!("/{dir}"), &format!("{ROOT}/{dir}"))?;
    }
    let proc = format!("{ROOT}/proc");
    file_system("tmpfs", &proc)?;
    for entry in fs::read_dir("/proc").map_err(Trouble::at("read /proc"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Processes come and go; PID 1 stays.
        let process = name.starts_with(|c: char| c.is_ascii_digit()) && name != "1";
        if !process && name != "driver" {
            link(&format!("/proc/{name}"), &format!("{proc}/{name}"))?;
        }
    }
    for gpu in gpus {
        let dir = format!("{proc}/driver/nvidia/gpus/{}", gpu.pci);
        fs::create_dir_all(&dir).map_err(Trouble::at(format!("create {dir}")))?;
        let file = Path::new(&dir).join("information");
        fs::write(&file, &gpu.information).map_err(Trouble::at("write GPU information"))?;
    }
    Ok(())
}

fn link(target: &str, at: &str) -> Result<(), Trouble> {
    std::os::unix::fs::symlink(target, at).map_err(Trouble::at(format!("link {at}")))
}
