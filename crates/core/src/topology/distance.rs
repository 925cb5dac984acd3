//! How far two PCI functions are from each other.

use super::PciPath;
use crate::ids::PciAddr;
use serde::{Deserialize, Serialize};

/// What the traffic between two functions must cross, nearest first.
///
/// The same ladder as nvidia-smi's PIX/PXB, PHB, NODE and SYS. Up to `Root`, GPUDirect RDMA stays
/// off the CPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// They share a PCIe switch (or are functions of one slot).
    Switch,
    /// They share a root complex.
    Root,
    /// They share a NUMA node.
    Numa,
    /// They share a socket.
    Socket,
    /// The socket-to-socket link, or a NUMA node that is not known.
    Any,
}

impl Level {
    /// All levels, nearest first.
    pub const ALL: [Self; 5] = [
        Self::Switch,
        Self::Root,
        Self::Numa,
        Self::Socket,
        Self::Any,
    ];

    /// 0 for the nearest, 4 for the farthest.
    #[must_use]
    pub fn rank(self) -> u32 {
        self as u32
    }

    /// Whether traffic stays below one root complex: "next to its GPU".
    #[must_use]
    pub fn is_near(self) -> bool {
        self <= Self::Root
    }
}

impl std::str::FromStr for Level {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.to_string() == text)
            .ok_or("expected one of switch, root, numa, socket, any")
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Switch => "switch",
            Self::Root => "root",
            Self::Numa => "numa",
            Self::Socket => "socket",
            Self::Any => "any",
        })
    }
}

/// A level, and the bridges between the two functions as a finer measure inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distance {
    /// The ladder's rung.
    pub level: Level,
    /// Bridges on the way, counted up to the deepest common one; 0 across roots.
    pub hops: u32,
}

/// Distance of two places; `socket` tells the socket of a NUMA node.
pub(super) fn between(a: &PciPath, b: &PciPath, socket: impl Fn(u32) -> Option<u32>) -> Distance {
    if a.root == b.root {
        let common = common_prefix(&a.bridges, &b.bridges);
        let hops = a.bridges.len() + b.bridges.len() - 2 * common;
        let level = if common > 0 || same_slot(a, b) {
            Level::Switch
        } else {
            Level::Root
        };
        return Distance {
            level,
            hops: u32::try_from(hops).unwrap_or(u32::MAX),
        };
    }
    let level = match (a.numa, b.numa) {
        (Some(x), Some(y)) if x == y => Level::Numa,
        (Some(x), Some(y)) => match (socket(x), socket(y)) {
            (Some(s), Some(t)) if s == t => Level::Socket,
            _ => Level::Any,
        },
        _ => Level::Any,
    };
    Distance { level, hops: 0 }
}

fn same_slot(a: &PciPath, b: &PciPath) -> bool {
    a.function.nic() == b.function.nic()
}

fn common_prefix(a: &[PciAddr], b: &[PciAddr]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
