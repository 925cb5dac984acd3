//! What an attachment will be, to the last name and number, before the first effect.
//!
//! The executor (`attach`) has no choice left to make: same sandbox, same rails and same leases
//! give the same plan, and with it the same interfaces, tables, rules and alias.

use crate::ids::{BadId, IfName, RailIndex, SandboxId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Marks our routes and rules (`ip route` shows `proto 112`), so that nobody else's are touched.
/// The kernel only stores the number; 112 is free in iproute2's `rt_protos`.
pub const ROUTE_PROTOCOL: u8 = 112;

/// Priority of the rule of routing table 0; a rail's rule has this plus its table.
/// Below 32766, where the main table is looked up.
const RULE_PRIORITY_BASE: u32 = 30_000;

/// Per-interface IPv4 settings that must stand before a child is up, set over netlink. With 16 interfaces in one
/// subnet the defaults answer ARP for each other and drop what arrives "on the wrong interface".
pub const CHILD_SYSCTLS: [(&str, &str); 5] = [
    ("arp_announce", "2"),
    ("arp_filter", "1"),
    ("arp_ignore", "1"),
    ("rp_filter", "0"),
    ("accept_local", "1"),
];

/// Everything that attaching the rails of one sandbox does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachPlan {
    /// Whose rails these are.
    pub sandbox: SandboxId,
    /// Link group of all children: one kernel request deletes the group.
    pub group: u32,
    /// Settings of the whole network namespace, with the value to go back to.
    pub namespace_sysctls: Vec<Sysctl>,
    /// One entry per rail, in rail order.
    pub rails: Vec<RailAttachment>,
}

/// A sysctl below `/proc/sys`, as a path relative to it (`net/ipv4/conf/all/rp_filter`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sysctl {
    /// Path relative to `/proc/sys`.
    pub path: String,
    /// Value to set.
    pub value: String,
    /// Value before; absent for a setting that dies with its interface.
    pub previous: Option<String>,
}

/// One IPvlan child and all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RailAttachment {
    /// The rail.
    pub rail: RailIndex,
    /// Its interface on the host.
    pub parent: IfName,
    /// The child in the pod.
    pub child: IfName,
    /// MTU of the child, in bytes.
    pub mtu: u32,
    /// Leased addresses with the pool's prefix length; at most one per family.
    pub addresses: Vec<IpNet>,
    /// Gateways of the pool; at most one per family.
    pub gateways: Vec<IpAddr>,
}

/// A route in the rail's own table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to; `0.0.0.0/0` or `::/0` for the gateway's route.
    pub to: IpNet,
    /// Next hop, or on-link.
    pub via: Option<IpAddr>,
    /// The child's own address.
    pub source: IpAddr,
}

/// A plan that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The asked MTU does not fit the parent's: the kernel would cut it or refuse.
    #[error("MTU {asked} of rail {rail} is above the {parent_mtu} of its interface {parent}")]
    MtuAboveParent {
        /// The rail.
        rail: RailIndex,
        /// Its interface.
        parent: IfName,
        /// MTU as configured.
        asked: u32,
        /// MTU of the interface.
        parent_mtu: u32,
    },
    /// Two rails would get the same interface name.
    #[error("rails {first} and {second} would both be called {child}")]
    SameChild {
        /// The name.
        child: IfName,
        /// First rail.
        first: RailIndex,
        /// Second rail.
        second: RailIndex,
    },
}

impl AttachPlan {
    /// Checks and orders the attachments. `previous_rp_filter` is what
    /// `net.ipv4.conf.all.rp_filter` says in the namespace now.
    pub fn new(
        sandbox: SandboxId,
        mut rails: Vec<RailAttachment>,
        previous_rp_filter: Option<String>,
    ) -> Result<Self, PlanError> {
        rails.sort_by_key(|rail| rail.rail);
        refuse_same_names(&rails)?;
        // The kernel uses the larger of `all` and the interface's own rp_filter.
        let all = Sysctl {
            path: "net/ipv4/conf/all/rp_filter".into(),
            value: "0".into(),
            previous: previous_rp_filter,
        };
        Ok(Self {
            group: link_group(&sandbox),
            namespace_sysctls: vec![all],
            sandbox,
            rails,
        })
    }

    /// The alias of a rail's child.
    #[must_use]
    pub fn alias(&self, rail: RailIndex) -> Alias {
        Alias {
            sandbox: self.sandbox.clone(),
            rail,
        }
    }
}

