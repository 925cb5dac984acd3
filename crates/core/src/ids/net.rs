//! Ids of the network side: rail indexes and MAC addresses.

use super::{BadId, IfName, text_id};
use serde::{Deserialize, Serialize};
use std::fmt;

/// First routing table of the rails: rail 0 uses table 100 (the post's `sbr` plugin starts there too).
const FIRST_TABLE: u32 = 100;

/// Place of a rail in PCI order among the rails of its node; stable over reboots.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct RailIndex(pub u16);

impl RailIndex {
    /// Routing table of the rail inside a pod: `100 + index`.
    #[must_use]
    pub fn table(self) -> u32 {
        FIRST_TABLE + u32::from(self.0)
    }

    /// Interface name in a pod when nothing else is asked for: `net1` for rail 0.
    #[must_use]
    pub fn default_interface(self) -> IfName {
        // At most "net65536": always a valid interface name.
        IfName::parse(&format!("net{}", u32::from(self.0) + 1))
            .unwrap_or_else(|_| unreachable!("net<number> is a valid interface name"))
    }
}

impl fmt::Display for RailIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Ethernet address, printed as `08:c0:eb:8e:7f:20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Reads six two-digit hexadecimal bytes joined by `:`.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let bad = || {
            BadId::new(
                "MAC address",
                text,
                "six two-digit hexadecimal bytes joined by ':'",
            )
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            Err(bad())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

text_id!(MacAddr);
