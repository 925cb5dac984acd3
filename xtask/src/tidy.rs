//! House rules that no compiler checks. A test runs them on every `make test`.

mod budget;
mod layers;
mod text;

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Prints the faults of this repository.
pub(crate) fn run() -> Result<ExitCode> {
    let faults = faults(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    faults.iter().for_each(|fault| println!("{fault}"));
    println!("tidy: {} faults", faults.len());
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Checks the repository at `root`; each fault is one line that names its file.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let files = tracked_files(root)?;
    let mut faults = layers::faults(root)?;
    let mut lengths = Vec::new();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue;
        };
        faults.extend(text::faults(file, &text));
        if file.extension().is_some_and(|extension| extension == "rs") {
            faults.extend(budget::file_faults(file, &text));
            lengths.extend(budget::functions(file, &text)?);
        }
    }
    faults.extend(budget::function_faults(&mut lengths));
    let architecture = root.join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(&architecture).context("read ARCHITECTURE.md")?;
    faults.extend(text::missing_paths(&page, |path| root.join(path).exists()));
    faults.sort();
    Ok(faults)
}

/// Files that git tracks or would track.
fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("run git ls-files")?;
    anyhow::ensure!(
        output.status.success(),
        "git ls-files failed in {}",
        root.display()
    );
    let names = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect())
}

#[cfg(test)]
mod tests;
