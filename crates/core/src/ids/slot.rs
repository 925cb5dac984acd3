//! Ids of slots, the anonymous units that the kubelet counts.

use super::{BadId, text_id};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A slot, `slot-07`: no rail until it is bound. Printed with two digits at least, so that a list
/// of up to a hundred sorts as people read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SlotId(pub u16);

impl SlotId {
    /// Reads the one form that [`Display`](fmt::Display) prints: a slot never has two names.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let number = text.strip_prefix("slot-").and_then(|n| n.parse().ok());
        number
            .map(Self)
            .filter(|slot| slot.to_string() == text)
            .ok_or_else(|| BadId::new("slot", text, "slot-00 to slot-65535, two digits at least"))
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot-{:02}", self.0)
    }
}

text_id!(SlotId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_name() {
        for number in [0, 7, 10, 99, 100, u16::MAX] {
            let slot = SlotId(number);
            assert_eq!(SlotId::parse(&slot.to_string()), Ok(slot));
        }
        assert_eq!(SlotId(7).to_string(), "slot-07");
        for text in [
            "slot-7",
            "slot-007",
            "slot-+7",
            "slot-",
            "slot-65536",
            "Slot-07",
            "slot-07 ",
            "",
        ] {
            assert!(SlotId::parse(text).is_err(), "{text:?}");
        }
    }
}
