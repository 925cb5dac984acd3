//! The page of results: where, how, the numbers, how to read them. No judgement: the reader has the
//! numbers.

use super::machine::Machine;
use super::samples::{Pair, Samples, Spread};
use anyhow::Result;

/// Two commands that are put side by side.
pub(super) struct Comparison {
    title: &'static str,
    /// Command and its name in the samples.
    a: (&'static str, &'static str),
    b: (&'static str, &'static str),
    /// Without rails: once, not by the number of rails.
    by_rails: bool,
}

/// What the page shows, in its order. The reference CNI plugins would be one entry more.
pub(super) const COMPARISONS: [Comparison; 4] = [
    Comparison {
        title: "Detach, whole command",
        a: ("`podrail detach`", "detach-podrail"),
        b: (
            "`ip -n POD -batch`, one `link del` per child",
            "detach-singles",
        ),
        by_rails: true,
    },
    Comparison {
        title: "Detach, the kernel's part",
        a: ("`ip -n POD link del group N`", "detach-group"),
        b: (
            "`ip -n POD -batch`, one `link del` per child",
            "detach-singles",
        ),
        by_rails: true,
    },
    Comparison {
        title: "Attach, whole command",
        a: ("`podrail attach`", "attach-podrail"),
        b: (
            "`ip -batch`, a shell, `ip -batch`: the same, already decided",
            "attach-ip",
        ),
        by_rails: true,
    },
    Comparison {
        title: "Starting a program that does nothing",
        a: ("`podrail --version`", "start-podrail"),
        b: ("`ip -n POD -batch` of an empty file", "start-ip"),
        by_rails: false,
    },
];

const READING: &str = "\
## How to read it

- **Level L2.** The kernel is real, the machine is emulated: milliseconds here are not milliseconds of a real node. Only
  the ratios mean something, and only between two commands of the same run. An emulator also changes ratios: it makes
  instructions slower, but not the kernel's waits (RCU grace periods) by the same factor.
- Times are the guest's clock around one command, start and end of its process included; the last table shows what
  these alone cost. Each is the median of all rounds, with the quartiles in brackets. A/B is the median of the ratios
  within each round, and their quartiles. Below 1, A is quicker.
- Both sides run on the same node, in turn; every second round runs in reverse order. One round before the first is
  not counted. After each command there is a pause of 0.1 s, and the children in the pod are counted.
- Before the first round both ways to attach are compared: links, addresses, rules, routes and sysctls of the pod are
  the same, by `ip -j` and `/proc/sys`.
- The sides do not do the same work. `podrail attach` also reads the node, chooses rails, leases addresses and keeps
  all of it; its floor (B) is told every name and number. `podrail detach` also removes the rules and frees the leases;
  B leaves the rules, and they are removed off the clock.
- The node's file system is in memory: syncing the state file to a disk is in no number here.
- Not measured: real hardware, a kubelet, other CNI plugins.
";

/// The whole page.
pub(super) fn page(machine: &Machine, samples: &Samples, sizes: &[u32]) -> Result<String> {
    let tables = tables(samples, sizes)?;
    Ok(format!(
        "# Benchmarks\n\nWritten by `make bench`; do not edit.\n\n{}\n{tables}\n{READING}",
        machine.list()
    ))
}

/// All tables, for the page and for the terminal.
pub(super) fn tables(samples: &Samples, sizes: &[u32]) -> Result<String> {
    let tables = COMPARISONS
        .iter()
        .map(|comparison| comparison.table(samples, sizes));
    Ok(tables.collect::<Result<Vec<_>>>()?.join("\n"))
}

impl Comparison {
    fn table(&self, samples: &Samples, sizes: &[u32]) -> Result<String> {
        let sizes = if self.by_rails { sizes } else { &[0] };
        let rows = sizes.iter().map(|rails| {
            let pair = samples.pair(self.a.1, self.b.1, *rails)?;
            Ok(row(*rails, &pair))
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        Ok(format!(
            "## {}\n\nA: {}  \nB: {}\n\n{}",
            self.title,
            self.a.0,
            self.b.0,
            aligned(&rows)
        ))
    }
}

fn row(rails: u32, pair: &Pair) -> [String; 4] {
    let rails = if rails == 0 {
        "-".into()
    } else {
        rails.to_string()
    };
    [rails, millis(&pair.a), millis(&pair.b), ratio(pair)]
}

fn millis(spread: &Spread) -> String {
    let Spread { low, median, high } = spread;
    format!("{median:.1} ({low:.1}-{high:.1})")
}

fn ratio(pair: &Pair) -> String {
    let Spread { low, median, high } = pair.ratio;
    format!("{median:.2} ({low:.2}-{high:.2})")
}

/// A Markdown table that is one on a terminal too.
fn aligned(rows: &[[String; 4]]) -> String {
    let header = ["rails", "A, ms", "B, ms", "A/B"].map(String::from);
    let all = || std::iter::once(&header).chain(rows);
    let width = |column: usize| {
        let cells = all().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(widths);
        let cells: String = cells
            .map(|(cell, width)| format!(" {cell:>width$} |"))
            .collect();
        format!("|{cells}\n")
    };
    let rule: String = widths
        .iter()
        .map(|width| format!("{}:|", "-".repeat(width + 1)))
        .collect();
    let body: String = rows.iter().map(line).collect();
    format!("{}|{rule}\n{body}", line(&header))
}

#[cfg(test)]
mod tests;
