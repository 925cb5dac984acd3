//! What is done before the kubelet gets its answer to `Allocate`.

use crate::context::Context;
use crate::say::words;
use podrail_attach::cdi::CdiFileError;
use podrail_core::ids::SlotId;
use podrail_kubelet::plugin::{AllocateError, Allocator};
use podrail_node::{Markers, NodeError, allocate, conceal_slots, now, open_state};

/// The slots of a request cannot be prepared.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    /// The state file or a marker could not be written.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A device file of an earlier pod could not be taken away.
    #[error(transparent)]
    Cdi(#[from] CdiFileError),
    /// A defect of the agent.
    #[error("the work ended early")]
    Ended,
}

impl PrepareError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Node(error) => error.hint(),
            Self::Cdi(error) => error.hint().map(str::to_owned),
            Self::Ended => Some("see the agent's log".to_owned()),
        }
    }
}

/// Marks slots as waiting, and takes away the devices that they stood for before.
#[derive(Debug)]
pub(crate) struct Slots(pub(crate) Context);

impl Allocator for Slots {
    async fn allocate(&self, containers: &[Vec<SlotId>]) -> Result<(), AllocateError> {
        let slots: Vec<SlotId> = containers.iter().flatten().copied().collect();
        let count = containers.len();
        let done = self.0.blocking(move |context| prepare(context, &slots));
        let done = done.await.unwrap_or(Err(PrepareError::Ended));
        // The kubelet makes this the message of the pod that it refuses.
        done.map_err(|error| AllocateError::new(words(&error, error.hint().as_deref())))?;
        let count = u64::try_from(count).unwrap_or_default();
        self.0.board.update(|values| values.allocations += count);
        self.0.look_again.notify_one();
        Ok(())
    }
}

/// The marks come first: from then on no pod of these slots starts without rails, since the name of
/// a file that is gone cannot be resolved.
fn prepare(context: &Context, slots: &[SlotId]) -> Result<(), PrepareError> {
    let _alone = context.allocating();
    let paths = &context.options.paths;
    let mut state = open_state(&paths.state)?;
    let markers = Markers::beside(&paths.state)?;
    allocate(&mut state.store, &markers, slots, now())?;
    Ok(conceal_slots(&paths.cdi, slots)?)
}
