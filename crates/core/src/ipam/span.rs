//! Arithmetic on addresses without enumerating them and without overflow.

use super::Family;
use std::fmt::{self, Debug, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address seen as a number.
pub(super) trait Bits: Copy + Ord + Debug + Into<IpAddr> {
    /// The family that these addresses are of.
    const FAMILY: Family;

    /// The address, if it is of this family.
    fn of(address: IpAddr) -> Option<Self>;

    /// The address `count` further on, if there is one.
    fn plus(self, count: u128) -> Option<Self>;

    /// How far this address is above `low`; 0 if it is below.
    fn above(self, low: Self) -> u128;
}

impl Bits for Ipv4Addr {
    const FAMILY: Family = Family::V4;

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }

    fn plus(self, count: u128) -> Option<Self> {
        let count = u32::try_from(count).ok()?;
        self.to_bits().checked_add(count).map(Self::from_bits)
    }

    fn above(self, low: Self) -> u128 {
        u128::from(self.to_bits().saturating_sub(low.to_bits()))
    }
}

impl Bits for Ipv6Addr {
    const FAMILY: Family = Family::V6;

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address),
        }
    }

    fn plus(self, count: u128) -> Option<Self> {
        self.to_bits().checked_add(count).map(Self::from_bits)
    }

    fn above(self, low: Self) -> u128 {
        self.to_bits().saturating_sub(low.to_bits())
    }
}

/// Addresses from `first` to `last`, both included; `first` is never above `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span<A> {
    pub(super) first: A,
    pub(super) last: A,
}

impl<A: Bits> Span<A> {
    /// The addresses between two ends, in whichever order they come.
    pub(super) fn new(one: A, other: A) -> Self {
        Self {
            first: one.min(other),
            last: one.max(other),
        }
    }

    /// Number of addresses; the whole IPv6 space counts one too few.
    pub(super) fn len(&self) -> u128 {
        self.last.above(self.first).saturating_add(1)
    }

    pub(super) fn contains(&self, address: A) -> bool {
        self.first <= address && address <= self.last
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.contains(other.first) && self.contains(other.last)
    }

    pub(super) fn overlap(&self, other: &Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// `size` addresses, `skip` further on; none if they do not all fit.
    pub(super) fn piece(&self, skip: u128, size: u128) -> Option<Self> {
        let first = self.first.plus(skip)?;
        let last = first.plus(size.checked_sub(1)?)?;
        (last <= self.last).then_some(Self { first, last })
    }

    pub(super) fn ends(&self) -> (IpAddr, IpAddr) {
        (self.first.into(), self.last.into())
    }
}

impl<A: Bits> Display for Span<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.ends();
        if first == last {
            return write!(f, "{first}");
        }
        write!(f, "{first}-{last}")
    }
}

/// The spans sorted, those that touch or overlap joined, all cut to `frame`.
pub(super) fn joined<A: Bits>(spans: &[Span<A>], frame: &Span<A>) -> Vec<Span<A>> {
    let mut cut: Vec<_> = spans
        .iter()
        .filter_map(|span| span.overlap(frame))
        .collect();
    cut.sort_unstable();
    let mut apart: Vec<Span<A>> = Vec::with_capacity(cut.len());
    for span in cut {
        match apart.last_mut() {
            Some(before) if touches(before, &span) => before.last = before.last.max(span.last),
            _ => apart.push(span),
        }
    }
    apart
}

fn touches<A: Bits>(before: &Span<A>, after: &Span<A>) -> bool {
    before.last.plus(1).is_none_or(|next| after.first <= next)
}
