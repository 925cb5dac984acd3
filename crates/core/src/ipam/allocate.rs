//! Strict round robin over a node's block: what was never issued comes first, then what was freed,
//! the oldest release first.

use super::span::{Bits, Span};
use super::{Family, Half, Pool, PoolName};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address that was issued last of those that counted as never issued, by family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursors {
    /// The IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

/// What became of the addresses so far.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// Leased now, of all pools.
    pub used: &'a BTreeSet<IpAddr>,
    /// Free again, of all pools, each once: the oldest release first. What is neither here nor in
    /// use counts as never issued.
    pub freed: &'a [IpAddr],
    /// Where the pool's first round stands.
    pub cursors: Cursors,
}

/// Addresses of one rail: one in each family of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 address, if the pool has such a subnet.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address, if the pool has such a subnet.
    pub v6: Option<Ipv6Addr>,
}

impl Addresses {
    /// The addresses, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v4 = self.v4.map(IpAddr::V4);
        v4.into_iter().chain(self.v6.map(IpAddr::V6))
    }
}

/// What `allocate` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// One entry for each rail that was asked for.
    pub slots: Vec<Addresses>,
    /// What to pass in next time.
    pub cursors: Cursors,
}

/// A node's block has too few free addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "pool {pool}, block {block} of this node: {asked} {family} addresses asked for, {used} of {total} are in use"
)]
pub struct Exhausted {
    /// Name of the pool.
    pub pool: PoolName,
    /// Index of this node's block.
    pub block: u32,
    /// The family that ran out.
    pub family: Family,
    /// How many were asked for.
    pub asked: usize,
    /// How many are in use, of those that the block can hand out.
    pub used: usize,
    /// How many the block can hand out in all.
    pub total: u128,
}

impl Exhausted {
    /// The next step.
    #[must_use]
    pub fn hint(&self) -> String {
        let Self { pool, asked, .. } = self;
        format!(
            "wait for pods with rails to end on this node, ask for fewer rails than {asked}, or give pool {pool} a larger block size"
        )
    }
}

/// Finds `n` free addresses in each family of the pool. First those that count as never issued: in
/// order after the cursor, and from the start of the block again after its end. Then those that
/// were freed, the oldest release first. A cursor outside the block counts as none.
///
/// # Guarantees
/// All `n` or nothing. No address that is in use, excluded, a gateway or outside the block.
/// A freed address is not issued again until all other addresses of the block were issued that were
/// free at its release. Where releases were forgotten (the oldest first), one that is remembered
/// waits for all that are not.
/// Costs time by what is used, freed, excluded and asked for, not by the size of the block.
///
/// # Errors
/// Too few are free.
pub fn allocate(pool: &Pool, history: History<'_>, n: usize) -> Result<Allocation, Exhausted> {
    let before = history.cursors;
    let (v4, v4_cursor) = pool.pick(pool.v4.as_ref(), history, before.v4, n)?;
    let (v6, v6_cursor) = pool.pick(pool.v6.as_ref(), history, before.v6, n)?;
    let slots = (0..n).map(|slot| Addresses {
        v4: v4.get(slot).copied(),
        v6: v6.get(slot).copied(),
    });
    Ok(Allocation {
        slots: slots.collect(),
        cursors: Cursors {
            v4: v4_cursor,
            v6: v6_cursor,
        },
    })
}

impl Pool {
    /// `n` addresses of one family, none if the pool does not have the family; and the next cursor.
    fn pick<A: Bits>(
        &self,
        half: Option<&Half<A>>,
        history: History<'_>,
        cursor: Option<A>,
        n: usize,
    ) -> Result<(Vec<A>, Option<A>), Exhausted> {
        let Some(half) = half else {
            return Ok((Vec::new(), cursor));
        };
        let freed = history.freed.iter().filter_map(|freed| A::of(*freed));
        let mut waiting: BTreeSet<A> = freed.clone().filter(|a| half.hands_out(*a)).collect();
        waiting.retain(|address| !history.used.contains(&(*address).into()));

        let (ahead, behind) = half.around(cursor);
        let free = [ahead, behind].into_iter().flatten();
        let free = free.flat_map(|span| half.free(history.used, span));
        let fresh = free.filter(|address| !waiting.contains(address));
        let mut found: Vec<A> = fresh.take(n).collect();
        let cursor = found.last().copied().or(cursor);

        let missing = n.saturating_sub(found.len());
        found.extend(freed.filter(|a| waiting.remove(a)).take(missing));
        if found.len() == n {
            return Ok((found, cursor));
        }
        Err(Exhausted {
            pool: self.name.clone(),
            block: self.block,
            family: A::FAMILY,
            asked: n,
            used: half.used(history.used),
            total: half.total(),
        })
    }
}

impl<A: Bits> Half<A> {
    /// The block in two parts: after the cursor, and up to it.
    fn around(&self, cursor: Option<A>) -> (Option<Span<A>>, Option<Span<A>>) {
        let Some(cursor) = cursor.filter(|cursor| self.block.contains(*cursor)) else {
            return (Some(self.block), None);
        };
        let next = cursor.plus(1).filter(|next| self.block.contains(*next));
        let ahead = next.map(|next| Span::new(next, self.block.last));
        (ahead, Some(Span::new(self.block.first, cursor)))
    }

    fn free<'a>(&'a self, used: &'a BTreeSet<IpAddr>, span: Span<A>) -> Free<'a, A> {
        let next = Some(span.first);
        let last = span.last;
        Free {
            half: self,
            used,
            next,
            last,
        }
    }

    fn used(&self, used: &BTreeSet<IpAddr>) -> usize {
        let (first, last) = self.block.ends();
        let mut total = 0;
        for hole in &self.holes {
            let (first, last) = hole.ends();
            total += used.range(first..=last).count();
        }
        used.range(first..=last).count().saturating_sub(total)
    }
}

/// Free addresses of a span, in order; holes are passed in one step.
struct Free<'a, A> {
    half: &'a Half<A>,
    used: &'a BTreeSet<IpAddr>,
    next: Option<A>,
    last: A,
}

impl<A: Bits> Iterator for Free<'_, A> {
    type Item = A;

    fn next(&mut self) -> Option<A> {
        loop {
            let address = self.next.filter(|next| *next <= self.last)?;
            let hole = self.half.hole_at(address);
            self.next = hole.map_or(address, |hole| hole.last).plus(1);
            if hole.is_none() && !self.used.contains(&address.into()) {
                return Some(address);
            }
        }
    }
}
