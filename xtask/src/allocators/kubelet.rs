//! The kubelet's own choice: no Topology Manager, rails from the SR-IOV network device plugin.
//!
//! The kubelet takes the devices of each resource out of an unordered set (`devicesToAllocate` in
//! `pkg/kubelet/cm/devicemanager/manager.go`), one resource after the other, and never looks from one
//! to the other. A plugin may name devices it prefers; this one names none as it is installed
//! (`pkg/resources/allocator.go`; its other policy, `packed`, sorts by PCI address and does not know
//! the GPUs either).

use super::{Dice, Grant, Machine, Rejection, Request};

/// The pod's own GPUs, and any free rails.
pub(super) fn place(
    machine: &Machine<'_>,
    own: &Request,
    dice: &mut Dice,
) -> Result<Grant, Rejection> {
    let wanted = usize::from(own.rails);
    let rails = dice.draw(&machine.free_rails(), wanted);
    if rails.len() < wanted {
        return Err(Rejection::TooFew);
    }
    Ok(Grant::new(own.gpus.clone(), rails))
}
