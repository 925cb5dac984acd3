//! Name of a pool.

use crate::ids::BadId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Name of a pool, by Kubernetes' rule for object names (a DNS subdomain).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolName(String);

impl PoolName {
    pub(super) const ALLOWED: &'static str =
        "1 to 253 lower-case letters, digits, '-' or '.', the first and last a letter or a digit";

    /// Checks the text.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        if is_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(BadId {
            kind: "pool name",
            given: text.chars().take(80).collect(),
            allowed: Self::ALLOWED,
        })
    }

    /// The checked text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PoolName {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        Self::parse(&text)
    }
}

impl From<PoolName> for String {
    fn from(name: PoolName) -> Self {
        name.0
    }
}

fn is_name(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=253).contains(&text.len())
        && text.bytes().all(|b| word(b) || b == b'-' || b == b'.')
        && text.bytes().next().is_some_and(word)
        && text.bytes().next_back().is_some_and(word)
}
