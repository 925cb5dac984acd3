//! A small generator of its own (xorshift64*): a trace must be the same on every machine and with
//! every version of any crate.

/// A source of numbers that a seed determines.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Every seed gives its own sequence.
    pub(crate) fn new(seed: u64) -> Self {
        // The state 0 would stay 0; the odd constant spreads small seeds.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// A number below `limit`, which is small; 0 if `limit` is.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % limit).unwrap_or_default()
    }

    /// That many of the items, any of them, as one takes them out of an unordered set; all if there
    /// are fewer.
    pub(crate) fn draw<T: Copy>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut left = items.to_vec();
        let draws = 0..count.min(left.len());
        draws
            .map(|_| left.swap_remove(self.below(left.len())))
            .collect()
    }
}
