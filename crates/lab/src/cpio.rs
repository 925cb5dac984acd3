//! Writes `newc` cpio archives, the format of an initramfs.
//!
//! The kernel unpacks several archives laid end to end, so a lab's own files are appended to the
//! cached base without rewriting it. Uncompressed: under emulation the guest only copies memory.

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;
/// The archive's end; the kernel looks for the next one after it.
const TRAILER: &str = "TRAILER!!!";

/// An archive in memory. Parent directories are added by themselves.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    present: BTreeSet<String>,
}

/// One entry's header fields that vary.
#[derive(Default)]
struct Entry<'a> {
    path: &'a str,
    mode: u32,
    data: &'a [u8],
    device: (u32, u32),
}

impl Archive {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str) {
        self.parents(path);
        if self.present.insert(path.into()) {
            self.entry(&Entry {
                path,
                mode: DIRECTORY | 0o755,
                ..Entry::default()
            });
        }
    }

    /// Adds a file with the given permission bits.
    pub(crate) fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.leaf(&Entry {
            path,
            mode: FILE | (mode & 0o7777),
            data,
            ..Entry::default()
        });
    }

    /// Adds a symbolic link.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        let data = target.as_bytes();
        self.leaf(&Entry {
            path,
            mode: SYMLINK | 0o777,
            data,
            ..Entry::default()
        });
    }

    /// Adds a character device.
    pub(crate) fn character_device(&mut self, path: &str, device: (u32, u32)) {
        self.leaf(&Entry {
            path,
            mode: CHARACTER | 0o600,
            device,
            ..Entry::default()
        });
    }

    /// Whether an entry of that path was added.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.present.contains(path)
    }

    /// Ends the archive and returns its bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(&Entry {
            path: TRAILER,
            ..Entry::default()
        });
        self.bytes
    }

    fn leaf(&mut self, entry: &Entry<'_>) {
        self.parents(entry.path);
        if self.present.insert(entry.path.into()) {
            self.entry(entry);
        }
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.inode += 1;
        let size = u32::try_from(entry.data.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(entry.path.len() + 1).unwrap_or(u32::MAX);
        let links = if entry.mode & DIRECTORY == DIRECTORY {
            2
        } else {
            1
        };
        self.bytes.extend_from_slice(b"070701");
        let (major, minor) = entry.device;
        let fields = [
            self.inode, entry.mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(entry.path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(entry.data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_brings_its_parents_once() {
        let mut archive = Archive::default();
        archive.file("usr/bin/tool", 0o755, b"#!");
        archive.symlink("usr/bin/alias", "tool");
        archive.directory("usr/bin");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 5);
        assert_eq!(bytes.len() % 4, 0);
        let file = text.find("usr/bin/tool").unwrap();
        assert_eq!(
            text.get(file - 110..file - 88),
            Some("07070100000003000081ed")
        );
        assert!(text.contains("tool\0"));
    }

    #[test]
    fn headers_are_the_length_the_kernel_wants() {
        let mut archive = Archive::default();
        archive.character_device("console", (5, 1));
        let bytes = archive.finish();
        let header = std::str::from_utf8(bytes.get(..110).unwrap()).unwrap();
        assert_eq!(header.get(6..22), Some("0000000100002180"));
        assert_eq!(header.get(78..94), Some("0000000500000001"));
    }

    #[test]
    fn the_first_entry_of_a_path_wins() {
        let mut archive = Archive::default();
        archive.file("a", 0o644, b"first");
        archive.symlink("a", "second");
        assert!(archive.contains("a"));
        assert!(!String::from_utf8_lossy(&archive.finish()).contains("second"));
    }
}
