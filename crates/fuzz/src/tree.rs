//! Trees of sysfs and /proc.
//!
//! An input has a line for each thing in the tree: `file PATH TEXT` (`\n` stands for a line's end),
//! `bytes PATH HEX`, `link PATH TARGET`, `dir PATH`. Paths stay below the tree; a link may lead one
//! step out of it. The committed ones are trees of `fixtures/sysfs`, written by a test of `podrail-host`.

use crate::dump::{readable, stable};
use crate::told::told;
use podrail_host::{InterfaceAddress, KernelAnswers, Selectors, discover, gids, memlock, render};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

/// Most lines that are carried out.
const MOST_LINES: usize = 2000;

/// A look at the tree.
pub(crate) fn discovery(input: &[u8]) {
    let dir = crate::directory();
    let root = dir.path().join("node");
    grow(&root, &String::from_utf8_lossy(input));
    let select = Selectors {
        generic_gpus: true,
        virtual_functions: true,
        ..Selectors::default()
    };
    let kernel = answers();
    let found = match discover(&root, &kernel, &select, None) {
        Ok(found) => found,
        Err(error) => return told(&error, Some(error.hint().to_owned()), &["sys"]),
    };
    stable(&found.topology);
    readable(&found.notes);
    let again = discover(&root, &kernel, &select, Some(&found.topology));
    let again = again.expect("what was found is found again");
    assert_eq!(render::discovery(&again), render::discovery(&found));
    _ = gids::gid_tables(&root, &BTreeSet::new());
    if let Err(error) = memlock(&root, 1) {
        told(&error, Some(error.hint().to_owned()), &["limits"]);
    }
}

fn answers() -> KernelAnswers {
    let address = InterfaceAddress {
        interface: "eth0".parse().expect("an interface"),
        address: "10.0.0.7".parse().expect("an address"),
    };
    KernelAnswers {
        addresses: Some(vec![address]),
        ..KernelAnswers::default()
    }
}

/// Makes the tree; lines that make no sense are left out, as are things that cannot be made.
fn grow(root: &Path, text: &str) {
    fs::create_dir_all(root).expect("a directory");
    for line in text.lines().take(MOST_LINES) {
        let mut words = line.splitn(3, ' ');
        let (kind, path) = (words.next(), words.next().and_then(below));
        let rest = words.next().unwrap_or_default();
        let Some(path) = path.map(|path| root.join(path)) else {
            continue;
        };
        let real = path.parent().is_some_and(|parent| make_dirs(root, parent));
        _ = match kind {
            Some("file") if real && !path.is_symlink() => {
                fs::write(&path, rest.replace("\\n", "\n"))
            }
            Some("bytes") if real && !path.is_symlink() => fs::write(&path, bytes(rest)),
            Some("dir") if real => fs::create_dir(&path),
            Some("link") if real && stays(root, &path, rest) => symlink(rest, &path),
            _ => Ok(()),
        };
    }
}

/// The folders of a path, made where they are missing; false if something else is in the way. No
/// link is followed, since it could lead out of the tree.
fn make_dirs(root: &Path, dir: &Path) -> bool {
    let Ok(below) = dir.strip_prefix(root) else {
        return false;
    };
    let mut at = root.to_owned();
    for part in below {
        at.push(part);
        match at.symlink_metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return false,
            Err(_) if fs::create_dir(&at).is_ok() => {}
            Err(_) => return false,
        }
    }
    true
}

/// A path of plain names.
fn below(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let fits = path.components().all(plain) && path.components().count() <= 40;
    (fits && path.components().next().is_some()).then(|| path.to_owned())
}

/// Whether a link ends at most one step above the root. Names alone are counted: what they lead
/// over are folders of this tree, or links that were counted too.
fn stays(root: &Path, path: &Path, target: &str) -> bool {
    let Some(parent) = path
        .parent()
        .and_then(|parent| parent.strip_prefix(root).ok())
    else {
        return false;
    };
    let mut depth = 1 + parent.components().count();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    !target.is_empty() && !path.exists()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    let texts = pairs.filter_map(|pair| str::from_utf8(pair).ok());
    texts
        .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}
