//! For tests of other crates: a node with the project's programs, or a counted skip.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::assets::{Assets, repository};
use crate::error::LabError;
use crate::machine::Builder;
use crate::shape::Shape;
use crate::{Lab, machine};

/// Podrail's configuration on a virtual node: the GPUs are plain display functions, and a block of
/// 32 addresses is a node's.
pub const CONFIG: &str = "\
gpus: { generic: true }
pool:
  name: rails
  subnets: [10.239.255.0/24]
  blockSize: 32
";
/// Podrail's environment on a virtual node: the root with the NVIDIA driver's files, and an address
/// of the front-end NIC that the default route does not use.
pub const ENVIRONMENT: [(&str, &str); 2] = [
    ("PODRAIL_ROOT", "/lab/root"),
    ("PODRAIL_NODE_ADDRESS", "10.140.67.66"),
];

/// Boots a node with the given binaries of the workspace (`(package, binary)`) in `/usr/bin`; none
/// when the lab's assets are not there, which is counted as a skip, or a failure in CI.
///
/// # Panics
/// In CI (`CI` or `PODRAIL_REQUIRE_LAB` set) without assets; anywhere if the node does not boot.
pub fn lab_or_skip(shape: &str, programs: &[(&str, &str)]) -> Option<Lab> {
    lab_with_or_skip(shape, programs, |builder| builder)
}

/// As [`lab_or_skip`], with a builder to change: kernel arguments, withheld modules.
///
/// # Panics
/// As there.
pub fn lab_with_or_skip(
    shape: &str,
    programs: &[(&str, &str)],
    change: impl FnOnce(Builder) -> Builder,
) -> Option<Lab> {
    assets_or_skip()?;
    Some(report(boot(shape, programs, change)))
}

/// Finds the assets, or says that the test is skipped.
///
/// # Panics
/// In CI, where a test that did not run must not look like one that passed.
pub fn assets_or_skip() -> Option<Assets> {
    let required = ["CI", "PODRAIL_REQUIRE_LAB"].map(std::env::var_os);
    let required = required
        .iter()
        .flatten()
        .any(|value| !value.is_empty() && value != "false");
    match Assets::find() {
        Ok(assets) => Some(assets),
        Err(error) if required => Some(report(Err(error))),
        Err(error) => {
            let hint = error.hint().unwrap_or_default();
            // Straight to the stream: the harness hides what passing tests print.
            drop(writeln!(std::io::stderr(), "skipped: {error}; {hint}"));
            None
        }
    }
}

fn boot(
    shape: &str,
    programs: &[(&str, &str)],
    change: impl FnOnce(Builder) -> Builder,
) -> Result<Lab, LabError> {
    let mut builder = change(Lab::builder(Shape::named(shape)?));
    for (package, binary) in programs {
        builder = builder.program(binary, cargo_binary(package, binary)?);
    }
    builder.boot()
}

#[expect(
    clippy::panic,
    reason = "called from tests only, where a panic is the failure"
)]
fn report<T>(outcome: Result<T, LabError>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("{}", error.report()),
    }
}

static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);

/// The path of a binary of the workspace, built if it is not fresh, once per process.
/// `PODRAIL_BIN_<NAME>` (upper case, `_` for `-`) names a ready one instead.
///
/// # Errors
/// Cargo's own words.
pub fn cargo_binary(package: &str, binary: &str) -> Result<PathBuf, LabError> {
    let variable = format!("PODRAIL_BIN_{}", binary.to_uppercase().replace('-', "_"));
    if let Some(ready) = std::env::var_os(variable) {
        return Ok(ready.into());
    }
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_with(HashMap::new);
    if let Some(path) = built.get(binary) {
        return Ok(path.clone());
    }
    let path = build(package, binary)?;
    built.insert(binary.into(), path.clone());
    Ok(path)
}

fn build(package: &str, binary: &str) -> Result<PathBuf, LabError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = repository().join("Cargo.toml");
    let words = [
        "build",
        "--quiet",
        "--message-format=json-render-diagnostics",
    ];
    let output = Command::new(&cargo)
        .args(words)
        .args(["--package", package, "--bin", binary, "--manifest-path"])
        .arg(manifest)
        .output()
        .map_err(LabError::io("run", PathBuf::from(&cargo)))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let path = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message
                .pointer("/target/name")
                .is_some_and(|name| name == binary)
        })
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    path.filter(|_| output.status.success())
        .ok_or_else(|| LabError::Tool {
            program: "cargo".into(),
            arguments: format!("build --package {package} --bin {binary}"),
            status: output.status.to_string(),
            stderr: machine::last_lines(&String::from_utf8_lossy(&output.stderr), 20),
        })
}
