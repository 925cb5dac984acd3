//! The plugin's program in the runtime's directory.

use super::conflist::PLUGIN;
use super::dir::{Dir, failed};
use super::{InstallError, Placed};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What the program must be to be run: by its owner, root, and read by all.
const MODE: u32 = 0o755;

/// Copies the program, if what stands there is another.
pub(super) fn place(source: &Path, dir: &Path) -> Result<Placed, InstallError> {
    let dir = Dir::open(dir)?;
    dir.sweep_all(&[PLUGIN])?;
    let fail = |error| failed("read", source, error);
    let mut program = File::open(source).map_err(fail)?;
    let length = program.metadata().map_err(fail)?;
    if !length.is_file() || length.len() == 0 {
        let path = source.to_owned();
        return Err(InstallError::NoProgram { path });
    }
    if is_same(&mut program, &dir.path(PLUGIN)) {
        return Ok(Placed::Unchanged);
    }
    let mut program = File::open(source).map_err(fail)?;
    // A program that runs can be replaced by rename, but not written to (ETXTBSY).
    dir.replace(PLUGIN, MODE, |file| {
        io::copy(&mut program, file).map(|_| ())
    })?;
    Ok(Placed::Written)
}

/// Removes the program.
pub(super) fn remove(dir: &Path) -> Result<(), InstallError> {
    let dir = Dir::open(dir)?;
    dir.sweep_all(&[PLUGIN])?;
    dir.remove(PLUGIN)
}

/// Whether a plain file stands at `placed`, with the right mode and the same bytes. What cannot be
/// compared is not the same.
fn is_same(program: &mut File, placed: &Path) -> bool {
    let plain = fs::symlink_metadata(placed)
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o7777 == MODE);
    let Ok(mut standing) = File::open(placed) else {
        return false;
    };
    plain && same_bytes(program, &mut standing).unwrap_or(false)
}

fn same_bytes(a: &mut File, b: &mut File) -> io::Result<bool> {
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let mut b = BufReader::new(b).bytes();
    for byte in BufReader::new(a).bytes() {
        if b.next().transpose()? != Some(byte?) {
            return Ok(false);
        }
    }
    Ok(b.next().is_none())
}