impl RailAttachment {
    /// MTU of a child: the configured one if it fits, else the parent's.
    pub fn child_mtu(
        rail: RailIndex,
        parent: &IfName,
        parent_mtu: u32,
        asked: Option<u32>,
    ) -> Result<u32, PlanError> {
        match asked {
            Some(asked) if asked > parent_mtu => Err(PlanError::MtuAboveParent {
                rail,
                parent: parent.clone(),
                asked,
                parent_mtu,
            }),
            asked => Ok(asked.unwrap_or(parent_mtu)),
        }
    }

    /// Routing table in the pod: `100 + rail index`.
    #[must_use]
    pub fn table(&self) -> u32 {
        self.rail.table()
    }

    /// Priority of the rail's rules: fixed, so that ours can be told from others'.
    #[must_use]
    pub fn rule_priority(&self) -> u32 {
        RULE_PRIORITY_BASE + self.table()
    }

    /// Rules `from <address> lookup <table>`, one per address.
    pub fn rule_sources(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(IpNet::addr)
    }

    /// Routes of the rail's table: the subnet first, since the gateway's needs it.
    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        self.addresses
            .iter()
            .flat_map(|address| self.routes_of(address))
            .collect()
    }

    fn routes_of(&self, address: &IpNet) -> impl Iterator<Item = Route> {
        let source = address.addr();
        let subnet = Route {
            to: address.trunc(),
            via: None,
            source,
        };
        let gateway = self
            .gateways
            .iter()
            .find(|gw| gw.is_ipv4() == source.is_ipv4());
        let default = gateway.map(|gw| Route {
            to: default_net(source),
            via: Some(*gw),
            source,
        });
        std::iter::once(subnet).chain(default)
    }

    /// The setting of the child that only a file below `/proc/sys` can make, before it is up:
    /// `accept_ra=0` keeps router advertisements on the rail from replacing the pod's default route.
    #[must_use]
    pub fn ipv6_sysctl(&self) -> Sysctl {
        Sysctl {
            // A dot in an interface name is no separator in a path.
            path: format!("net/ipv6/conf/{}/accept_ra", self.child),
            value: "0".into(),
            previous: None,
        }
    }
}

fn refuse_same_names(rails: &[RailAttachment]) -> Result<(), PlanError> {
    for (at, first) in rails.iter().enumerate() {
        if let Some(second) = rails
            .iter()
            .skip(at + 1)
            .find(|other| other.child == first.child)
        {
            let (first, second, child) = (first.rail, second.rail, second.child.clone());
            return Err(PlanError::SameChild {
                child,
                first,
                second,
            });
        }
    }
    Ok(())
}

fn default_net(family_of: IpAddr) -> IpNet {
    match family_of {
        IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

/// Link group of a sandbox: a hash of its id with a fixed upper part. Groups are per namespace, so
/// a clash needs two sandboxes in one namespace; the executor checks the alias of every member
/// before it deletes a group.
#[must_use]
pub fn link_group(sandbox: &SandboxId) -> u32 {
    let hash = sandbox
        .as_str()
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
    0x5000_0000 | (hash & 0x0fff_ffff)
}

/// Whether a link group is one of ours, whichever sandbox it is of.
#[must_use]
pub fn is_link_group(group: u32) -> bool {
    group & !0x0fff_ffff == 0x5000_0000
}

/// Alias of a child, `podrail:<sandbox>:<rail>`: how an orphan tells whose it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Owner.
    pub sandbox: SandboxId,
    /// Rail.
    pub rail: RailIndex,
}

impl Alias {
    /// Reads an alias; a link without ours is somebody else's.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let bad = || BadId {
            kind: "interface alias",
            given: text.chars().take(80).collect(),
            allowed: "podrail:<sandbox>:<rail>",
        };
        let (sandbox, rail) = text
            .strip_prefix("podrail:")
            .and_then(|rest| rest.rsplit_once(':'))
            .ok_or_else(bad)?;
        let digits = !rail.is_empty() && rail.bytes().all(|b| b.is_ascii_digit());
        let rail = digits
            .then(|| rail.parse().ok())
            .flatten()
            .ok_or_else(bad)?;
        Ok(Self {
            sandbox: SandboxId::parse(sandbox)?,
            rail: RailIndex(rail),
        })
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "podrail:{}:{}", self.sandbox, self.rail)
    }
}

#[cfg(test)]
mod tests;
