//! From the settings of a pool to a pool, or to all that is wrong with them.
//!
//! A fault that only follows from another one (an exclusion outside a subnet that was refused) is
//! not reported.

use super::span::{Bits, Span, joined};
use super::{Family, Half, Pool, PoolName, usable_v4, usable_v6};
use crate::config::{Fault, Faults, PoolSettings};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// No host can have these as its own, or they would look like IPv4 in a GID table.
const NEVER: [IpNet; 7] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 127)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0),
        96,
    )),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0),
        8,
    )),
];

/// What was found of the pool so far, by family.
struct Found {
    v4: Side<Ipv4Addr>,
    v6: Side<Ipv6Addr>,
    /// Every subnet was good: a family that is absent was not meant.
    complete: bool,
}

/// One family of the pool.
struct Side<A> {
    net: Option<Net<A>>,
    excluded: Vec<Span<A>>,
    gateway: Option<A>,
}

/// A subnet.
#[derive(Clone, Copy)]
struct Net<A> {
    prefix_len: u8,
    whole: Span<A>,
    usable: Span<A>,
}

/// What is wrong with a value, and what is allowed.
struct Refused(String);

fn refused<T>(given: impl Display, problem: &str, allowed: impl Display) -> Result<T, Refused> {
    Err(Refused(format!("{given} {problem}; allowed: {allowed}")))
}

/// Gathers faults below one field path.
struct Gather<'a> {
    at: &'a str,
    faults: Vec<Fault>,
}

impl Gather<'_> {
    fn add(&mut self, field: &str, text: impl Display) {
        let path = format!("{}.{field}", self.at);
        self.faults.push(Fault::new(&path, text));
    }
}

pub(super) fn pool(at: &str, settings: &PoolSettings) -> Result<Pool, Faults> {
    let faults = Vec::new();
    let mut faults = Gather { at, faults };
    let name = PoolName::parse(&settings.name).map_err(|error| faults.add("name", error));
    let mut found = Found::subnets(&settings.subnets, &mut faults);
    found.each("exclude", &settings.exclude, &mut faults, Found::exclude);
    found.each("gateways", &settings.gateways, &mut faults, Found::gateway);
    let fit = blocks(settings, &found, &mut faults);
    let (Ok(name), Some(fit), true) = (name, fit, faults.faults.is_empty()) else {
        return Err(Faults(faults.faults));
    };
    let v4 = found.v4.half(settings, &mut faults);
    let v6 = found.v6.half(settings, &mut faults);
    if !faults.faults.is_empty() {
        return Err(Faults(faults.faults));
    }
    let block = settings.block;
    Ok(Pool {
        name,
        block,
        fit,
        v4,
        v6,
    })
}

impl Found {
    fn subnets(nets: &[IpNet], faults: &mut Gather) -> Self {
        let mut found = Self {
            v4: Side::empty(),
            v6: Side::empty(),
            complete: false,
        };
        found.each("subnets", nets, faults, Self::subnet);
        if nets.is_empty() {
            faults.add("subnets", "one subnet is required, or one of each family");
        }
        found.complete = faults
            .faults
            .iter()
            .all(|fault| !fault.path.contains("subnets"));
        found
    }

    /// Adds each entry of a list.
    fn each<T>(
        &mut self,
        list: &str,
        entries: &[T],
        faults: &mut Gather,
        add: impl Fn(&mut Self, &T) -> Result<(), Refused>,
    ) {
        for (index, entry) in entries.iter().enumerate() {
            if let Err(Refused(text)) = add(self, entry) {
                faults.add(&format!("{list}[{index}]"), text);
            }
        }
    }

    fn subnet(&mut self, net: &IpNet) -> Result<(), Refused> {
        if net.trunc() != *net {
            return refused(net, "has host bits set", net.trunc());
        }
        if NEVER.iter().any(|n| n.contains(net) || net.contains(n)) {
            return refused(net, "holds addresses that no host can have", "unicast");
        }
        let taken = match net {
            IpNet::V4(net) => self.v4.net.replace(net_v4(net)).is_some(),
            IpNet::V6(net) => self.v6.net.replace(net_v6(net)).is_some(),
        };
        if taken {
            let problem = format!("is a second {} subnet", Family::of(net.addr()));
            return refused(net, &problem, "one for each family");
        }
        Ok(())
    }

    fn exclude(&mut self, text: &String) -> Result<(), Refused> {
        match ends(text)? {
            (IpAddr::V4(first), IpAddr::V4(last)) => self.v4.exclude(first, last, self.complete),
            (IpAddr::V6(first), IpAddr::V6(last)) => self.v6.exclude(first, last, self.complete),
            _ => refused(text, "mixes IPv4 and IPv6", "addresses of one family"),
        }
    }

    fn gateway(&mut self, gateway: &IpAddr) -> Result<(), Refused> {
        match *gateway {
            IpAddr::V4(gateway) => self.v4.gateway(gateway, self.complete),
            IpAddr::V6(gateway) => self.v6.gateway(gateway, self.complete),
        }
    }

