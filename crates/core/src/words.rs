//! Texts of others in messages: cut, and without control characters.
//!
//! A message ends on a terminal, in a log and in a pod's events; what it repeats may be of any
//! length and move the cursor.

/// Longest text that is repeated whole, in characters.
const WHOLE: usize = 280;
/// What is left of a longer one: its start and its end, where parsers say the place.
const ENDS: (usize, usize) = (200, 60);

/// A text in one line of at most 280 characters.
#[must_use]
pub fn brief(text: &str) -> String {
    cut(text).chars().map(printable).collect()
}

/// The same for a text that has lines, which stay.
#[must_use]
pub fn brief_lines(text: &str) -> String {
    visible(&cut(text))
}

/// A text of any length and any number of lines, without other control characters.
#[must_use]
pub fn visible(text: &str) -> String {
    let visible = |c| if c == '\n' { c } else { printable(c) };
    text.chars().map(visible).collect()
}

fn printable(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

fn cut(text: &str) -> String {
    let length = text.chars().count();
    if length <= WHOLE {
        return text.to_owned();
    }
    let start = text.chars().take(ENDS.0);
    let end = text.chars().skip(length - ENDS.1);
    start.chain(" ... ".chars()).chain(end).collect()
}

/// JSON of others that cannot be read: where and why, in bounded words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadJson(String);

impl From<serde_json::Error> for BadJson {
    /// The parser repeats a text of the wrong kind in full.
    fn from(error: serde_json::Error) -> Self {
        Self(brief(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    //! What is left of long texts and of control characters.
    use super::*;

    #[test]
    fn short_texts_stay_and_control_characters_do_not() {
        assert_eq!(brief("a\u{1b}[2J\nb"), "a?[2J?b");
        assert_eq!(brief_lines("a\u{1b}[2J\nb"), "a?[2J\nb");
    }

    #[test]
    fn a_long_text_of_the_wrong_kind_keeps_its_place() {
        let text = format!("\"{}\"", "é".repeat(1 << 20));
        let error = serde_json::from_str::<Vec<u8>>(&text).unwrap_err();
        let words = BadJson::from(error).to_string();
        assert!(words.starts_with("invalid type: string \"é"), "{words}");
        assert!(
            words.ends_with(", expected a sequence at line 1 column 2097154"),
            "{words}"
        );
        assert!(words.chars().count() <= WHOLE, "{words}");
    }
}
