//! Links as the kernel lists them.

use super::conf::InetConfValues;
use crate::wire::{
    Malformed, attributes, attributes_after, i32_at, text, u16_at, u16_of, u32_at, u32_of,
};
use nix::libc::{
    AF_INET, IFF_LOWER_UP, IFF_UP, IFLA_ADDRESS, IFLA_AF_SPEC, IFLA_GROUP, IFLA_IFALIAS,
    IFLA_IFNAME, IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU,
};
use podrail_core::ids::MacAddr;

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;
/// `IFLA_PROP_LIST`.
const IFLA_PROP_LIST: u16 = 52;
/// `IFLA_ALT_IFNAME`.
pub(crate) const IFLA_ALT_IFNAME: u16 = 53;
/// `IFLA_INFO_KIND`.
const IFLA_INFO_KIND: u16 = 1;
/// `IFLA_INFO_DATA`.
const IFLA_INFO_DATA: u16 = 2;
/// `IFLA_INFO_SLAVE_KIND`.
const IFLA_INFO_PORT_KIND: u16 = 4;
/// `IFLA_IPVLAN_MODE`.
const IFLA_IPVLAN_MODE: u16 = 1;
/// `IFLA_IPVLAN_FLAGS`.
const IFLA_IPVLAN_FLAGS: u16 = 2;
/// `IFLA_INET_CONF`.
pub(crate) const IFLA_INET_CONF: u16 = 1;

/// The link that another one hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parent {
    /// Its index, **in its own namespace**; there may be another link of that index in ours.
    pub index: u32,
    /// That namespace as ours numbers it; `None`: it is ours. -1: the kernel has no number for it.
    pub netnsid: Option<i32>,
}

/// Mode of an IPvlan link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpvlanMode {
    /// Answers ARP itself; what RoCE needs.
    L2,
    /// Routed.
    L3,
    /// Routed, with the host's netfilter.
    L3s,
    /// A mode that this crate does not know.
    Other(u16),
}

/// What is special about an IPvlan link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipvlan {
    /// Mode; one for all children of a parent.
    pub mode: IpvlanMode,
    /// 0: bridge, 1: private, 2: vepa.
    pub flags: u16,
}

impl Ipvlan {
    /// Children of the same parent may talk to each other.
    #[must_use]
    pub fn is_bridge(self) -> bool {
        self.flags == 0
    }
}

/// A link of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index in this namespace.
    pub index: u32,
    /// Name. The kernel allows more than `IfName` does (any bytes), hence a plain text.
    pub name: String,
    /// Further names by which it can be looked up.
    pub altnames: Vec<String>,
    /// `ipvlan`, `macvlan`, `veth`, `bond`; physical devices have none.
    pub kind: Option<String>,
    /// What it is to its master: `bond`, `bridge`.
    pub port_kind: Option<String>,
    /// What it hangs on; for a veth its peer.
    pub parent: Option<Parent>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Ethernet address; `None` for link layers whose addresses are not six bytes long.
    pub mac: Option<MacAddr>,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Has a carrier (`IFF_LOWER_UP`); always false while not up.
    pub carrier: bool,
    /// Index of the bridge, bond or team that it is a port of.
    pub master: Option<u32>,
    /// Group; 0 unless set.
    pub group: u32,
    /// Alias, where set.
    pub alias: Option<String>,
    /// For IPvlan links.
    pub ipvlan: Option<Ipvlan>,
    /// `ARPHRD_*`: 1 Ethernet, 32 InfiniBand, 772 loopback.
    pub arp_type: u16,
    /// IPv4 settings; `None` if the link has no IPv4 (an MTU below 68, say).
    pub inet_conf: Option<InetConfValues>,
}

