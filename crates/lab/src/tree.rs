//! Files of a guest or of a pod, in memory: what a cpio archive or an image's layer is written from.

use std::collections::BTreeSet;

/// Files in the order they were added. Parent directories are added by themselves; the first entry
/// of a path wins.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: Vec<Entry>,
    present: BTreeSet<String>,
}

/// One file of a [`Tree`].
#[derive(Debug)]
pub(crate) struct Entry {
    /// Without a leading `/`.
    pub(crate) path: String,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) kind: Kind,
}

/// What a file is.
#[derive(Debug)]
pub(crate) enum Kind {
    Directory,
    File(Vec<u8>),
    Symlink(String),
    /// Major and minor number.
    Character(u32, u32),
}

impl Tree {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str) {
        self.directory_with_mode(path, 0o755);
    }

    /// Adds a directory with the given permission bits.
    pub(crate) fn directory_with_mode(&mut self, path: &str, mode: u32) {
        self.add(path, mode, Kind::Directory);
    }

    /// Adds a file with the given permission bits.
    pub(crate) fn file(&mut self, path: &str, mode: u32, data: impl Into<Vec<u8>>) {
        self.add(path, mode & 0o7777, Kind::File(data.into()));
    }

    /// Adds a symbolic link.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        self.add(path, 0o777, Kind::Symlink(target.into()));
    }

    /// Adds a character device.
    pub(crate) fn character_device(&mut self, path: &str, (major, minor): (u32, u32)) {
        self.add(path, 0o600, Kind::Character(major, minor));
    }

    /// Whether an entry of that path was added.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.present.contains(path)
    }

    /// All entries, parents before what is in them.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn add(&mut self, path: &str, mode: u32, kind: Kind) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        if self.present.insert(path.into()) {
            let path = path.into();
            self.entries.push(Entry { path, mode, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_once() {
        let mut tree = Tree::default();
        tree.file("usr/bin/tool", 0o755, "#!");
        tree.symlink("usr/bin/alias", "tool");
        tree.directory("usr/bin");
        let paths: Vec<_> = tree.entries().iter().map(|entry| &entry.path).collect();
        assert_eq!(paths, ["usr", "usr/bin", "usr/bin/tool", "usr/bin/alias"]);
    }

    #[test]
    fn the_first_entry_of_a_path_wins() {
        let mut tree = Tree::default();
        tree.file("a", 0o644, "first");
        tree.symlink("a", "second");
        assert!(tree.contains("a"));
        assert!(matches!(&tree.entries()[0].kind, Kind::File(data) if data == b"first"));
        assert_eq!(tree.entries().len(), 1);
    }
}
