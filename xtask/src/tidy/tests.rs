//! The repository is tidy, and each rule catches what it is for.

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_repository_is_tidy() {
    let faults = faults(&root()).unwrap();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_file_without_purpose_or_with_a_machine_path_is_a_fault() {
    let file = Path::new("crates/x/src/a.rs");
    assert_eq!(
        text::faults(file, "//! Purpose.\nfn a() {}\n"),
        Vec::<String>::new()
    );
    assert_eq!(text::faults(file, "fn a() {}\n").len(), 1);
    let path = format!("//! Purpose.\n// {}{}main\n", "/wor", "k/");
    assert_eq!(text::faults(file, &path).len(), 1);
}

#[test]
fn long_files_and_functions_are_faults_but_not_in_tests() {
    let long = format!("//! Purpose.\nfn a() {{\n{}}}\n", "    b();\n".repeat(401));
    let file = Path::new("crates/x/src/a.rs");
    assert!(budget::file_faults(file, &long).is_some());
    let mut found = budget::functions(file, &long).unwrap();
    assert_eq!(found.iter().map(|f| f.lines).collect::<Vec<_>>(), [403]);
    // Too long, and the median with it.
    assert_eq!(budget::function_faults(&mut found).len(), 2);
    let tests = Path::new("crates/x/src/a/tests.rs");
    assert!(budget::file_faults(tests, &long).is_none());
    assert!(budget::functions(tests, &long).unwrap().is_empty());
    let inner = format!("//! Purpose.\n#[cfg(test)]\nmod tests {{\n{long}}}\n")
        .replace("//! Purpose.\nfn", "fn");
    assert!(budget::file_faults(file, &inner).is_none());
    assert!(budget::functions(file, &inner).unwrap().is_empty());
}

#[test]
fn dead_paths_lints_and_io_in_core_are_faults() {
    let page = "See `crates/core` and `crates/gone/src`, `Vec<T>`.";
    assert_eq!(
        text::missing_paths(page, |path| path == "crates/core").len(),
        1
    );
    assert!(layers::lint_fault("x", "[package]\n").is_some());
    assert!(layers::lint_fault("x", "[lints]\nworkspace = true\n").is_none());
    let file = Path::new("crates/core/src/a.rs");
    assert_eq!(layers::io_faults(file, "use std::fs;").len(), 1);
    assert!(layers::io_faults(file, "use std::net::IpAddr;").is_empty());
}
