//! Samples of the guest's clock, and the few statistics that the page shows.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Microseconds of one command, by round.
type Times = BTreeMap<u32, u64>;

/// All samples of a run, by command and number of rails.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<(String, u32), Times>);

/// Median and quartiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

/// Two commands side by side; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pair {
    pub(super) a: Spread,
    pub(super) b: Spread,
    /// Of A/B within each round: a machine that slows down half-way slows both sides.
    pub(super) ratio: Spread,
}

impl Samples {
    /// Reads the lines of the guest's script. Round 0 is a warm-up and left out.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut samples = Self::default();
        for line in text.lines() {
            samples
                .add(line)
                .with_context(|| format!("read {line:?}"))?;
        }
        Ok(samples)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["sample", command, rails, round, micros] = words.as_slice() else {
            bail!("expected: sample COMMAND RAILS ROUND MICROSECONDS");
        };
        let (rails, round) = (rails.parse()?, round.parse()?);
        let micros: u64 = micros.parse()?;
        if round == 0 {
            return Ok(());
        }
        let times = self.0.entry(((*command).to_owned(), rails)).or_default();
        if times.insert(round, micros).is_some() {
            bail!("a second sample of the same round");
        }
        Ok(())
    }

    /// Command `a` beside command `b`; an error if one was not measured in every round.
    pub(super) fn pair(&self, a: &str, b: &str, rails: u32) -> Result<Pair> {
        let (a, b) = (self.times(a, rails)?, self.times(b, rails)?);
        if !a.keys().eq(b.keys()) {
            bail!("{rails} rails: not the same rounds on both sides");
        }
        let ratios = a.values().zip(b.values());
        let ratio = Spread::of(ratios.map(|(a, b)| millis(*a) / millis(*b)).collect());
        let all = spread(a).zip(spread(b)).zip(ratio);
        let ((a, b), ratio) = all.context("no round was measured")?;
        Ok(Pair { a, b, ratio })
    }

    fn times(&self, command: &str, rails: u32) -> Result<&Times> {
        let key = (command.to_owned(), rails);
        self.0
            .get(&key)
            .with_context(|| format!("no sample of {command} with {rails} rails"))
    }
}

fn spread(times: &Times) -> Option<Spread> {
    Spread::of(times.values().copied().map(millis).collect())
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

impl Spread {
    /// Of at least one value, none of which is NaN.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self {
            low: quantile(&values, 1)?,
            median: quantile(&values, 2)?,
            high: quantile(&values, 3)?,
        })
    }
}

/// The value at so many quarters of the sorted list, between two neighbours in proportion.
fn quantile(sorted: &[f64], quarters: usize) -> Option<f64> {
    let place = sorted.len().checked_sub(1)? * quarters;
    let below = sorted.get(place / 4)?;
    let above = sorted.get(place / 4 + 1).unwrap_or(below);
    let share = [0.0, 0.25, 0.5, 0.75].get(place % 4)?;
    Some(below + (above - below) * share)
}

#[cfg(test)]
mod tests;
