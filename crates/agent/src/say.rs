//! One line per fact: a log line when a condition changes, a failure with its causes in a row.

use crate::board::Board;
use std::error::Error;

/// Says how a condition stands, and logs it if that is news.
pub(crate) fn tell(board: &Board, name: &'static str, holds: bool, reason: &str) {
    if !board.set(name, holds, reason) {
        return;
    }
    match holds {
        true => tracing::info!("{name}: {reason}"),
        false => tracing::warn!("not {name}: {reason}"),
    }
}

/// A failure, its causes, and what to do, in one line.
pub(crate) fn words(failure: &dyn Error, hint: Option<&str>) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Some layers say again what is below them.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    if let Some(hint) = hint {
        text.push_str(&format!(" (hint: {hint})"));
    }
    text.replace('\n', "; ")
}
