//! Requests that change a namespace: plain values, printable, complete before they are sent.

use super::Family;
use super::address::Scope;
use super::conf::InetConf;
use crate::netns::NetNs;
use ipnet::IpNet;
use podrail_core::ids::IfName;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;

/// Longest alias in bytes: `IFALIASZ` less the NUL.
const ALIAS_MAX: usize = 255;

/// A text that cannot be an alias.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "interface alias of {length} bytes is not valid: 1 to 255 bytes without control characters"
)]
pub struct BadAlias {
    /// Length of the text as given.
    pub length: usize,
}

/// Alias of an interface: 1 to 255 bytes, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Alias(String);

impl Alias {
    /// Checks the text.
    ///
    /// # Errors
    /// [`BadAlias`].
    pub fn parse(text: &str) -> Result<Self, BadAlias> {
        if (1..=ALIAS_MAX).contains(&text.len()) && !text.contains(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadAlias { length: text.len() })
        }
    }

    /// The checked text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A group of links, never 0: that is where every link is that has none, and deleting it would
/// be deleting them all (the kernel refuses with `EPERM`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group(pub NonZeroU32);

/// A link of the namespace that the socket is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LinkRef {
    /// By index.
    Index(u32),
    /// By name.
    Name(IfName),
}

impl From<u32> for LinkRef {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl From<&IfName> for LinkRef {
    fn from(name: &IfName) -> Self {
        Self::Name(name.clone())
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "interface {index}"),
            Self::Name(name) => write!(f, "interface {name}"),
        }
    }
}

/// An IPvlan link to be made: mode L2, flag bridge, down.
#[derive(Debug, Clone, Copy)]
pub struct NewIpvlan<'a> {
    /// Its name in the target namespace.
    pub name: &'a IfName,
    /// Index of its parent **in the namespace of the socket**.
    pub parent: u32,
    /// Where it is made.
    pub target: &'a NetNs,
    /// Index in the target namespace; `None`: the kernel picks one. With an index of one's own no
    /// answer has to be read before the requests that configure the link.
    pub index: Option<NonZeroU32>,
    /// Largest packet in bytes; the parent's, or less.
    pub mtu: u32,
    /// Its group, by which all children of a pod are deleted at once.
    pub group: Group,
}

/// An address and the link that carries it. Also names the address to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewAddress {
    /// Index of the link.
    pub link: u32,
    /// Address with its prefix length; host bits are the address.
    pub net: IpNet,
}

/// A unicast route by one interface. Also names the route to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRoute {
    /// Table, any number but 0.
    pub table: u32,
    /// Destination; host bits are dropped.
    pub dest: IpNet,
    /// Index of the interface. It must be up.
    pub oif: u32,
    /// Source address to prefer; it must be there already.
    pub prefsrc: Option<IpAddr>,
    /// Gateway of the same family, on the link of `oif`.
    pub gateway: Option<IpAddr>,
    /// `RTPROT_*`, so that one's own routes can be told from others'.
    pub protocol: u8,
}

impl NewRoute {
    /// Link without a gateway, else universe: the only two the kernel takes here.
    #[must_use]
    pub fn scope(&self) -> Scope {
        if self.gateway.is_some() {
            Scope::Universe
        } else {
            Scope::Link
        }
    }
}

/// A rule `from <address> lookup <table>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceRule {
    /// Source address: /32 or /128.
    pub from: IpAddr,
    /// Table to look up.
    pub table: u32,
    /// Smaller comes first.
    pub priority: u32,
    /// `RTPROT_*`, so that one's own rules can be told from others'.
    pub protocol: u8,
}

impl SourceRule {
    /// Family of the rule.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.from)
    }
}

