//! Rules on the text of files: a purpose on top, nothing of the author's machine, no dead paths.

use std::path::Path;

/// Faults of one file.
pub(crate) fn faults(file: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    if is_rust && !text.starts_with("//! ") {
        faults.push(format!(
            "{}: does not open with `//! <purpose>`",
            file.display()
        ));
    }
    for (number, line) in text.lines().enumerate() {
        for banned in banned() {
            if line.contains(&banned) {
                faults.push(format!(
                    "{}:{}: contains {banned:?}",
                    file.display(),
                    number + 1
                ));
            }
        }
    }
    faults
}

/// Put together from halves, so that this file may stand in the tree.
fn banned() -> Vec<String> {
    [
        ("/wor", "k/"),
        ("/roo", "t/.cargo"),
        ("/far", "m/"),
        ("bash_", "jobs"),
        ("../sha", "red"),
        ("deb.deb", "ian.org"),
        ("index.cra", "tes.io"),
        ("static.cra", "tes.io"),
        ("pypi", ".org"),
        ("registry.npm", "js.org"),
        ("cfg!(t", "est)"),
    ]
    .map(|(a, b)| format!("{a}{b}"))
    .to_vec()
}

/// Paths in backticks on the architecture page that do not exist.
pub(crate) fn missing_paths(page: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    page.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| is_path(word) && !exists(word))
        .map(|word| format!("ARCHITECTURE.md: names `{word}`, which does not exist"))
        .collect()
}

fn is_path(word: &str) -> bool {
    let starts = [
        "crates/",
        "xtask/",
        "docs/",
        "scripts/",
        "fixtures/",
        ".ci/",
        "charts/",
    ];
    starts.iter().any(|start| word.starts_with(start)) && !word.contains([' ', '*', '<'])
}
