//! Text as it may be shown: cleaned, measured in columns, cut, padded; and numbers as ranges.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text without characters that could move the cursor, turn the direction of writing, hide, or
/// stand in no XML file; each becomes U+FFFD so that the change can be seen.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unsafe) {
        Cow::Owned(
            text.chars()
                .map(|c| if is_unsafe(c) { '\u{fffd}' } else { c })
                .collect(),
        )
    } else {
        Cow::Borrowed(text)
    }
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// Columns that the text takes on a terminal or in a monospaced font.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The text and spaces up to `columns`.
pub(super) fn pad(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// At most `columns` of the text, its end replaced by `…`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    format!("{}…", head(text, columns.saturating_sub(1)))
}

/// At most `columns` of the text, its middle replaced by `…`: names of pods differ at both ends.
pub(super) fn cut_middle(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    format!("{}…{}", head(text, room - room / 2), tail(text, room / 2))
}

fn head(text: &str, columns: usize) -> String {
    fitting(text.chars(), columns).into_iter().collect()
}

fn tail(text: &str, columns: usize) -> String {
    fitting(text.chars().rev(), columns)
        .into_iter()
        .rev()
        .collect()
}

/// The first characters that fit into `columns`.
fn fitting(chars: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut left = columns;
    chars
        .map_while(|c| {
            left = left.checked_sub(c.width().unwrap_or(0))?;
            Some(c)
        })
        .collect()
}

/// Numbers in order, runs as ranges: `1, 4-6, 12-15`; `none` if there are none.
pub(super) fn ranges(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut numbers: Vec<_> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let runs: Vec<_> = numbers.chunk_by(|a, b| a + 1 == *b).map(run).collect();
    if runs.is_empty() {
        "none".to_owned()
    } else {
        runs.join(", ")
    }
}

fn run(run: &[usize]) -> String {
    match run {
        [] => String::new(),
        [one] => one.to_string(),
        [first, second] => format!("{first}, {second}"),
        [first, .., last] => format!("{first}-{last}"),
    }
}

/// `1 rail`, `2 rails`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Speed of a link as people say it: `100G`, `2.5G`; `-` where it is not known.
pub(super) fn speed(mbps: Option<u32>) -> String {
    match mbps {
        None => "-".to_owned(),
        Some(mbps) if mbps < 1000 => format!("{mbps}M"),
        Some(mbps) if mbps % 1000 == 0 => format!("{}G", mbps / 1000),
        Some(mbps) => format!("{}.{}G", mbps / 1000, mbps % 1000 / 100),
    }
}

/// The value as text, or `-`.
pub(super) fn or_dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}
