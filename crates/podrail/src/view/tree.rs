//! A node for the terminal: NUMA node, root, switch, GPUs and rails, and who holds them.

mod page;

use super::outline::{NumaGroup, Part, Port, Root, outline};
use super::table::table;
use super::text::{clean, or_dash, ranges, speed};
use super::words::{fault_words, link_word, numa_name};
use super::{Holder, held};
use page::{Line, Page, Tone};
use podrail_core::topology::{Excluded, Gpu, LinkState, Rail, Topology};

/// How a tree is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Write ANSI colours, one per holder.
    pub color: bool,
    /// Columns of the terminal: holders' names are cut to fit.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            color: false,
            width: 100,
        }
    }
}

/// The node as an indented tree, one line per device, in columns.
///
/// The ports that are no rails come after it with the reason, then one line per holder: its
/// devices, and how many of its rails are near its GPUs. Without holders nothing is said about who
/// holds what: the caller may not know.
#[must_use]
pub fn tree(topology: &Topology, holders: &[Holder], style: Style) -> String {
    let mut lines = Lines {
        holders,
        lines: Vec::new(),
    };
    for group in &outline(topology, &[]) {
        lines.numa(group);
    }
    let devices = match lines.lines.is_empty() {
        true => "No GPUs and no rails.\n".to_owned(),
        false => Page::new(holders, style).print(&lines.lines),
    };
    let parts = [
        devices,
        not_rails(&topology.excluded),
        summary(topology, holders),
    ];
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

struct Lines<'a> {
    holders: &'a [Holder],
    lines: Vec<Line>,
}

impl Lines<'_> {
    fn heading(&mut self, depth: usize, text: &str) {
        self.lines
            .push(Line::text(indent(depth, text), Tone::Heading));
    }

    fn numa(&mut self, group: &NumaGroup<'_>) {
        self.heading(0, &numa_name(group.numa, group.socket));
        for Root { id, parts } in &group.roots {
            self.heading(1, &format!("root {id}"));
            self.parts(2, parts);
        }
    }

    fn parts(&mut self, depth: usize, parts: &[Part<'_>]) {
        for part in parts {
            match part {
                Part::Gpu(at, gpu) => self.gpu(depth, *at, gpu),
                Part::Nic(id, ports) => {
                    self.heading(depth, &format!("NIC {id}"));
                    ports.iter().for_each(|port| self.port(depth + 1, port));
                }
                Part::Switch(bridge, parts) => {
                    self.heading(depth, &format!("switch {bridge}"));
                    self.parts(depth + 1, parts);
                }
            }
        }
    }

    fn gpu(&mut self, depth: usize, at: usize, gpu: &Gpu) {
        self.lines.push(Line {
            cells: vec![
                indent(depth, &format!("GPU {at}")),
                gpu.path.function.to_string(),
            ],
            across: Some(clean(gpu.model.as_deref().unwrap_or("-")).into_owned()),
            holders: Some(held::by_gpu(self.holders, at)),
            tone: Tone::Plain,
        });
    }

    fn port(&mut self, depth: usize, port: &Port<'_>) {
        let Port::Rail(rail) = port else { return };
        self.lines.push(Line {
            cells: rail_cells(depth, rail),
            across: None,
            holders: Some(held::by_rail(self.holders, rail.index)),
            tone: if rail.link == LinkState::Down {
                Tone::Alarm
            } else {
                Tone::Plain
            },
        });
        for fault in &rail.faults {
            let text = indent(depth + 1, &format!("! {}", fault_words(fault)));
            self.lines.push(Line::text(text, Tone::Alarm));
        }
    }
}

/// One cell for each of `page::COLUMNS`.
fn rail_cells(depth: usize, rail: &Rail) -> Vec<String> {
    vec![
        indent(depth, &format!("rail {}", rail.index)),
        rail.path.function.to_string(),
        or_dash(rail.netdev.as_ref()),
        or_dash(rail.rdma.as_ref()),
        speed(rail.speed_mbps),
        or_dash(rail.mtu.as_ref()),
        link_word(rail.link).to_owned(),
    ]
}

fn indent(depth: usize, text: &str) -> String {
    format!("{}{text}", "  ".repeat(depth))
}

fn not_rails(excluded: &[Excluded]) -> String {
    let row = |port: &Excluded| {
        vec![
            port.path.function.to_string(),
            or_dash(port.netdev.as_ref()),
            or_dash(port.rdma.as_ref()),
            port.reason.clone(),
        ]
    };
    match excluded {
        [] => String::new(),
        _ => table(
            &["NOT A RAIL", "NETDEV", "RDMA", "REASON"],
            &excluded.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}

fn summary(topology: &Topology, holders: &[Holder]) -> String {
    let row = |holder: &Holder| {
        vec![
            held::name(holder).into_owned(),
            ranges(holder.gpus.iter().copied()),
            ranges(holder.rails.iter().map(|rail| usize::from(rail.0))),
            held::Nearness::of(topology, holder).words(holder),
        ]
    };
    match holders {
        [] => String::new(),
        _ => table(
            &["HOLDER", "GPUS", "RAILS", "PLACEMENT"],
            &holders.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}
