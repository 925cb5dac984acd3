//! Names that cross a boundary: checked once, at birth, with one parse and one print each.

mod name;
mod net;
mod pci;
mod slot;

pub use name::{GpuUuid, IfName, KubeName, PodUid, RdmaName, ResourceName, SandboxId};
pub use net::{MacAddr, RailIndex};
pub use pci::{NicId, PciAddr, RootId};
pub use slot::SlotId;

/// A text that is not a valid id: which kind, what was given, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {given:?} is not valid: {allowed}")]
pub struct BadId {
    /// Kind of id, as users know it.
    pub kind: &'static str,
    /// The text as given, cut to 80 characters.
    pub given: String,
    /// What would have been valid.
    pub allowed: &'static str,
}

impl BadId {
    /// Longer texts are cut: an id may come from an untrusted annotation.
    fn new(kind: &'static str, given: &str, allowed: &'static str) -> Self {
        Self {
            kind,
            given: given.chars().take(80).collect(),
            allowed,
        }
    }
}

/// Text form for serde, `FromStr` and `Display` of an id with `parse(&str)` and `Display`.
macro_rules! text_id {
    ($name:ident) => {
        impl std::str::FromStr for $name {
            type Err = $crate::ids::BadId;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }
        impl TryFrom<String> for $name {
            type Error = $crate::ids::BadId;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}
use text_id;

#[cfg(test)]
mod tests;
