//! A node with everything on it.

use podrail_lab::kube::PROGRAMS;
use podrail_lab::testing::lab_with_or_skip;
use podrail_lab::{Builder, Lab, Output};

/// Boots a node and starts everything; none where the lab is not set up (a counted skip).
pub(crate) fn node(shape: &str) -> Option<Lab> {
    let lab = bare_node(shape, |builder| builder)?;
    lab.kube().start().unwrap();
    Some(lab)
}

/// Boots a node and starts nothing.
pub(crate) fn bare_node(shape: &str, change: impl FnOnce(Builder) -> Builder) -> Option<Lab> {
    lab_with_or_skip(shape, &PROGRAMS, |builder| change(builder.containerd()))
}

/// Standard output of a command that must have succeeded.
pub(crate) fn ok(output: Output) -> String {
    assert_eq!(
        output.status.shell_code(),
        0,
        "{} {}",
        output.text(),
        output.stderr_text()
    );
    output.text()
}
