//! A node as nested boxes: NUMA node, root, switch, then GPUs and NICs. Tree and picture draw it.

use podrail_core::ids::{NicId, PciAddr, RootId};
use podrail_core::topology::{Excluded, Gpu, PciPath, Rail, Topology};
use std::collections::BTreeMap;

/// The roots of one NUMA node; in the order of their lowest root, the unknown node last.
pub(super) struct NumaGroup<'a> {
    /// Number of the node; absent where sysfs says -1.
    pub(super) numa: Option<u32>,
    /// Socket, where known.
    pub(super) socket: Option<u32>,
    /// Its roots by address.
    pub(super) roots: Vec<Root<'a>>,
}

/// A root complex with what hangs below it.
pub(super) struct Root<'a> {
    /// Its address.
    pub(super) id: RootId,
    /// GPUs, then NICs, then switches, each by address.
    pub(super) parts: Vec<Part<'a>>,
}

/// Something below a root.
pub(super) enum Part<'a> {
    /// A GPU and its position.
    Gpu(usize, &'a Gpu),
    /// A NIC and its ports.
    Nic(NicId, Vec<Port<'a>>),
    /// A bridge that several devices share: the upper port of a switch.
    Switch(PciAddr, Vec<Part<'a>>),
}

/// A port of a NIC.
pub(super) enum Port<'a> {
    /// A rail.
    Rail(&'a Rail),
    /// An RDMA port that is no rail.
    Excluded(&'a Excluded),
}

impl<'a> Port<'a> {
    fn path(&self) -> &'a PciPath {
        match self {
            Self::Rail(rail) => &rail.path,
            Self::Excluded(port) => &port.path,
        }
    }

    fn nic(&self) -> NicId {
        match self {
            Self::Rail(rail) => rail.nic,
            Self::Excluded(port) => port.path.function.nic(),
        }
    }
}

/// The boxes of a node; `excluded` are the ports to show in their place beside the rails.
pub(super) fn outline<'a>(topology: &'a Topology, excluded: &[&'a Excluded]) -> Vec<NumaGroup<'a>> {
    let mut groups: Vec<NumaGroup<'a>> = Vec::new();
    for ((id, numa), leaves) in by_root(leaves(topology, excluded)) {
        let root = Root {
            id,
            parts: nest(leaves, 0),
        };
        match groups.iter_mut().find(|group| group.numa == numa) {
            Some(group) => group.roots.push(root),
            None => {
                let socket = numa.and_then(|numa| topology.socket_of(numa));
                groups.push(NumaGroup {
                    numa,
                    socket,
                    roots: vec![root],
                });
            }
        }
    }
    groups.sort_by_key(|group| group.numa.is_none());
    groups
}

/// A device with the place where it hangs.
struct Leaf<'a> {
    path: &'a PciPath,
    part: Part<'a>,
}

fn leaves<'a>(topology: &'a Topology, excluded: &[&'a Excluded]) -> Vec<Leaf<'a>> {
    let gpus = topology.gpus.iter().enumerate();
    let mut leaves: Vec<_> = gpus
        .map(|(at, gpu)| Leaf {
            path: &gpu.path,
            part: Part::Gpu(at, gpu),
        })
        .collect();
    let rails = topology.rails.iter().map(Port::Rail);
    leaves.extend(nics(
        rails.chain(excluded.iter().map(|port| Port::Excluded(port))),
    ));
    leaves
}

/// Ports of one NIC at one place become one leaf.
fn nics<'a>(ports: impl Iterator<Item = Port<'a>>) -> Vec<Leaf<'a>> {
    let mut nics: Vec<Leaf<'a>> = Vec::new();
    for port in ports {
        let (path, nic) = (port.path(), port.nic());
        let same = |leaf: &&mut Leaf<'a>| {
            matches!(leaf.part, Part::Nic(id, _) if id == nic) && same_place(leaf.path, path)
        };
        match nics.iter_mut().find(same) {
            Some(Leaf {
                part: Part::Nic(_, ports),
                ..
            }) => ports.push(port),
            _ => nics.push(Leaf {
                path,
                part: Part::Nic(nic, vec![port]),
            }),
        }
    }
    nics.sort_by_key(|leaf| leaf.path.function);
    nics
}

fn same_place(a: &PciPath, b: &PciPath) -> bool {
    (a.numa, a.root, &a.bridges) == (b.numa, b.root, &b.bridges)
}

type Roots<'a> = BTreeMap<(RootId, Option<u32>), Vec<Leaf<'a>>>;

/// By root, and by NUMA node as well: firmware may give devices of one root different nodes.
fn by_root(leaves: Vec<Leaf<'_>>) -> Roots<'_> {
    let mut roots = Roots::new();
    for leaf in leaves {
        roots
            .entry((leaf.path.root, leaf.path.numa))
            .or_default()
            .push(leaf);
    }
    roots
}

/// Nests the leaves by their bridges from `depth` on. A bridge that leads to one device only is no
/// box of its own, and of bridges in a row with the same devices only the last one is: the upper
/// port of the switch, not the root port above it.
fn nest(leaves: Vec<Leaf<'_>>, depth: usize) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut bridges: BTreeMap<PciAddr, Vec<Leaf<'_>>> = BTreeMap::new();
    for leaf in leaves {
        match leaf.path.bridges.get(depth) {
            Some(bridge) => bridges.entry(*bridge).or_default().push(leaf),
            None => parts.push((leaf.path.function, leaf.part)),
        }
    }
    for (bridge, leaves) in bridges {
        let first = leaves.first().map_or(bridge, |leaf| leaf.path.function);
        let part = match <[Leaf<'_>; 1]>::try_from(leaves) {
            Ok([only]) => only.part,
            Err(several) => switch(bridge, nest(several, depth + 1)),
        };
        parts.push((first, part));
    }
    parts.sort_by_key(|(address, part)| (rank(part), *address));
    parts.into_iter().map(|(_, part)| part).collect()
}

fn switch(bridge: PciAddr, parts: Vec<Part<'_>>) -> Part<'_> {
    match <[Part<'_>; 1]>::try_from(parts) {
        Ok([Part::Switch(lower, parts)]) => Part::Switch(lower, parts),
        Ok([only]) => Part::Switch(bridge, vec![only]),
        Err(parts) => Part::Switch(bridge, parts),
    }
}

fn rank(part: &Part<'_>) -> u8 {
    match part {
        Part::Gpu(..) => 0,
        Part::Nic(..) => 1,
        Part::Switch(..) => 2,
    }
}
