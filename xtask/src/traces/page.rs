//! The page: what was simulated, the numbers, how to read them.

use super::scenes::SCENES;
use super::{Outcome, SEED};
use crate::allocators::{Allocator, Tally};
use anyhow::{Context, Result};

const INTRO: &str = "\
Which rails does a pod get, and are they next to its GPUs? The same pods under three allocators:

- **kubelet's choice**: rails from the SR-IOV network device plugin as it is installed, no Topology Manager. The
  kubelet takes GPUs and rails out of two unordered sets and does not look from one to the other.
- **`restricted`**: the same plugin, Topology Manager with policy `restricted` and scope `pod`. GPUs and rails must
  lie on the same, smallest possible set of NUMA nodes; a pod for which there is none is rejected
  (TopologyAffinityError). Here the kubelet chooses the GPUs too.
- **Podrail**: the rails are chosen at CNI ADD, when the GPUs are known, with all pods in mind that are admitted and
  still wait.

**Level L0**: models of the first two, written from the kubelet's rules; of Podrail the code itself. No kubelet, no
network, no GPU took part, and nothing here is a measured bandwidth.
";

const READING: &str = "\
## How to read it

- *Near*: rail and GPU are below one PCIe root complex, so that GPUDirect RDMA need not cross the CPU. A rail counts as
  near if **any** GPU of its pod is.
- *GPUs remote*: GPUs that have no near rail at all.
- *NICs shared*: a pod got one port of a NIC while another pod had the other one.
- *Ceiling*: what near rails could carry, in percent of all rails of the pods that ran, if each GPU of a pod sends an
  equal share. It is arithmetic on the PCIe tree. How much of the rest a job really loses depends on its library.
- A pod that `restricted` rejects is gone; its later departure changes nothing. In a cluster its controller would make
  another one, and the scheduler, which does not see NUMA nodes, may send it here again.
- The pods' GPUs are drawn at random. NVIDIA's device plugin prefers GPUs that are joined by NVLink; on machines where
  all of them are, that is no preference.
- On nodes with one PCIe root per NUMA node `restricted` aligns as well as Podrail, and pays with rejected pods. On
  nodes with several roots per NUMA node it does not know which NIC is a GPU's own.

What it can cost on real hardware was measured by others. A published test on two BM.GPU.B4.8 nodes (NCCL, 8 GiB, two
jobs with 4 GPUs and 8 rails on each node) gives 58.84 and 56.03 GB/s for rails by the kubelet's choice, where on one
node 3 of 8 rails of each job were near, and 96.36 and 96.29 GB/s for aligned rails under `restricted`.

## Repeat it

`cargo xtask traces` makes this page anew, byte for byte the same; `cargo xtask traces --check` compares. Models and
trace: `xtask/src/allocators`. `cargo test -p xtask` holds the models to cases with a known answer.
";

/// The whole page.
pub(super) fn page(outcomes: &[Outcome]) -> Result<String> {
    let small = outcomes.first().context("no node")?;
    let scenes = SCENES.map(|scene| scene.section(&small.topology, SEED));
    let tables: Vec<String> = outcomes.iter().map(Outcome::section).collect();
    Ok(format!(
        "# Allocators\n\nWritten by `cargo xtask traces`; do not edit.\n\n{INTRO}\n\
         ## 1,000 pods on each node\n\n{STORY}\n{}\n\
         ## A few jobs on {}\n\nRails and GPUs by number, in PCI order. The kubelet's choice is one \
         draw of many (seed {SEED}); its mean is below it.\n\n{}\n{READING}",
        tables.join("\n"),
        small.name,
        scenes.join("\n"),
    ))
}

const STORY: &str = "\
A pod wants 1, 2, 4 or 8 GPUs, each as likely, and for each of them as many rails as the node has per GPU. It takes any
GPUs that are free; when too few are, pods end, any of them, until there are enough. Pods that fit together arrive
together. A quarter of the pods want the whole node, and get all of its rails whoever chooses.
";

impl Outcome {
    fn section(&self) -> String {
        let header = [
            "allocator",
            "ran",
            "rejected",
            "rails near",
            "pods with all rails near",
            "GPUs remote",
            "NICs shared",
            "ceiling",
        ];
        let rows: Vec<_> = self
            .tallies
            .iter()
            .map(|(a, tally)| row(*a, tally))
            .collect();
        format!(
            "### {}\n\n{}: {} GPUs, {} rails; seed {}.\n\n{}",
            self.name,
            self.source,
            self.topology.gpus.len(),
            self.topology.rails.len(),
            self.seed,
            table(&header.map(String::from), &rows)
        )
    }
}

fn row(allocator: Allocator, tally: &Tally) -> [String; 8] {
    let sum = &tally.sum;
    [
        allocator.name().into(),
        tally.placed.to_string(),
        tally.rejected.to_string(),
        format!("{} of {}", sum.near, sum.rails),
        tally.all_near.to_string(),
        sum.remote_gpus.to_string(),
        sum.shared_nics.to_string(),
        percent(tally.sum.ceiling()),
    ]
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A Markdown table that is one on a terminal too; the first column is text, the others are numbers.
pub(super) fn table<const N: usize>(header: &[String; N], rows: &[[String; N]]) -> String {
    let all = || std::iter::once(header).chain(rows);
    let width = |column: usize| {
        let cells = all().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!(" {cell:<width$} |"),
            _ => format!(" {cell:>width$} |"),
        });
        format!("|{}\n", cells.collect::<String>())
    };
    let rule = widths.iter().enumerate().map(|(column, width)| {
        let end = if column == 0 { "-" } else { ":" };
        format!("{}{end}|", "-".repeat(width + 1))
    });
    let body: String = rows.iter().map(line).collect();
    format!("{}|{}\n{body}", line(header), rule.collect::<String>())
}