/// A change of the namespace. "Twice" is what the kernel says to a repetition.
#[derive(Debug, Clone)]
pub enum Request<'a> {
    /// Makes an IPvlan link straight in the target namespace, sent on a socket of the parent's.
    /// Its name is never seen in the namespace of the parent, so it cannot clash there.
    /// Twice: `EEXIST`, which is also what a name or an index in use gives, whatever link has it.
    /// Without the module: `EOPNOTSUPP`. A parent that has a macvlan: `EBUSY`, since both want
    /// its one receive handler.
    CreateIpvlan(NewIpvlan<'a>),
    /// Sets the alias. Twice: done again.
    SetAlias {
        /// Which link.
        link: LinkRef,
        /// The alias.
        alias: Alias,
    },
    /// Sets IPv4 settings of one link, all before it comes up, without `/proc`
    /// (`inet_set_link_af`, `net/ipv4/devinet.c`). Twice: done again.
    /// A link without IPv4 (MTU below 68): `EAFNOSUPPORT`.
    SetInetConf {
        /// Which link.
        link: LinkRef,
        /// Settings and their values; of one that stands twice the last holds.
        values: Vec<(InetConf, u32)>,
    },
    /// Sets the MTU. Twice: done again.
    SetMtu {
        /// Which link.
        link: LinkRef,
        /// In bytes.
        mtu: u32,
    },
    /// Sets the link up. Twice: done again. IPv6 gives it a link-local address then.
    SetUp(LinkRef),
    /// Adds an address, scope universe, with its prefix route. IPv6: without duplicate address
    /// detection, so that it can be used (and named as `prefsrc`) at once.
    /// Twice: `EEXIST`.
    AddAddress(NewAddress),
    /// Adds a route. Twice: `EEXIST`, which the kernel also says to another route of the same
    /// destination and metric in the table. Link down: `ENETDOWN`. Table 0 would be main.
    AddRoute(NewRoute),
    /// Adds a rule. Twice: `EEXIST` (only because this crate asks for it: `NLM_F_EXCL`).
    AddRule(SourceRule),
    /// Deletes the rule that is equal in all fields. Twice: `ENOENT`.
    DelRule(SourceRule),
    /// Deletes the route that is equal in all fields. Twice: `ESRCH`.
    DelRoute(NewRoute),
    /// Deletes the address, and what the kernel derived from it. Twice: `EADDRNOTAVAIL`.
    DelAddress(NewAddress),
    /// Deletes the link with its addresses and routes (**not** rules). Twice: `ENODEV`.
    DelLink(LinkRef),
    /// Deletes all links of the group in this namespace at once: one wait for the grace period
    /// instead of one per link (`rtnl_group_dellink`, `net/core/rtnetlink.c`). All or nothing: a
    /// member that cannot be deleted (a physical device) gives `EOPNOTSUPP` and none is.
    /// None in the group: `ENODEV`.
    DelGroup(Group),
}

/// The wish in words that follow "to".
impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateIpvlan(new) => new.fmt(f),
            Self::SetAlias { link, alias } => write!(f, "set alias {:?} of {link}", alias.0),
            Self::SetInetConf { link, values } => write_conf(f, link, values),
            Self::SetMtu { link, mtu } => write!(f, "set MTU {mtu} of {link}"),
            Self::SetUp(link) => write!(f, "set {link} up"),
            Self::AddAddress(new) => write!(f, "add address {} to interface {}", new.net, new.link),
            Self::AddRoute(route) => write!(f, "add route {route}"),
            Self::AddRule(rule) => write!(f, "add rule {rule}"),
            Self::DelRule(rule) => write!(f, "delete rule {rule}"),
            Self::DelRoute(route) => write!(f, "delete route {route}"),
            Self::DelAddress(old) => {
                write!(f, "delete address {} of interface {}", old.net, old.link)
            }
            Self::DelLink(link) => write!(f, "delete {link}"),
            Self::DelGroup(group) => write!(f, "delete all links of group {}", group.0),
        }
    }
}

fn write_conf(
    f: &mut fmt::Formatter<'_>,
    link: &LinkRef,
    values: &[(InetConf, u32)],
) -> fmt::Result {
    f.write_str("set")?;
    for (setting, value) in values {
        write!(f, " {setting}={value}")?;
    }
    write!(f, " of {link}")
}

impl fmt::Display for NewIpvlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "create IPvlan {} on interface {} in network namespace {}",
            self.name,
            self.parent,
            self.target.path().display()
        )
    }
}

impl fmt::Display for NewRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dest.trunc())?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " by interface {} in table {}", self.oif, self.table)
    }
}

impl fmt::Display for SourceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "from {} lookup {} priority {}",
            self.from, self.table, self.priority
        )
    }
}
