//! Which GPU a user means: an index, a UUID or a PCI address.

use crate::ids::{BadId, GpuUuid, PciAddr};
use crate::topology::{Gpu, Topology};
use std::fmt;

pub mod devices;

/// A GPU as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuRef {
    /// Position in PCI order, as nvidia-smi counts.
    Index(usize),
    /// UUID of the driver.
    Uuid(GpuUuid),
    /// PCI address.
    Pci(PciAddr),
}

impl GpuRef {
    /// Reads any of the three forms.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let index = text
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten();
        index
            .map(Self::Index)
            .or_else(|| GpuUuid::parse(text).ok().map(Self::Uuid))
            .or_else(|| PciAddr::parse(text).ok().map(Self::Pci))
            .ok_or_else(|| BadId {
                kind: "GPU",
                given: text.chars().take(80).collect(),
                allowed: "an index (0), a UUID (GPU-...) or a PCI address (0000:0f:00.0)",
            })
    }

    fn names(&self, position: usize, gpu: &Gpu) -> bool {
        match self {
            Self::Index(index) => *index == position,
            Self::Uuid(uuid) => gpu.uuid.as_ref() == Some(uuid),
            Self::Pci(pci) => gpu.path.function == *pci,
        }
    }
}

impl fmt::Display for GpuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => index.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Pci(pci) => pci.fmt(f),
        }
    }
}

/// A list of GPUs that this node cannot give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// No such GPU here.
    #[error("the node has no GPU {wanted}; it has {}", list(known))]
    Unknown {
        /// As the user named it.
        wanted: GpuRef,
        /// PCI addresses of the GPUs that are there, in order.
        known: Vec<PciAddr>,
    },
    /// The same GPU, maybe in two forms.
    #[error("GPU {wanted} is named twice")]
    Twice {
        /// As the user named it the second time.
        wanted: GpuRef,
    },
}

fn list(known: &[PciAddr]) -> String {
    if known.is_empty() {
        return "none".into();
    }
    let each = |(at, pci): (usize, &PciAddr)| format!("{at}: {pci}");
    known
        .iter()
        .enumerate()
        .map(each)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Positions of the named GPUs in [`Topology::gpus`], ascending.
///
/// # Errors
/// One that does not exist, or stands twice.
pub fn resolve(topology: &Topology, wanted: &[GpuRef]) -> Result<Vec<usize>, GpuError> {
    let mut found = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        let position = topology
            .gpus
            .iter()
            .enumerate()
            .find_map(|(position, gpu)| wanted.names(position, gpu).then_some(position))
            .ok_or_else(|| GpuError::Unknown {
                wanted: wanted.clone(),
                known: topology.gpus.iter().map(|gpu| gpu.path.function).collect(),
            })?;
        if found.contains(&position) {
            return Err(GpuError::Twice {
                wanted: wanted.clone(),
            });
        }
        found.push(position);
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{GpuKind, PciPath};

    fn node() -> Topology {
        let gpu = |bus: &str| Gpu {
            path: PciPath {
                root: crate::ids::RootId::parse("0000:0b").unwrap(),
                bridges: vec![],
                function: PciAddr::parse(&format!("0000:{bus}:00.0")).unwrap(),
                numa: None,
            },
            kind: GpuKind::Nvidia,
            uuid: GpuUuid::parse(&format!("GPU-{bus}")).ok(),
            model: None,
            aliases: vec![],
        };
        Topology {
            gpus: vec![gpu("0f"), gpu("15")],
            ..Topology::default()
        }
    }

    fn resolved(texts: &[&str]) -> Result<Vec<usize>, String> {
        let refs: Result<Vec<GpuRef>, BadId> = texts.iter().map(|t| GpuRef::parse(t)).collect();
        let refs = refs.map_err(|error| error.to_string())?;
        resolve(&node(), &refs).map_err(|error| error.to_string())
    }

    #[test]
    fn three_forms_and_any_order() {
        assert_eq!(resolved(&["1", "GPU-0f"]), Ok(vec![0, 1]));
        assert_eq!(resolved(&["00000000:15:00.0", "0"]), Ok(vec![0, 1]));
        assert_eq!(resolved(&[]), Ok(vec![]));
    }

    #[test]
    fn unknown_doubled_and_nonsense() {
        let unknown = resolved(&["2"]).unwrap_err();
        assert_eq!(
            unknown,
            "the node has no GPU 2; it has 0: 0000:0f:00.0, 1: 0000:15:00.0"
        );
        assert_eq!(
            resolved(&["0", "GPU-0f"]),
            Err("GPU GPU-0f is named twice".into())
        );
        for text in ["", "x", "-1", "99999999999999999999999", "GPU-", "0000:0f"] {
            assert!(
                resolved(&[text]).unwrap_err().starts_with("GPU "),
                "{text:?}"
            );
        }
    }
}
