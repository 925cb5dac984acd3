//! `cargo xtask traces`: the three allocators under the same pods; writes `docs/allocators.md`.
//!
//! The page is a function of the seed and of the topologies, so it can be checked like any other
//! generated file. It is not written at all if what it claims of Podrail does not hold.

mod page;
mod scenes;

use crate::allocators::{self, Allocator, Tally};
use crate::generate::{self, File};
use anyhow::{Context, Result, ensure};
use clap::Args;
use podrail_core::topology::Topology;
use podrail_lab::{Shape, testing};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Pods on each node.
const PODS: usize = 1_000;

/// Of the first node's trace and of the chances of the allocators; each further node has the next.
const SEED: u64 = 3;

/// NCCL's dumps of real machines, read by the program itself.
const DUMPS: [&str; 3] = ["BM.GPU4.8", "BM.GPU.A100-v2.8", "BM.GPU.H100.8"];

/// Options of `traces`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Change nothing; fail if the page is not what it would be.
    #[arg(long)]
    check: bool,
}

/// A node and what each allocator made of its pods.
struct Outcome {
    name: String,
    source: &'static str,
    topology: Topology,
    seed: u64,
    tallies: Vec<(Allocator, Tally)>,
}

/// Writes the page, or checks it.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    generate::keep(&[file()?], options.check)
}

/// The page, made anew.
pub(crate) fn file() -> Result<File> {
    let outcomes: Vec<Outcome> = (SEED..).zip(nodes()?).map(outcome).collect();
    for outcome in &outcomes {
        claim(outcome)?;
    }
    Ok(File {
        path: "docs/allocators.md",
        text: page::page(&outcomes)?,
    })
}

/// What the page says of Podrail, in one sentence of numbers.
fn claim(outcome: &Outcome) -> Result<()> {
    let podrail = outcome
        .tallies
        .iter()
        .filter(|(a, _)| *a == Allocator::Podrail);
    for (_, tally) in podrail {
        ensure!(
            tally.rejected == 0 && tally.all_near == tally.placed,
            "{}: Podrail rejected {} pods, and left {} of {} with a rail that is not near",
            outcome.name,
            tally.rejected,
            tally.placed - tally.all_near,
            tally.placed
        );
    }
    Ok(())
}

type Named = (String, &'static str, Topology);

fn nodes() -> Result<Vec<Named>> {
    let mut nodes = vec![];
    for name in podrail_lab::SHAPES {
        nodes.push((name.to_owned(), "A shape of the lab", of_shape(name)?));
    }
    for name in DUMPS {
        let topology = of_dump(name).with_context(|| format!("read the dump of {name}"))?;
        nodes.push((name.to_owned(), "NCCL's dump of a real machine", topology));
    }
    Ok(nodes)
}

fn of_shape(name: &str) -> Result<Topology> {
    let shape = Shape::named(name).map_err(|error| anyhow::anyhow!(error.report()))?;
    allocators::topology(&shape)
}

fn of_dump(name: &str) -> Result<Topology> {
    let program = testing::cargo_binary("podrail", "podrail")
        .map_err(|error| anyhow::anyhow!(error.report()))?;
    let output = Command::new(program)
        .args(["topo", "--output", "json", "--from"])
        .arg(dump(name))
        // Nothing of the machine that this runs on.
        .args(["--config", "/dev/null", "--state", "/dev/null/none"])
        .output()
        .context("run podrail topo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "podrail topo failed: {said}");
    let mut document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let topology = document.get_mut("topology").context("no topology in it")?;
    Ok(serde_json::from_value(topology.take())?)
}

fn dump(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/nccl-topo");
    fixtures.join(format!("{name}.xml"))
}

fn outcome((seed, (name, source, topology)): (u64, Named)) -> Outcome {
    let events = allocators::trace(&topology, PODS, seed);
    let tally = |allocator| allocators::replay(&topology, &events, allocator, seed);
    let tallies = Allocator::ALL.map(|allocator| (allocator, tally(allocator)));
    Outcome {
        name,
        source,
        seed,
        tallies: tallies.to_vec(),
        topology,
    }
}

#[cfg(test)]
mod tests;
