//! Addresses for rails: a pool that is checked once, and round robin over this node's block of it.
//!
//! Blocks lie as NVIDIA's IPAM lays them: one after the other from the first usable address, so
//! that block 0 of `10.239.255.0/24` in blocks of 32 is `.1` to `.32`, and 7 blocks fit. Network
//! and broadcast addresses, the subnet-router anycast address (IPv6), gateways and exclusions are
//! never handed out. Deliberately absent: who holds what, until when, and what was freed in which
//! order. The store knows that.

mod allocate;
mod check;
mod name;
mod span;

pub use allocate::{Addresses, Allocation, Cursors, Exhausted, History, allocate};
pub use name::PoolName;

use crate::config::{Faults, PoolSettings};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use span::{Bits, Span};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A checked pool, seen from one node: every address that it can hand out belongs to the node's
/// own block, and there is at least one in each of its families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    name: PoolName,
    block: u32,
    fit: u128,
    v4: Option<Half<Ipv4Addr>>,
    v6: Option<Half<Ipv6Addr>>,
}

/// One family of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Half<A> {
    prefix_len: u8,
    subnet: Span<A>,
    gateway: Option<A>,
    /// This node's block, holes included.
    block: Span<A>,
    /// What of the block is not handed out: sorted, apart from each other, inside the block.
    holes: Vec<Span<A>>,
}

impl Pool {
    /// Checks the settings of a pool. `at` is where they stand (`pool`, `spec`), and opens the
    /// field path of each fault. Without a block size the node's block is the whole subnet.
    ///
    /// # Errors
    /// All faults, each with its field path (`pool.exclude[2]`) and what is allowed there. The
    /// caller keeps the pool that it has.
    pub fn new(at: &str, settings: &PoolSettings) -> Result<Self, Faults> {
        check::pool(at, settings)
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &PoolName {
        &self.name
    }

    /// Index of this node's block.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.block
    }

    /// How many whole blocks the subnets have: as many nodes fit. With two families, the smaller
    /// one decides.
    #[must_use]
    pub fn blocks_that_fit(&self) -> u128 {
        self.fit
    }

    /// Families of the pool, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let v4 = self.v4.as_ref().map(|_| Family::V4);
        v4.into_iter().chain(self.v6.as_ref().map(|_| Family::V6))
    }

    /// Subnet of a family; its prefix length is what attachments get.
    #[must_use]
    pub fn subnet(&self, family: Family) -> Option<IpNet> {
        let net = |first: IpAddr, len| IpNet::new(first, len).ok();
        match family {
            Family::V4 => self.v4.as_ref().and_then(|half| half.network(net)),
            Family::V6 => self.v6.as_ref().and_then(|half| half.network(net)),
        }
    }

    /// Gateway of a family.
    #[must_use]
    pub fn gateway(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.as_ref()?.gateway.map(IpAddr::V4),
            Family::V6 => self.v6.as_ref()?.gateway.map(IpAddr::V6),
        }
    }

    /// First and last address of this node's block, holes included.
    #[must_use]
    pub fn block_range(&self, family: Family) -> Option<(IpAddr, IpAddr)> {
        match family {
            Family::V4 => self.v4.as_ref().map(|half| half.block.ends()),
            Family::V6 => self.v6.as_ref().map(|half| half.block.ends()),
        }
    }

    /// Whether this node may hand out the address.
    #[must_use]
    pub fn hands_out(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.as_ref().is_some_and(|half| half.hands_out(address)),
            IpAddr::V6(address) => self.v6.as_ref().is_some_and(|half| half.hands_out(address)),
        }
    }

    /// Of the addresses that are leased from this pool, those that it no longer hands out: an edit
    /// that leaves any would cut live pods, and is to be refused with their count.
    #[must_use]
    pub fn cut_off(&self, leased: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let outside = leased.iter().filter(|address| !self.hands_out(**address));
        outside.copied().collect()
    }
}

impl<A: Bits> Half<A> {
    fn network(&self, net: impl Fn(IpAddr, u8) -> Option<IpNet>) -> Option<IpNet> {
        net(self.subnet.first.into(), self.prefix_len)
    }

    fn hands_out(&self, address: A) -> bool {
        self.block.contains(address) && self.hole_at(address).is_none()
    }

    /// The hole that the address lies in.
    fn hole_at(&self, address: A) -> Option<&Span<A>> {
        let place = self.holes.partition_point(|hole| hole.last < address);
        self.holes.get(place).filter(|hole| hole.first <= address)
    }

    /// How many addresses the block can hand out: never more than a block is large.
    fn total(&self) -> u128 {
        let holes: u128 = self.holes.iter().map(Span::len).sum();
        self.block.len().saturating_sub(holes)
    }
}

/// What a subnet can hand out at most: without network and broadcast address, except where there
/// are none (RFC 3021, and a single address).
fn usable_v4(net: &Ipv4Net) -> Span<Ipv4Addr> {
    let whole = Span::new(net.network(), net.broadcast());
    if net.prefix_len() >= 31 {
        return whole;
    }
    let first = whole.first.plus(1).unwrap_or(whole.last);
    Span::new(first, Ipv4Addr::from_bits(whole.last.to_bits() - 1))
}

/// What a subnet can hand out at most: without the subnet-router anycast address, except where
/// there is none (RFC 6164, and a single address).
fn usable_v6(net: &Ipv6Net) -> Span<Ipv6Addr> {
    let whole = Span::new(net.network(), net.broadcast());
    if net.prefix_len() >= 127 {
        return whole;
    }
    Span::new(whole.first.plus(1).unwrap_or(whole.last), whole.last)
}

#[cfg(test)]
mod tests;
