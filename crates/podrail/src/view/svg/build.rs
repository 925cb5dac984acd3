//! From a node to boxes.

use super::block::{Block, Frame, Kind, row_width};
use super::cells;
use crate::view::Holder;
use crate::view::outline::{NumaGroup, Part, Port, Root, outline};
use crate::view::words::numa_name;
use podrail_core::topology::{Excluded, Topology};

/// Roots side by side.
const ROOTS: usize = 4;
/// GPUs, NICs or switches side by side in one box.
const SIDE_BY_SIDE: usize = 2;
/// Excluded ports side by side that have no place below a root of GPUs or rails.
const OTHERS: usize = 4;

/// The boxes of a node: NUMA nodes side by side up to four roots, then the ports elsewhere.
pub(super) fn rows(topology: &Topology, holders: &[Holder]) -> Vec<Vec<Block>> {
    let (here, elsewhere) = placed(topology);
    let builder = Builder { topology, holders };
    let groups = outline(topology, &here);
    let root_width = groups.iter().flat_map(|group| &group.roots);
    let root_width = root_width
        .map(|root| builder.root(root, 0).width())
        .max()
        .unwrap_or(0);
    let mut rows: Vec<Vec<Block>> = Vec::new();
    let mut free = 0;
    for group in &groups {
        let columns = group.roots.len().min(ROOTS);
        let block = builder.numa(group, root_width);
        match rows.last_mut() {
            Some(row) if columns <= free => row.push(block),
            _ => {
                free = ROOTS;
                rows.push(vec![block]);
            }
        }
        free -= columns;
    }
    let widest = rows.iter().map(|row| row_width(row)).max().unwrap_or(0);
    rows.extend(builder.elsewhere(&elsewhere, widest));
    rows
}

/// Excluded ports below a root that has GPUs or rails, and those elsewhere.
fn placed(topology: &Topology) -> (Vec<&Excluded>, Vec<&Excluded>) {
    let gpus = topology.gpus.iter().map(|gpu| &gpu.path);
    let rails = topology.rails.iter().map(|rail| &rail.path);
    let roots: Vec<_> = gpus
        .chain(rails)
        .map(|path| (path.root, path.numa))
        .collect();
    topology
        .excluded
        .iter()
        .partition(|port| roots.contains(&(port.path.root, port.path.numa)))
}

struct Builder<'a> {
    topology: &'a Topology,
    holders: &'a [Holder],
}

impl Builder<'_> {
    fn numa(&self, group: &NumaGroup<'_>, root_width: u32) -> Block {
        let roots = group
            .roots
            .iter()
            .map(|root| self.root(root, root_width))
            .collect();
        frame(
            Kind::Numa,
            numa_name(group.numa, group.socket),
            in_rows(roots, ROOTS),
        )
    }

    fn root(&self, root: &Root<'_>, least: u32) -> Block {
        let Root { id, parts } = root;
        Block::Frame(Frame {
            kind: Kind::Root,
            head: format!("root {id}"),
            rows: self.parts(parts),
            least,
        })
    }

    /// GPUs, then NICs, then switches, each kind in rows of its own.
    fn parts(&self, parts: &[Part<'_>]) -> Vec<Vec<Block>> {
        let kinds = parts.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b));
        kinds
            .flat_map(|kind| {
                in_rows(
                    kind.iter().map(|part| self.part(part)).collect(),
                    SIDE_BY_SIDE,
                )
            })
            .collect()
    }

    fn part(&self, part: &Part<'_>) -> Block {
        match part {
            Part::Gpu(at, gpu) => Block::Cell(cells::gpu(*at, gpu, self.holders)),
            Part::Nic(id, ports) => {
                let rows = ports.iter().map(|port| vec![self.port(port)]).collect();
                frame(Kind::Nic, format!("NIC {id}"), rows)
            }
            Part::Switch(bridge, parts) => {
                frame(Kind::Switch, format!("switch {bridge}"), self.parts(parts))
            }
        }
    }

    fn port(&self, port: &Port<'_>) -> Block {
        Block::Cell(match port {
            Port::Rail(rail) => cells::rail(rail, self.holders),
            Port::Excluded(port) => cells::excluded(port, self.place_of(port)),
        })
    }

    /// Ports that hang below no root that is drawn.
    fn elsewhere(&self, ports: &[&Excluded], least: u32) -> Option<Vec<Block>> {
        let cell = |port: &&Excluded| Block::Cell(cells::elsewhere(port, self.place_of(port)));
        let rows = in_rows(ports.iter().map(cell).collect(), OTHERS);
        let (kind, head) = (Kind::Other, "no rails, below other roots".to_owned());
        let frame = Frame {
            kind,
            head,
            rows,
            least,
        };
        (!ports.is_empty()).then(|| vec![Block::Frame(frame)])
    }

    fn place_of(&self, port: &Excluded) -> usize {
        let all = &self.topology.excluded;
        all.iter()
            .position(|other| std::ptr::eq(other, port))
            .unwrap_or(all.len())
    }
}

fn frame(kind: Kind, head: String, rows: Vec<Vec<Block>>) -> Block {
    Block::Frame(Frame {
        kind,
        head,
        rows,
        least: 0,
    })
}

fn in_rows(blocks: Vec<Block>, columns: usize) -> Vec<Vec<Block>> {
    let mut rows: Vec<Vec<Block>> = Vec::new();
    for block in blocks {
        match rows.last_mut() {
            Some(row) if row.len() < columns => row.push(block),
            _ => rows.push(vec![block]),
        }
    }
    rows
}
