//! Addresses as the kernel lists them.

use crate::wire::{Malformed, attributes_after, u8_at, u32_at, u32_of};
use ipnet::IpNet;
use nix::libc::{IFA_ADDRESS, IFA_LOCAL};
use std::net::IpAddr;

/// Length of `struct ifaddrmsg`.
const HEADER: usize = 8;
/// `IFA_FLAGS`: all 32 bits; the header has room for eight.
const IFA_FLAGS: u16 = 8;

/// How far an address or a route reaches (`RT_SCOPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everywhere (`global` to `ip`).
    Universe,
    /// Within the site.
    Site,
    /// On the link: a destination that needs no gateway.
    Link,
    /// In this host.
    Host,
    /// Nowhere.
    Nowhere,
    /// Another number.
    Other(u8),
}

impl From<u8> for Scope {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::Universe,
            200 => Self::Site,
            253 => Self::Link,
            254 => Self::Host,
            255 => Self::Nowhere,
            other => Self::Other(other),
        }
    }
}

impl From<Scope> for u8 {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Universe => 0,
            Scope::Site => 200,
            Scope::Link => 253,
            Scope::Host => 254,
            Scope::Nowhere => 255,
            Scope::Other(number) => number,
        }
    }
}

/// Flags of an address (`IFA_F_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AddressFlags(pub u32);

impl AddressFlags {
    /// Another address of the same subnet came first; goes with it unless `promote_secondaries`.
    #[must_use]
    pub fn secondary(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// No duplicate address detection.
    #[must_use]
    pub fn nodad(self) -> bool {
        self.0 & 0x02 != 0
    }

    /// Duplicate address detection found another owner.
    #[must_use]
    pub fn dad_failed(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// Duplicate address detection is still running: the address cannot be used yet.
    #[must_use]
    pub fn tentative(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// Has no lifetime.
    #[must_use]
    pub fn permanent(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// The kernel made no route to the subnet.
    #[must_use]
    pub fn no_prefix_route(self) -> bool {
        self.0 & 0x200 != 0
    }
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub ifindex: u32,
    /// The address itself with its prefix length; host bits are kept.
    pub net: IpNet,
    /// How far it reaches.
    pub scope: Scope,
    /// Its flags.
    pub flags: AddressFlags,
}

impl Address {
    /// Reads an `RTM_NEWADDR`; `None` for families other than IPv4 and IPv6.
    ///
    /// On a point-to-point interface `IFA_ADDRESS` is the peer, so `IFA_LOCAL` comes first. IPv6
    /// has `IFA_LOCAL` only if there is a peer.
    pub(crate) fn parse(body: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut local = None;
        let mut address = None;
        let mut flags = u32::from(u8_at(body, 2)?);
        for (kind, value) in attributes_after(body, HEADER)? {
            match kind {
                IFA_LOCAL => local = ip(value),
                IFA_ADDRESS => address = ip(value),
                IFA_FLAGS => flags = u32_of(value)?,
                _ => {}
            }
        }
        let Some(ip) = local.or(address) else {
            return Ok(None);
        };
        Ok(Some(Self {
            ifindex: u32_at(body, 4)?,
            net: IpNet::new(ip, u8_at(body, 1)?).map_err(|_| Malformed("prefix too long"))?,
            scope: u8_at(body, 3)?.into(),
            flags: AddressFlags(flags),
        }))
    }
}

/// An address by its length; `None` for another length than those of IPv4 and IPv6.
pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(value).map(IpAddr::from);
    v4.or(v6).ok()
}
