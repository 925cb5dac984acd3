//! What a pod's user is to know, though the pod starts.

use crate::gpus::devices::GrantedGpus;
use crate::words::brief;
use std::fmt;

/// Unknown ids that one note repeats.
const MOST_SHOWN: usize = 4;

/// Something that does not stop a pod and may be to its disadvantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The checkpoint could not be read.
    NoCheckpoint,
    /// Device ids that name no GPU of the node.
    UnknownGpus {
        /// Container.
        container: String,
        /// The first of them, with their resource.
        ids: Vec<String>,
        /// How many more there are, or may be.
        more: usize,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCheckpoint => f.write_str(
                "the kubelet's checkpoint cannot be read: slots of plain init containers are not \
                 known, and a container that has only such slots will not start",
            ),
            Self::UnknownGpus {
                container,
                ids,
                more,
            } => {
                let ids = ids.join(", ");
                write!(
                    f,
                    "GPU {ids} of container {container} is unknown on this node"
                )?;
                if *more > 0 {
                    write!(f, ", and {more} more")?;
                }
                f.write_str(": its rails are chosen as if it had none of these")
            }
        }
    }
}

impl Note {
    /// The ids of a container that name no GPU, if there are any.
    pub(super) fn unknown_gpus(container: &str, found: &GrantedGpus) -> Option<Self> {
        let unknown = found.unknown.iter().map(ToString::to_string);
        let texts: Vec<String> = unknown.chain(found.mig.iter().cloned()).collect();
        let more = texts.len().saturating_sub(MOST_SHOWN);
        let ids: Vec<String> = texts.iter().take(MOST_SHOWN).map(|id| brief(id)).collect();
        (!ids.is_empty()).then(|| Self::UnknownGpus {
            container: brief(container),
            ids,
            more,
        })
    }
}
