//! How Podrail stands in the chain, and in words.

use std::fmt;

/// How Podrail stands in the chain once the steps are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Our copy is what runtimes load.
    Chained {
        /// Our file.
        file: String,
        /// What it is a copy of.
        original: String,
    },
    /// Multus is what runtimes load, and it delegates to our copy.
    BelowMultus {
        /// Our file.
        file: String,
        /// What it is a copy of.
        original: String,
    },
    /// Somebody has put our plugin into the cluster's configuration.
    ByHand {
        /// Their file.
        file: String,
    },
    /// The first file is broken; a copy from before still stands.
    Kept {
        /// Our file.
        file: String,
        /// What it is a copy of.
        original: String,
        /// What is wrong.
        why: Why,
    },
    /// Nothing of ours is there.
    Waiting(Why),
}

/// Why there is nothing to chain to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no configuration.
    NoConfiguration,
    /// The first file is broken, or half written.
    Broken {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The first file is one that our plugin cannot be chained to.
    Unusable {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// No name of ours sorts before it.
    SortsFirst {
        /// The file.
        file: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConfiguration => write!(
                f,
                "the cluster's network plugin has not written a configuration"
            ),
            Self::Broken { file, reason } | Self::Unusable { file, reason } => {
                write!(f, "{file} cannot be used: {reason}")
            }
            Self::SortsFirst { file } => write!(
                f,
                "{file} sorts before any name that Podrail may use: rename it, or add \
                 {{\"type\": \"podrail-cni\"}} to it"
            ),
        }
    }
}

impl Standing {
    /// Whether pods get to our plugin.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        !matches!(self, Self::Waiting(_))
    }

    /// Whether pods get to it by the cluster's configuration as it is now.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.is_installed() && !matches!(self, Self::Kept { .. })
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chained { file, original } => write!(f, "{file} chains after {original}"),
            Self::BelowMultus { file, original } => {
                write!(
                    f,
                    "Multus delegates to {file}, which chains after {original}"
                )
            }
            Self::ByHand { file } => write!(f, "{file} already lists podrail-cni: left alone"),
            Self::Kept {
                file,
                original,
                why,
            } => {
                write!(
                    f,
                    "{file} stays as it is, a copy of an earlier {original}: {why}"
                )
            }
            Self::Waiting(why) => write!(f, "not chained: {why}"),
        }
    }
}
