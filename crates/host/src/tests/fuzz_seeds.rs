//! Trees of fixtures/sysfs as the fuzz target `tree` reads them: a line for each file and link.

use super::tree_text::expand;
use super::{files, fixtures};
use std::fmt::Write;
use std::path::Path;

/// Small ones that differ; the target makes a tree anew for each input.
const SEEDS: [&str; 6] = ["odd", "broken", "faults", "bond-vlan", "sriov", "lab-rxe"];

fn lines(root: &Path, dir: &Path, text: &mut String) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let below = path.strip_prefix(root).unwrap().display();
        if path.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            writeln!(text, "link {below} {}", target.display()).unwrap();
        } else if path.is_dir() {
            if std::fs::read_dir(&path).unwrap().next().is_none() {
                writeln!(text, "dir {below}").unwrap();
            }
            lines(root, &path, text);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            match str::from_utf8(&bytes) {
                Ok(words) => writeln!(text, "file {below} {}", words.replace('\n', "\\n")).unwrap(),
                Err(_) => {
                    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    writeln!(text, "bytes {below} {hex}").unwrap();
                }
            }
        }
    }
}

#[test]
fn the_seeds_are_the_fixtures() {
    for path in files("sysfs", "txt") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if !SEEDS.contains(&name) {
            continue;
        }
        let tree = expand(&std::fs::read_to_string(&path).unwrap());
        let mut text = String::new();
        lines(tree.dir.path(), tree.dir.path(), &mut text);
        let seed = fixtures("../fuzz/corpus/tree").join(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&seed, &text).unwrap();
        }
        let found = std::fs::read_to_string(&seed).unwrap_or_default();
        assert!(found == text, "{} differs: UPDATE_EXPECT=1", seed.display());
    }
}
