//! Writes `newc` cpio archives, the format of an initramfs.
//!
//! The kernel unpacks several archives laid end to end, so a lab's own files are appended to the
//! cached base without rewriting it. Uncompressed: under emulation the guest only copies memory.

use crate::tree::{Kind, Tree};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;
/// The archive's end; the kernel looks for the next one after it.
const TRAILER: &str = "TRAILER!!!";

/// The archive of a tree.
pub(crate) fn archive(tree: &Tree) -> Vec<u8> {
    let mut writer = Writer::default();
    for entry in tree.entries() {
        let mut header = Header {
            path: &entry.path,
            mode: entry.mode,
            ..Header::default()
        };
        match &entry.kind {
            Kind::Directory => header.mode |= DIRECTORY,
            Kind::File(data) => {
                header.mode |= FILE;
                header.data = data;
            }
            Kind::Symlink(target) => {
                header.mode |= SYMLINK;
                header.data = target.as_bytes();
            }
            Kind::Character(major, minor) => {
                header.mode |= CHARACTER;
                header.device = (*major, *minor);
            }
        }
        writer.entry(&header);
    }
    writer.entry(&Header {
        path: TRAILER,
        ..Header::default()
    });
    writer.bytes
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    inode: u32,
}

/// One entry's header fields that vary.
#[derive(Default)]
struct Header<'a> {
    path: &'a str,
    mode: u32,
    data: &'a [u8],
    device: (u32, u32),
}

impl Writer {
    fn entry(&mut self, header: &Header<'_>) {
        self.inode += 1;
        let size = u32::try_from(header.data.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(header.path.len() + 1).unwrap_or(u32::MAX);
        let links = if header.mode & DIRECTORY == DIRECTORY {
            2
        } else {
            1
        };
        self.bytes.extend_from_slice(b"070701");
        let (major, minor) = header.device;
        let mode = header.mode;
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(header.path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(header.data);
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
    fn a_file_follows_its_parents() {
        let mut tree = Tree::default();
        tree.file("usr/bin/tool", 0o755, "#!");
        tree.symlink("usr/bin/alias", "tool");
        let bytes = archive(&tree);
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
        let mut tree = Tree::default();
        tree.character_device("console", (5, 1));
        let bytes = archive(&tree);
        let header = std::str::from_utf8(bytes.get(..110).unwrap()).unwrap();
        assert_eq!(header.get(6..22), Some("0000000100002180"));
        assert_eq!(header.get(78..94), Some("0000000500000001"));
    }
}
