//! Data-driven tests: fixtures in, expected text out. `UPDATE_EXPECT=1` rewrites what is expected.

mod device_plugins;
mod discover;
mod dumps;
mod fuzz_seeds;
mod garbage;
mod known;
mod mig;
mod tree_text;

use std::path::{Path, PathBuf};

/// The workspace's fixtures.
fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(kind)
}

/// Files of a kind with this ending, sorted.
fn files(kind: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures(kind)).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no {ending} files in fixtures/{kind}");
    files
}

/// Compares with `<file>.expect`; prints both texts in full when they differ.
fn expect(fixture: &Path, got: &str) {
    let path = fixture.with_extension("expect");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        wanted == got,
        "{} differs (UPDATE_EXPECT=1 rewrites it)\n--- expected\n{wanted}\n--- got\n{got}",
        path.display()
    );
}
