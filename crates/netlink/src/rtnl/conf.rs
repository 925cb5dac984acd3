//! Per-interface IPv4 settings (`net.ipv4.conf.<interface>.*`) over netlink.

use crate::wire::{Malformed, attributes_after, i32_at};
use std::fmt;

/// Length of `struct netconfmsg`, aligned.
const NETCONF_HEADER: usize = 4;
/// `NETCONFA_RP_FILTER`.
const NETCONFA_RP_FILTER: u16 = 3;

/// A setting, with its number in the kernel (`IPV4_DEVCONF_*`, `include/uapi/linux/ip.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum InetConf {
    /// Source validation: 0 off, 1 strict, 2 loose.
    RpFilter = 8,
    /// Answer ARP only where the route back leaves by the same interface.
    ArpFilter = 13,
    /// Which source address ARP requests carry; 2: the best for the target.
    ArpAnnounce = 18,
    /// Which ARP requests are answered; 1: only for addresses of the interface that got it.
    ArpIgnore = 19,
    /// Take packets whose source is an address of this host.
    AcceptLocal = 23,
}

impl InetConf {
    /// All that this crate knows.
    pub const ALL: [Self; 5] = [
        Self::RpFilter,
        Self::ArpFilter,
        Self::ArpAnnounce,
        Self::ArpIgnore,
        Self::AcceptLocal,
    ];

    /// Name below `net.ipv4.conf.<interface>`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RpFilter => "rp_filter",
            Self::ArpFilter => "arp_filter",
            Self::ArpAnnounce => "arp_announce",
            Self::ArpIgnore => "arp_ignore",
            Self::AcceptLocal => "accept_local",
        }
    }

    /// Number in the kernel.
    pub(crate) fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for InetConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings of one interface as the kernel lists them with the link.
///
/// These are the interface's own values; some act together with those of `all`
/// (`include/linux/inetdevice.h`): `rp_filter`, `arp_ignore` and `arp_announce` by the larger,
/// `arp_filter` by either, `accept_local` by either.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InetConfValues(Vec<i32>);

impl InetConfValues {
    /// Value of a setting; `None` if the kernel does not have it.
    #[must_use]
    pub fn get(&self, setting: InetConf) -> Option<i32> {
        let place = usize::from(setting.number()).checked_sub(1)?;
        self.0.get(place).copied()
    }

    /// Reads an `IFLA_INET_CONF`: an array of numbers, setting N at place N-1.
    pub(crate) fn parse(value: &[u8]) -> Self {
        let (numbers, _) = value.as_chunks::<4>();
        Self(numbers.iter().map(|n| i32::from_ne_bytes(*n)).collect())
    }
}

/// Reads `rp_filter` from an `RTM_NEWNETCONF`.
pub(crate) fn parse_rp_filter(body: &[u8]) -> Result<i32, Malformed> {
    attributes_after(body, NETCONF_HEADER)?
        .into_iter()
        .find(|(kind, _)| *kind == NETCONFA_RP_FILTER)
        .ok_or(Malformed("lacks rp_filter"))
        .and_then(|(_, value)| i32_at(value, 0))
}