    /// How many addresses the smaller family can hand out.
    fn smallest(&self) -> Option<u128> {
        let v4 = self.v4.net.map(|net| net.usable.len());
        let v6 = self.v6.net.map(|net| net.usable.len());
        v4.into_iter().chain(v6).min()
    }
}

impl<A: Bits> Side<A> {
    fn empty() -> Self {
        Self {
            net: None,
            excluded: Vec::new(),
            gateway: None,
        }
    }

    fn exclude(&mut self, first: A, last: A, complete: bool) -> Result<(), Refused> {
        if first > last {
            let given = format!("{}-{}", first.into(), last.into());
            return refused(given, "ends before it starts", "the lower address first");
        }
        let span = Span::new(first, last);
        self.excluded.push(span);
        self.inside(&span, complete, |net| net.whole)
    }

    fn gateway(&mut self, gateway: A, complete: bool) -> Result<(), Refused> {
        if self.gateway.replace(gateway).is_some() {
            let given: IpAddr = gateway.into();
            return refused(given, "is a second gateway", "one for each family");
        }
        let span = Span::new(gateway, gateway);
        self.inside(&span, complete, |net| net.usable)
    }

    /// Without a subnet of the family nothing can be said unless all subnets are known.
    fn inside(
        &self,
        span: &Span<A>,
        complete: bool,
        frame: impl Fn(&Net<A>) -> Span<A>,
    ) -> Result<(), Refused> {
        match self.net.as_ref().map(frame) {
            Some(frame) if !frame.covers(span) => refused(span, "is not inside the pool", frame),
            None if complete => refused(span, "has a family without a subnet", "none of it"),
            _ => Ok(()),
        }
    }

    /// The family's half of the pool. A block that cannot hand out anything is a fault: otherwise
    /// the first pod would find out.
    fn half(self, settings: &PoolSettings, faults: &mut Gather) -> Option<Half<A>> {
        let net = self.net?;
        let size = settings.block_size.map_or(net.usable.len(), u128::from);
        let skip = u128::from(settings.block).checked_mul(size)?;
        let block = net.usable.piece(skip, size)?;
        let gateway = self.gateway.map(|address| Span::new(address, address));
        let holes: Vec<_> = self.excluded.into_iter().chain(gateway).collect();
        let half = Half {
            prefix_len: net.prefix_len,
            subnet: net.whole,
            gateway: self.gateway,
            block,
            holes: joined(&holes, &block),
        };
        if half.total() == 0 {
            let index = settings.block;
            faults.add(
                "exclude",
                format!("every address of block {index} ({block}) is excluded or the gateway; one has to be left"),
            );
        }
        Some(half)
    }
}

fn net_v4(net: &Ipv4Net) -> Net<Ipv4Addr> {
    Net {
        prefix_len: net.prefix_len(),
        whole: Span::new(net.network(), net.broadcast()),
        usable: usable_v4(net),
    }
}

fn net_v6(net: &Ipv6Net) -> Net<Ipv6Addr> {
    Net {
        prefix_len: net.prefix_len(),
        whole: Span::new(net.network(), net.broadcast()),
        usable: usable_v6(net),
    }
}

/// First and last address of an exclusion, in the order given.
fn ends(text: &str) -> Result<(IpAddr, IpAddr), Refused> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, address));
    }
    if let Ok(net) = text.parse::<IpNet>() {
        if net.trunc() != net {
            return refused(net, "has host bits set", net.trunc());
        }
        return Ok((net.network(), net.broadcast()));
    }
    let range = text.split_once('-').and_then(|(first, last)| {
        let (first, last) = (first.trim(), last.trim());
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    let given: String = text.chars().take(80).collect();
    let allowed = "an address, a range first-last, or a CIDR";
    range.map_or_else(
        || refused(format!("{given:?}"), "cannot be read", allowed),
        Ok,
    )
}

/// Checks block size and index; how many blocks fit, if that can be said.
fn blocks(settings: &PoolSettings, found: &Found, faults: &mut Gather) -> Option<u128> {
    if settings.block_size == Some(0) {
        faults.add(
            "blockSize",
            "0 leaves a node without address; allowed: 1 or more",
        );
    }
    let usable = found.smallest()?;
    let size = settings.block_size.map_or(usable, u128::from);
    let fit = usable.checked_div(size)?;
    if fit == 0 {
        let text = format!("{size} is more than the pool has; allowed: 1 to {usable}");
        faults.add("blockSize", text);
        return None;
    }
    if u128::from(settings.block) >= fit {
        let nodes = if fit == 1 { "node fits" } else { "nodes fit" };
        let (block, last) = (settings.block, fit - 1);
        let text = format!(
            "{block} is too high: {fit} {nodes}, with {size} addresses each; allowed: 0 to {last}"
        );
        faults.add("block", text);
    }
    Some(fit)
}
