//! Policy routing rules as the kernel lists them.

use super::address::ip;
use super::{Family, SourceRule};
use crate::wire::{Malformed, attributes_after, u8_at, u8_of, u32_at, u32_of};
use ipnet::IpNet;
use nix::libc::{AF_INET, AF_INET6};

/// Length of `struct fib_rule_hdr`.
const HEADER: usize = 12;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;
/// "No value" of the two `SUPPRESS` attributes, which the kernel always sends.
const UNSET: u32 = u32::MAX;

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Family.
    pub family: Family,
    /// Source that it is for; `None`: all.
    pub from: Option<IpNet>,
    /// Destination that it is for; `None`: all.
    pub to: Option<IpNet>,
    /// Table to look up; 0 if the rule does something else.
    pub table: u32,
    /// Smaller comes first.
    pub priority: u32,
    /// Who made it (`RTPROT_*`): 2 the kernel, 3 at boot, 4 an administrator.
    pub protocol: u8,
    /// `FR_ACT_*`: 1 looks up a table.
    pub action: u8,
    /// It has no selector but `from` and `to`, is not inverted and suppresses nothing.
    pub plain: bool,
}

impl Rule {
    /// Whether this is exactly what [`Request::AddRule`](super::Request::AddRule) makes.
    #[must_use]
    pub fn is(&self, wanted: &SourceRule) -> bool {
        self.plain
            && self.action == TO_TABLE
            && self.to.is_none()
            && self.from == Some(IpNet::from(wanted.from))
            && self.table == wanted.table
            && self.priority == wanted.priority
            && self.protocol == wanted.protocol
    }

    /// Reads an `RTM_NEWRULE`; `None` for families other than IPv4 and IPv6 (multicast routing
    /// has rules too).
    pub(crate) fn parse(body: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(family) = family(u8_at(body, 0)?) else {
            return Ok(None);
        };
        let mut rule = Self {
            family,
            from: None,
            to: None,
            table: u32::from(u8_at(body, 4)?),
            priority: 0,
            protocol: 0,
            action: u8_at(body, 7)?,
            plain: u8_at(body, 3)? == 0 && u32_at(body, 8)? & !1 == 0,
        };
        let (to_length, from_length) = (u8_at(body, 1)?, u8_at(body, 2)?);
        for (kind, value) in attributes_after(body, HEADER)? {
            match kind {
                FRA_SRC => rule.from = Some(net(value, from_length)?),
                FRA_DST => rule.to = Some(net(value, to_length)?),
                _ => rule.take(kind, value)?,
            }
        }
        Ok(Some(rule))
    }

    /// An attribute that is none of the known ones is a selector that we do not know.
    fn take(&mut self, kind: u16, value: &[u8]) -> Result<(), Malformed> {
        match kind {
            FRA_PRIORITY => self.priority = u32_of(value)?,
            FRA_TABLE => self.table = u32_of(value)?,
            FRA_PROTOCOL => self.protocol = u8_of(value)?,
            FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN => self.plain &= u32_of(value)? == UNSET,
            FRA_PAD => {}
            _ => self.plain = false,
        }
        Ok(())
    }
}

/// Family of a header; `None` for those that Podrail has no use for.
pub(crate) fn family(number: u8) -> Option<Family> {
    match i32::from(number) {
        AF_INET => Some(Family::V4),
        AF_INET6 => Some(Family::V6),
        _ => None,
    }
}

/// A prefix from its address and length.
pub(crate) fn net(value: &[u8], length: u8) -> Result<IpNet, Malformed> {
    let ip = ip(value).ok_or(Malformed("address of an unknown length"))?;
    IpNet::new(ip, length).map_err(|_| Malformed("prefix too long"))
}

/// `0.0.0.0/0` or `::/0`.
pub(crate) fn everything(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
        Family::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}
