//! Configuration files: bounded reading, YAML to a neutral document.

use podrail_core::words::brief_lines;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest configuration, in bytes.
pub const LARGEST: u64 = 1024 * 1024;

/// A text that is no YAML: where and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadYaml(String);

/// The document of a YAML text.
///
/// # Errors
/// The text is no YAML.
pub fn document(text: &str) -> Result<Value, BadYaml> {
    serde_saphyr::from_str(text).map_err(|error| {
        // Its own first word would stand in the middle of our line.
        let words = error.to_string();
        BadYaml(brief_lines(words.trim_start_matches("error: ")))
    })
}

/// The text of a file, unless it is larger than any configuration: a device has no end.
///
/// # Errors
/// The file cannot be read, is no UTF-8, or is larger than [`LARGEST`].
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        let words = format!("larger than {LARGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    Ok(text)
}
