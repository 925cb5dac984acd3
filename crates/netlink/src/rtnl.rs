//! Route netlink: links, addresses, rules and routes of one network namespace.

mod address;
mod conf;
mod encode;
mod link;
mod request;
mod route;
mod rule;

pub use address::{Address, AddressFlags, Scope};
pub use conf::{InetConf, InetConfValues};
pub use link::{Ipvlan, IpvlanMode, Link, Parent};
pub use request::{
    Alias, BadAlias, Group, LinkRef, NewAddress, NewIpvlan, NewRoute, Request, SourceRule,
};
pub use route::Route;
pub use rule::Rule;

use crate::channel::{Channel, Failure, malformed};
use crate::error::{NetlinkError, Refusal};
use crate::netns::NetNs;
use crate::wire::Malformed;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::libc::{
    AF_INET, AF_INET6, RTM_GETADDR, RTM_GETLINK, RTM_GETNETCONF, RTM_GETROUTE, RTM_GETRULE,
};
use podrail_core::ids::IfName;
pub use podrail_core::ipam::Family;

/// `AF_INET` or `AF_INET6`.
fn number(family: Family) -> u8 {
    let number = match family {
        Family::V4 => AF_INET,
        Family::V6 => AF_INET6,
    };
    u8::try_from(number).unwrap_or_default()
}

/// A route netlink socket: reads and changes one network namespace.
///
/// Reads are consistent: a dump that the kernel marks as disturbed (`NLM_F_DUMP_INTR`) or that
/// lost a part (`ENOBUFS`) is read again, up to 50 times; an answer of up to 32 KiB is one part
/// and cannot be disturbed. Two reads are not consistent with each
/// other. Reading needs no privilege.
#[derive(Debug)]
pub struct Rtnl {
    channel: Channel,
}

impl Rtnl {
    /// Opens a socket in the calling thread's namespace; it stays there wherever the thread goes.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open() -> Result<Self, NetlinkError> {
        Channel::open(NETLINK_ROUTE)
            .map(|channel| Self { channel })
            .map_err(|source| NetlinkError::Open {
                family: "route",
                source,
            })
    }

    /// Opens a socket in another namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Namespace`] or [`NetlinkError::Open`].
    pub fn open_in(namespace: &NetNs) -> Result<Self, NetlinkError> {
        namespace
            .run(Self::open)
            .map_err(|source| NetlinkError::Namespace { source })?
    }

    /// How many times this socket has gone to the kernel: a batch counts once per `sendmsg`.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.channel.round_trips()
    }

    /// All links of the namespace, without their statistics.
    ///
    /// # Errors
    /// [`NetlinkError`], never because of an attribute that is not asked for.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        self.dump(RTM_GETLINK, &encode::links(), "list links", Link::parse)
    }

    /// The link with this name, or this alternative name; `None` if there is none.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn link(&mut self, name: &IfName) -> Result<Option<Link>, NetlinkError> {
        let request = format!("look up interface {name}");
        let body = match self
            .channel
            .get(RTM_GETLINK, &encode::link_by_name(name), &request)
        {
            Err(NetlinkError::Refused {
                errno: Errno::ENODEV,
                ..
            }) => return Ok(None),
            other => other?,
        };
        Link::parse(&body).map_err(|source| malformed(&request, source))
    }

    /// All IPv4 and IPv6 addresses of the namespace.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        let body = encode::address_family(0);
        self.dump(RTM_GETADDR, &body, "list addresses", Address::parse)
    }

    /// All policy routing rules of a family; none where the kernel lacks the family.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>, NetlinkError> {
        let body = encode::family_header(number(family));
        let found = self.dump(RTM_GETRULE, &body, "list rules", Rule::parse);
        match found {
            Err(NetlinkError::Refused {
                errno: Errno::EAFNOSUPPORT,
                ..
            }) => Ok(Vec::new()),
            other => other,
        }
        .map(|rules| keep(rules, |rule| rule.family == family))
    }

    /// All routes of a family, of all tables. A kernel without the family answers with the
    /// routes of the others (`rtnetlink_rcv_msg` falls back to `rtnl_dump_all`); they are left out.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn routes(&mut self, family: Family) -> Result<Vec<Route>, NetlinkError> {
        let body = encode::family_header(number(family));
        self.dump(RTM_GETROUTE, &body, "list routes", Route::parse)
            .map(|routes| keep(routes, |route| route.family == family))
    }

    /// `net.ipv4.conf.all.rp_filter` of the namespace: the kernel uses the larger of this and the
    /// interface's own. Netlink can read it and cannot set it (there is no such request); write
    /// `/proc/sys` in [`NetNs::run`] for that.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn all_rp_filter(&mut self) -> Result<i32, NetlinkError> {
        let request = "read rp_filter of all interfaces";
        let body = self
            .channel
            .get(RTM_GETNETCONF, &encode::netconf_all(), request)?;
        conf::parse_rp_filter(&body).map_err(|source| malformed(request, source))
    }

    /// Carries out requests in order, in as few `sendmsg` calls as are safe (32 KiB or 128
    /// requests each), and gives the verdict on each.
    ///
    /// # Guarantees
    /// One verdict per request, in order. **A refused request does not stop those behind it**
    /// (`netlink_rcv_skb`, `net/netlink/af_netlink.c`): a caller that plans undo must look at all
    /// verdicts. Requests are atomic one by one, not together; a process that is killed has its
    /// whole `sendmsg` carried out or none of it.
    ///
    /// # Assumptions
    /// `CAP_NET_ADMIN` over this namespace, and over the target's for [`Request::CreateIpvlan`].
    ///
    /// # Errors
    /// Each verdict: [`Refusal`]. [`Refusal::Unanswered`] is the only one after which the state is
    /// unknown. Nothing is sent again.
    pub fn apply(&mut self, requests: &[Request<'_>]) -> Vec<Result<(), Refusal>> {
        let messages: Vec<_> = requests.iter().map(encode::message).collect();
        let verdicts = self.channel.batch(&messages);
        requests
            .iter()
            .zip(verdicts)
            .map(|(request, verdict)| verdict.map_err(|failure| refusal(request, failure)))
            .collect()
    }

    /// Dumps and parses; messages of other types, and those that `parse` has no use for, are out.
    fn dump<T>(
        &mut self,
        kind: u16,
        body: &[u8],
        request: &str,
        parse: impl Fn(&[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, NetlinkError> {
        // RTM_NEWx is always RTM_GETx less 2.
        let wanted = kind.saturating_sub(2);
        let parts = self.channel.dump(kind, body, request)?;
        parts
            .iter()
            .filter(|(found, _)| *found == wanted)
            .filter_map(|(_, part)| parse(part).transpose())
            .collect::<Result<_, _>>()
            .map_err(|source| malformed(request, source))
    }
}

fn keep<T>(mut items: Vec<T>, wanted: impl Fn(&T) -> bool) -> Vec<T> {
    items.retain(wanted);
    items
}

fn refusal(request: &Request<'_>, failure: Failure) -> Refusal {
    let request = request.to_string();
    match failure {
        Failure::Kernel(nack) => Refusal::Kernel {
            request,
            errno: nack.errno,
            message: nack.message,
        },
        Failure::Unanswered(source) => Refusal::Unanswered { request, source },
        Failure::NotSent(source) => Refusal::NotSent { request, source },
    }
}

#[cfg(test)]
mod tests;
