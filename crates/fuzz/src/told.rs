//! What a refusal must tell: where, why, and what to do, in words that a terminal and an event take.

use podrail_node::in_words;
use std::error::Error;

/// Longest text of one refusal, in bytes, whatever the input's length.
const LONGEST: usize = 32 * 1024;

/// A failure with its causes and its next step names one of these.
pub(crate) fn told(error: &dyn Error, hint: Option<String>, names: &[&str]) {
    let hint = hint.expect("every refusal has a next step");
    assert!(!hint.trim().is_empty(), "an empty next step: {error}");
    words(&in_words(error, Some(hint)), names);
}

/// A text names one of these, is bounded, and moves no cursor.
pub(crate) fn words(text: &str, names: &[&str]) {
    let start: String = text.chars().take(200).collect();
    assert!(!text.trim().is_empty(), "an empty refusal");
    assert!(text.len() <= LONGEST, "{} bytes: {start}", text.len());
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(control), "control characters: {start:?}");
    let named = names.iter().any(|name| text.contains(name));
    assert!(named, "none of {names:?} is named: {text}");
}
