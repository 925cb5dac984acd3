//! Patterns of selectors: `rdma*`, `0000:0c:00.?`, `mlx5_[0-9]`.

use std::fmt;

/// Longest pattern.
const LIMIT: usize = 128;

/// A text with `*` (any characters), `?` (one) and `[a-f0]` (one of these); all else stands for
/// itself. It must match the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Any,
    One,
    Literal(char),
    OneOf(Vec<(char, char)>),
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "pattern {given:?} is not valid: 1 to 128 characters, '*', '?', and '[...]' closed and not empty"
)]
pub struct BadPattern {
    /// The text as given, cut to 80 characters.
    pub given: String,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`BadPattern`] if it is empty, too long, or a `[` is not closed.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let bad = || BadPattern {
            given: text.chars().take(80).collect(),
        };
        if text.is_empty() || text.len() > LIMIT {
            return Err(bad());
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' => Token::Any,
                '?' => Token::One,
                '[' => Token::OneOf(set(&mut chars).ok_or_else(bad)?),
                c => Token::Literal(c),
            });
        }
        Ok(Self {
            text: text.to_owned(),
            tokens,
        })
    }

    /// Whether the whole text matches. Time is at most text times pattern.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        let (mut at, mut token) = (0, 0);
        // After a `*`: where to go on if what follows it does not fit here.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (self.tokens.get(token), chars.get(at)) {
                (None, None) => return true,
                (Some(Token::Any), _) => {
                    retry = Some((at, token));
                    token += 1;
                    continue;
                }
                (Some(one), Some(c)) if one.takes(*c) => {
                    at += 1;
                    token += 1;
                    continue;
                }
                _ => {}
            }
            match retry {
                Some((from, star)) if from < chars.len() => {
                    retry = Some((from + 1, star));
                    at = from + 1;
                    token = star + 1;
                }
                _ => return false,
            }
        }
    }
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Literal(own) => *own == c,
            Self::OneOf(ranges) => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)),
        }
    }
}

/// The inside of `[...]`, up to and with the bracket.
fn set(chars: &mut std::str::Chars<'_>) -> Option<Vec<(char, char)>> {
    let (inside, rest) = chars.as_str().split_once(']')?;
    *chars = rest.chars();
    let letters: Vec<char> = inside.chars().collect();
    let mut ranges = Vec::new();
    let mut left = letters.as_slice();
    loop {
        left = match left {
            [low, '-', high, rest @ ..] => {
                ranges.push((*low, *high));
                rest
            }
            [one, rest @ ..] => {
                ranges.push((*one, *one));
                rest
            }
            [] => break,
        };
    }
    (!ranges.is_empty()).then_some(ranges)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    //! What matches, what does not, what is refused.
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(text)
    }

    #[test]
    fn wholes() {
        for (pattern, text) in [
            ("rdma0", "rdma0"),
            ("rdma*", "rdma"),
            ("*", ""),
            ("0000:0c:00.?", "0000:0c:00.1"),
            ("mlx5_[0-37]", "mlx5_7"),
            ("*a*b", "xaybzb"),
            ("[-a]", "-"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("rdma0", "rdma01"),
            ("rdma?", "rdma"),
            ("mlx5_[0-3]", "mlx5_4"),
            ("*a*b", "xayb0"),
            ("a*", "ba"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        let slow = format!("{}b", "*a".repeat(60));
        assert!(!matches(&slow, &"a".repeat(5000)));
    }

    #[test]
    fn refused() {
        for text in ["", "[", "a[]", &"x".repeat(200)] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