impl Link {
    /// Reads an `RTM_NEWLINK`.
    pub(crate) fn parse(body: &[u8]) -> Result<Option<Self>, Malformed> {
        let flags = i32_at(body, 8)?;
        let mut link = Self::bare(u32_at(body, 4)?, u16_at(body, 2)?);
        link.up = flags & IFF_UP != 0;
        link.carrier = flags & IFF_LOWER_UP != 0;
        let mut netnsid = None;
        for (kind, value) in attributes_after(body, HEADER)? {
            match kind {
                IFLA_LINK_NETNSID => netnsid = Some(i32_at(value, 0)?),
                _ => link.take(kind, value)?,
            }
        }
        if let Some(parent) = &mut link.parent {
            parent.netnsid = netnsid;
        }
        Ok(Some(link))
    }

    fn bare(index: u32, arp_type: u16) -> Self {
        Self {
            index,
            name: String::new(),
            altnames: Vec::new(),
            kind: None,
            port_kind: None,
            parent: None,
            mtu: 0,
            mac: None,
            up: false,
            carrier: false,
            master: None,
            group: 0,
            alias: None,
            ipvlan: None,
            arp_type,
            inet_conf: None,
        }
    }

    fn take(&mut self, kind: u16, value: &[u8]) -> Result<(), Malformed> {
        match kind {
            IFLA_IFNAME => self.name = text(value),
            IFLA_IFALIAS => self.alias = Some(text(value)).filter(|alias| !alias.is_empty()),
            IFLA_MTU => self.mtu = u32_of(value)?,
            IFLA_GROUP => self.group = u32_of(value)?,
            IFLA_MASTER => self.master = Some(u32_of(value)?),
            IFLA_ADDRESS => self.mac = value.try_into().ok().map(MacAddr),
            IFLA_LINK => self.parent = parent(u32_of(value)?),
            IFLA_LINKINFO => self.take_info(value)?,
            IFLA_AF_SPEC => self.inet_conf = inet_conf(value)?,
            IFLA_PROP_LIST => self.altnames = altnames(value)?,
            _ => {}
        }
        Ok(())
    }

    fn take_info(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let mut data: &[u8] = &[];
        for (kind, value) in attributes(value)? {
            match kind {
                IFLA_INFO_KIND => self.kind = Some(text(value)),
                IFLA_INFO_PORT_KIND => self.port_kind = Some(text(value)),
                IFLA_INFO_DATA => data = value,
                _ => {}
            }
        }
        if self.kind.as_deref() == Some("ipvlan") {
            self.ipvlan = Some(ipvlan(data)?);
        }
        Ok(())
    }
}

/// Index 0 stands for "none" (tunnels).
fn parent(index: u32) -> Option<Parent> {
    (index != 0).then_some(Parent {
        index,
        netnsid: None,
    })
}

fn ipvlan(data: &[u8]) -> Result<Ipvlan, Malformed> {
    let mut found = Ipvlan {
        mode: IpvlanMode::L3,
        flags: 0,
    };
    for (kind, value) in attributes(data)? {
        match kind {
            IFLA_IPVLAN_MODE => {
                found.mode = match u16_of(value)? {
                    0 => IpvlanMode::L2,
                    1 => IpvlanMode::L3,
                    2 => IpvlanMode::L3s,
                    other => IpvlanMode::Other(other),
                }
            }
            IFLA_IPVLAN_FLAGS => found.flags = u16_of(value)?,
            _ => {}
        }
    }
    Ok(found)
}

/// `IFLA_AF_SPEC` has one attribute per family, and that of IPv4 has the array of settings.
fn inet_conf(value: &[u8]) -> Result<Option<InetConfValues>, Malformed> {
    let Some(inet) = first(value, u16::try_from(AF_INET).unwrap_or_default())? else {
        return Ok(None);
    };
    Ok(first(inet, IFLA_INET_CONF)?.map(InetConfValues::parse))
}

fn first(bytes: &[u8], wanted: u16) -> Result<Option<&[u8]>, Malformed> {
    let found = attributes(bytes)?;
    Ok(found
        .into_iter()
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value))
}

fn altnames(value: &[u8]) -> Result<Vec<String>, Malformed> {
    let found = attributes(value)?;
    Ok(found
        .into_iter()
        .filter(|(kind, _)| *kind == IFLA_ALT_IFNAME)
        .map(|(_, value)| text(value))
        .collect())
}
