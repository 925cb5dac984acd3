//! What a plan costs, as one value that is compared the most important thing first.

use std::ops::{Add, Mul, Sub};

/// A lexicographic cost: the order of the fields is the order of importance.
///
/// Such vectors are an ordered group, so sums of lower bounds are lower bounds, and shortest
/// paths and prices work as with plain numbers. All but `split`, `broken` and `order` are counted in
/// small parts of a rail (see [`super::problem::Problem::unit`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Rails that other pods ask for and cannot get.
    pub(super) unmet: i64,
    /// Ranks of the levels between the GPUs and their rails.
    pub(super) distance: i64,
    /// Other sandboxes on the chosen rails.
    pub(super) load: i64,
    /// NICs of which a pod holds only some ports.
    pub(super) split: i64,
    /// Those among them that were wholly free.
    pub(super) broken: i64,
    /// Bridges between the GPUs and their rails.
    pub(super) hops: i64,
    /// Distance of the free GPUs to what is left for them.
    pub(super) harm: i64,
    /// Minus the weights of the caller's own rails: low indexes weigh more than all higher ones.
    pub(super) order: i128,
}

impl Cost {
    /// So many units that others do without.
    pub(super) fn missing(units: i64) -> Self {
        Self {
            unmet: units,
            ..Self::default()
        }
    }

    /// The part that prices know.
    pub(super) fn priceable(self) -> Self {
        Self {
            split: 0,
            broken: 0,
            order: 0,
            ..self
        }
    }
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            unmet: self.unmet + other.unmet,
            distance: self.distance + other.distance,
            load: self.load + other.load,
            split: self.split + other.split,
            broken: self.broken + other.broken,
            hops: self.hops + other.hops,
            harm: self.harm + other.harm,
            order: self.order + other.order,
        }
    }
}

impl Sub for Cost {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + other * -1
    }
}

impl Mul<i64> for Cost {
    type Output = Self;
    fn mul(self, factor: i64) -> Self {
        Self {
            unmet: self.unmet * factor,
            distance: self.distance * factor,
            load: self.load * factor,
            split: self.split * factor,
            broken: self.broken * factor,
            hops: self.hops * factor,
            harm: self.harm * factor,
            order: self.order * i128::from(factor),
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}
