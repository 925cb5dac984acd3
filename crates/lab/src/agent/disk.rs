//! The disk that outlives a power cut: the folders of a node's state lie on it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};

use super::modules::Loader;
use super::{Trouble, mounts};

const DEVICE: &str = "/dev/vda";
const AT: &str = "/persist";
/// Everything of a node that is not on a tmpfs, and not a program.
const FOLDERS: [&str; 3] = ["etc", "opt", "var"];
const MODULES: [&str; 2] = ["virtio_blk", "ext4"];

/// Puts the folders onto the disk, with what is in them the first time, and as they were left
/// every other time.
pub(super) fn attach(loader: &Loader) -> Result<(), Trouble> {
    MODULES.iter().try_for_each(|name| loader.load(name))?;
    if !formatted().map_err(Trouble::at(format!("read {DEVICE}")))? {
        run("mke2fs", &["-q", "-t", "ext4", DEVICE])?;
    }
    mount(
        Some(DEVICE),
        AT,
        Some("ext4"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(Trouble::at(format!("mount {DEVICE}")))?;
    for folder in FOLDERS {
        let (kept, own) = (format!("{AT}/{folder}"), format!("/{folder}"));
        if !Path::new(&kept).exists() {
            // Named when it is whole: the power may go meanwhile.
            let part = format!("{kept}.part");
            run("rm", &["-rf", &part])?;
            run("cp", &["-a", &own, &part])?;
            fs::rename(&part, &kept).map_err(Trouble::at(format!("rename to {kept}")))?;
        }
        mounts::bind(&kept, &own)?;
    }
    Ok(())
}

/// Whether there is an ext4 file system: its magic number is 0xef53, at byte 56 of the superblock
/// at 1024.
fn formatted() -> std::io::Result<bool> {
    let mut disk = File::open(DEVICE)?;
    disk.seek(SeekFrom::Start(1024 + 56))?;
    let mut magic = [0; 2];
    disk.read_exact(&mut magic)?;
    Ok(u16::from_le_bytes(magic) == 0xef53)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Trouble> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(Trouble::at(format!("start {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Trouble(format!("{program}: {}", stderr.trim())))
}
