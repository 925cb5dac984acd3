//! Routes as the kernel lists them.

use super::address::{Scope, ip};
use super::rule::{everything, family, net};
use super::{Family, NewRoute};
use crate::wire::{Malformed, attributes_after, u8_at, u32_of};
use ipnet::IpNet;
use nix::libc::{RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE};
use std::net::IpAddr;

/// Length of `struct rtmsg`.
const HEADER: usize = 12;
/// `RTN_UNICAST`.
pub(crate) const UNICAST: u8 = 1;

/// A route. A multipath route has neither `oif` nor `gateway` here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Family.
    pub family: Family,
    /// Table: 254 main, 255 local.
    pub table: u32,
    /// Destination; the default route is `0.0.0.0/0` or `::/0`.
    pub dest: IpNet,
    /// Index of the interface it leaves by.
    pub oif: Option<u32>,
    /// Source address that the kernel prefers on it.
    pub prefsrc: Option<IpAddr>,
    /// Gateway; `None`: the destination is on the link, or the gateway is of the other family.
    pub gateway: Option<IpAddr>,
    /// Scope; always [`Scope::Universe`] for IPv6, which has none.
    pub scope: Scope,
    /// Who made it (`RTPROT_*`): 2 the kernel, 3 at boot, 4 an administrator.
    pub protocol: u8,
    /// `RTN_*`: 1 unicast, 2 local, 3 broadcast.
    pub kind: u8,
    /// Metric; IPv6 uses 1024 where none was given.
    pub priority: u32,
}

impl Route {
    /// Whether this is exactly what [`Request::AddRoute`](super::Request::AddRoute) makes.
    #[must_use]
    pub fn is(&self, wanted: &NewRoute) -> bool {
        self.kind == UNICAST
            && self.dest == wanted.dest.trunc()
            && self.table == wanted.table
            && self.oif == Some(wanted.oif)
            && self.prefsrc == wanted.prefsrc
            && self.gateway == wanted.gateway
            && self.protocol == wanted.protocol
            && (self.family == Family::V6 || self.scope == wanted.scope())
    }

    /// Reads an `RTM_NEWROUTE`; `None` for families other than IPv4 and IPv6.
    pub(crate) fn parse(body: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(family) = family(u8_at(body, 0)?) else {
            return Ok(None);
        };
        let mut route = Self {
            family,
            table: u32::from(u8_at(body, 4)?),
            dest: everything(family),
            oif: None,
            prefsrc: None,
            gateway: None,
            scope: u8_at(body, 6)?.into(),
            protocol: u8_at(body, 5)?,
            kind: u8_at(body, 7)?,
            priority: 0,
        };
        let length = u8_at(body, 1)?;
        for (kind, value) in attributes_after(body, HEADER)? {
            match kind {
                RTA_DST => route.dest = net(value, length)?,
                RTA_TABLE => route.table = u32_of(value)?,
                RTA_OIF => route.oif = Some(u32_of(value)?),
                RTA_PRIORITY => route.priority = u32_of(value)?,
                RTA_PREFSRC => route.prefsrc = ip(value),
                RTA_GATEWAY => route.gateway = ip(value),
                _ => {}
            }
        }
        Ok(Some(route))
    }
}
