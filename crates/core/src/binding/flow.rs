//! Minimum-cost flow with exact costs of any ordered group, and the prices that prove it minimal.
//!
//! Own code: the libraries at hand (`pathfinding` 4.16 among them) give an assignment or a maximum
//! flow, but neither prices nor lexicographic costs. Networks here have below 200 arcs, so
//! successive shortest paths are enough.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Add, Sub};

/// More than any flow here can be, and small enough to be added up.
pub(super) const UNLIMITED: i64 = i64::MAX / 4;

/// A cost: an ordered group whose default is zero.
pub(super) trait Weight:
    Copy + Ord + Default + Add<Output = Self> + Sub<Output = Self>
{
}
impl<T: Copy + Ord + Default + Add<Output = T> + Sub<Output = T>> Weight for T {}

/// Arc `i` and arc `i ^ 1` are the two directions of one connection.
#[derive(Debug, Clone, Copy)]
struct Arc<C> {
    to: usize,
    room: i64,
    cost: C,
}

/// A network under construction, then with its flow.
#[derive(Debug, Default)]
pub(super) struct Network<C> {
    arcs: Vec<Arc<C>>,
    nodes: Vec<Node<C>>,
}

#[derive(Debug, Default)]
struct Node<C> {
    out: Vec<usize>,
    price: C,
}

/// Shortest paths from a source: length and last arc of each node that is reached.
type Paths<C> = Vec<Option<(C, Option<usize>)>>;

impl<C: Weight> Network<C> {
    /// A new node.
    pub(super) fn node(&mut self) -> usize {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    /// A new arc with room for so much flow, at a cost of at least zero per unit.
    pub(super) fn arc(&mut self, (from, to): (usize, usize), room: i64, cost: C) -> usize {
        let id = self.arcs.len();
        let back = C::default() - cost;
        self.arcs.push(Arc { to, room, cost });
        self.arcs.push(Arc {
            to: from,
            room: 0,
            cost: back,
        });
        for (node, arc) in [(from, id), (to, id + 1)] {
            if let Some(node) = self.nodes.get_mut(node) {
                node.out.push(arc);
            }
        }
        id
    }

    /// Sends as much as possible from `source` to `sink`, at the lowest cost.
    pub(super) fn route(&mut self, source: usize, sink: usize) {
        loop {
            let paths = self.paths(source);
            let Some(Some((length, _))) = paths.get(sink).copied() else {
                return;
            };
            for (node, found) in self.nodes.iter_mut().zip(&paths) {
                // A node that is farther than the sink, or cut off, keeps its reduced costs legal this way.
                let by = found.map_or(length, |(own, _)| own.min(length));
                node.price = node.price + by;
            }
            let path = self.path_to(sink, &paths);
            let room = path.iter().map(|arc| self.room(*arc)).min().unwrap_or(0);
            for arc in path {
                self.push(arc, room);
            }
        }
    }

    /// Flow on an arc.
    pub(super) fn flow(&self, arc: usize) -> i64 {
        self.room(arc ^ 1)
    }

    /// Prices of all nodes that prove the flow minimal: the sum of one set of prices for each
    /// reference. A set tells what a unit at a node is worth to whoever stands at the reference.
    pub(super) fn prices(&self, sink: usize, references: &[usize]) -> Vec<C> {
        let mut sums = vec![C::default(); self.nodes.len()];
        for reference in references {
            let lengths = self.lengths(*reference);
            let end = lengths.get(sink).copied().unwrap_or_default();
            for (sum, length) in sums.iter_mut().zip(lengths) {
                *sum = *sum + end - length;
            }
        }
        sums
    }

    /// Length of the shortest way from a node to each other. What cannot be reached is as far as
    /// the farthest, in reduced costs: that is legal, and finite.
    fn lengths(&self, from: usize) -> Vec<C> {
        let paths = self.paths(from);
        let reached = paths.iter().flatten().map(|(length, _)| *length);
        let farthest = reached.max().unwrap_or_default();
        let nodes = self.nodes.iter().zip(&paths);
        nodes
            .map(|(node, path)| node.price + path.map_or(farthest, |(length, _)| length))
            .collect()
    }

    /// Potential of a node: no arc with room has a negative cost once those of its ends are taken
    /// off.
    fn price(&self, node: usize) -> C {
        self.nodes
            .get(node)
            .map_or_else(C::default, |node| node.price)
    }

    fn room(&self, arc: usize) -> i64 {
        self.arcs.get(arc).map_or(0, |arc| arc.room)
    }

    fn push(&mut self, arc: usize, amount: i64) {
        for (arc, by) in [(arc, -amount), (arc ^ 1, amount)] {
            if let Some(arc) = self.arcs.get_mut(arc) {
                arc.room += by;
            }
        }
    }

    /// Dijkstra on costs reduced by the prices, which are never negative.
    fn paths(&self, source: usize) -> Paths<C> {
        let mut paths: Paths<C> = vec![None; self.nodes.len()];
        let mut heap = BinaryHeap::from([Reverse((C::default(), source, None))]);
        while let Some(Reverse((length, at, last))) = heap.pop() {
            match paths.get_mut(at) {
                Some(found) if found.is_none() => *found = Some((length, last)),
                _ => continue,
            }
            for (to, cost, arc) in self.open_arcs(at) {
                if paths.get(to).is_some_and(Option::is_none) {
                    heap.push(Reverse((length + cost, to, Some(arc))));
                }
            }
        }
        paths
    }

    /// Arcs with room out of a node: end, reduced cost, id.
    fn open_arcs(&self, from: usize) -> impl Iterator<Item = (usize, C, usize)> {
        let out = self.nodes.get(from).map_or(&[][..], |node| &node.out);
        out.iter().filter_map(move |id| {
            let arc = self.arcs.get(*id).filter(|arc| arc.room > 0)?;
            let cost = arc.cost + self.price(from) - self.price(arc.to);
            Some((arc.to, cost, *id))
        })
    }

    fn path_to(&self, sink: usize, paths: &Paths<C>) -> Vec<usize> {
        let last = |node: usize| paths.get(node).copied().flatten().and_then(|found| found.1);
        let start = |arc: usize| self.arcs.get(arc ^ 1).map_or(sink, |back| back.to);
        std::iter::successors(last(sink), |arc| last(start(*arc))).collect()
    }
}
