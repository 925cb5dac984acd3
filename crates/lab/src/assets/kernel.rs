//! The kernel: which package, and its image as an ELF file.
//!
//! Under emulation a kernel spends its first seconds unpacking itself. QEMU boots an ELF `vmlinux`
//! directly (by its PVH note), so it is unpacked once, here.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::error::LabError;

/// A kernel of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernel {
    /// As `uname -r` says it.
    pub(super) release: String,
}

impl Kernel {
    /// The image and the modules, without the package that would configure a boot loader.
    pub(super) fn packages(&self) -> Vec<String> {
        ["linux-binary-", "linux-modules-"]
            .map(|prefix| format!("{prefix}{}", self.release))
            .into()
    }
}

/// The newest kernel of a series among package names, else the newest at all. The cloud flavour has
/// no rxe, and the other flavours are not what nodes run.
pub(super) fn package(names: &[String], series: &str) -> Result<Kernel, LabError> {
    let plain = |name: &&String| {
        name.ends_with("-amd64")
            && !["-cloud-", "-rt-"]
                .iter()
                .any(|flavour| name.contains(flavour))
    };
    let releases = names
        .iter()
        .filter(plain)
        .filter_map(|name| name.strip_prefix("linux-image-"));
    let newest = releases.max_by_key(|release| {
        let version = version(release);
        (release.starts_with(&format!("{series}.")), version)
    });
    newest
        .map(|release| Kernel {
            release: release.into(),
        })
        .ok_or_else(|| LabError::NoKernel {
            pattern: "linux-image-7.*-amd64".into(),
        })
}

/// The leading numbers: `7.3.4+deb13-amd64` is 7, 3, 4.
fn version(release: &str) -> Vec<u32> {
    let end = release
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(release.len());
    let numbers = release.get(..end).unwrap_or_default();
    numbers
        .split('.')
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The one release below the unpacked tree.
pub(super) fn release(tree: &Path) -> Result<String, LabError> {
    let dir = tree.join("usr/lib/modules");
    let mut entries = fs::read_dir(&dir).map_err(LabError::io("read", &dir))?;
    let first = entries.next().and_then(Result::ok);
    first
        .and_then(|entry| entry.file_name().into_string().ok())
        .ok_or_else(|| LabError::asset(&dir, "holds no kernel"))
}

/// The ELF file in a bzImage.
pub(super) fn unpack(image: &Path) -> Result<Vec<u8>, LabError> {
    let bytes = fs::read(image).map_err(LabError::io("read", image))?;
    let payload = payload(&bytes).ok_or_else(|| LabError::asset(image, "is no bzImage"))?;
    let elf = decompress(payload).map_err(LabError::io("decompress", image))?;
    if !elf.starts_with(b"\x7fELF") {
        return Err(LabError::asset(image, "holds no ELF file"));
    }
    Ok(elf)
}

/// The compressed part, by the boot protocol's header: `setup_sects` at 0x1f1, `payload_offset` and
/// `payload_length` at 0x248, counted from the protected-mode code.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(0x202..0x206)? != b"HdrS" && image.get(0x1fe..0x200)? != [0x55, 0xaa] {
        return None;
    }
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + word(0x248)?;
    // The kernel's build appends the unpacked size, which is not part of the stream.
    image.get(start..(start + word(0x24c)?).checked_sub(4)?)
}

/// Unpacks xz or zstd, told apart by their magic numbers; anything else is taken as it is.
pub(super) fn decompress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    if bytes.starts_with(b"\xfd7zXZ\0") {
        liblzma::read::XzDecoder::new(bytes).read_to_end(&mut out)?;
    } else if bytes.starts_with(b"\x28\xb5\x2f\xfd") {
        zstd::stream::copy_decode(bytes, &mut out)?;
    } else {
        out.extend_from_slice(bytes);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest(names: &[&str]) -> Option<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        package(&names, "7.3").ok().map(|kernel| kernel.release)
    }

    #[test]
    fn the_series_wins_then_the_newest_of_the_plain_flavour() {
        let names = [
            "linux-image-7.3.4+deb13-amd64",
            "linux-image-7.3.10+deb13-amd64",
            "linux-image-7.3.11+deb13-cloud-amd64",
            "linux-image-7.3.12+deb13-rt-amd64",
            "linux-image-7.3.12+deb13-amd64-dbg",
            "linux-image-7.10.1+deb13-amd64",
        ];
        assert_eq!(newest(&names).as_deref(), Some("7.3.10+deb13-amd64"));
        assert_eq!(newest(&names[5..]).as_deref(), Some("7.10.1+deb13-amd64"));
        assert_eq!(newest(&["linux-image-7.3.4+deb13-cloud-amd64"]), None);
    }

    #[test]
    fn only_a_boot_image_has_a_payload() {
        let mut image = vec![0; 0x1000];
        assert_eq!(payload(&image), None);
        image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        image[0x1f1] = 1;
        image[0x248] = 8;
        image[0x24c] = 12;
        image[1032..1040].copy_from_slice(b"payload!");
        assert_eq!(payload(&image), Some(b"payload!".as_slice()));
        assert_eq!(payload(&image[..0x100]), None);
    }
}
