//! Printing: text for eyes, JSON for scripts, a broken pipe is no fault.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{self, Write};

/// Writes to standard output.
///
/// # Errors
/// Anything but a reader that has gone away (`podrail topo | head`).
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Failure::Output),
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// See [`print`].
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::Output(io::Error::other(error)))?;
    print(&(text + "\n"))
}

/// Says something that is worth knowing and is not the result.
pub fn note(text: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(io::stderr(), "note: {text}");
}
