//! Why a pod's slots are not clear.

use super::PodRef;
use crate::ids::{BadId, SlotId};

/// Why a pod's slots are not clear.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodsError {
    /// The kubelet names a slot that does not exist.
    #[error("the kubelet gave container {container} of pod {pod} a slot that does not exist")]
    BadSlot {
        /// Pod.
        pod: PodRef,
        /// Container.
        container: String,
        /// The id and what would be one.
        #[source]
        source: BadId,
    },
    /// Two containers that run at the same time have one slot.
    #[error("the kubelet gave {slot} to containers {first} and {second} of pod {pod}")]
    SlotTwice {
        /// Pod.
        pod: PodRef,
        /// Slot.
        slot: SlotId,
        /// A container.
        first: String,
        /// Another.
        second: String,
    },
    /// Several pods of one name, and nothing that tells which is this one.
    #[error("the kubelet lists {count} pods {pod}: which of them has UID {} is not clear", .pod.uid)]
    Ambiguous {
        /// The pod asked about.
        pod: PodRef,
        /// Pods of its name.
        count: usize,
    },
}

impl PodsError {
    /// Whether the same question may have an answer a moment later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Ambiguous { .. })
    }

    /// The next step.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::BadSlot { .. } => {
                "was rails.shares lowered, or another device plugin registered for the resource? \
                 delete the pod, so that it gets slots that exist"
                    .into()
            }
            Self::SlotTwice { .. } => "delete the pod, so that it gets slots of its own".into(),
            Self::Ambiguous { .. } => {
                "it clears up once the earlier pod of that name is gone".into()
            }
        }
    }
}
