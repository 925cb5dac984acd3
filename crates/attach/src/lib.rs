//! Carries out an attach plan on the kernel, undoes it, and compares the kernel with it.
//!
//! The plan (`podrail_core::plan`) holds every name and number; nothing is decided here. Reading
//! order: [`attach()`] (preflight, then steps, undo on a fault), [`detach()`], [`differences()`],
//! [`children()`]; then [`cdi`], the files that give a pod its devices.
//!
//! Deliberately absent: choosing rails, leasing addresses, the state file.

pub mod cdi;
mod census;
mod error;
pub mod faults;
mod observe;
mod preflight;
mod steps;
mod sysctl;
mod teardown;

pub use census::{Child, children};
pub use error::{AttachError, Problem, TeardownError, UndoFailure};
pub use observe::differences;
pub use sysctl::read_sysctl;
pub use teardown::{Target, detach, has_any};

use podrail_core::plan::AttachPlan;
use podrail_netlink::{NetNs, Rtnl};
use preflight::Ground;

/// Attaches all rails of a plan to the namespace of the pod.
///
/// Must be called in the host's network namespace, where the rails are.
///
/// # Guarantees
/// - All or nothing: after an error nothing of the plan is left, unless the error lists what could
///   not be undone.
/// - Twice: what an earlier (killed) run left of the same sandbox is removed first, so the result
///   is the same as of one run.
/// - Half-way (killed): children carry the sandbox's link group from the moment they exist, and
///   rules carry our protocol number; [`detach()`] or the next [`attach()`] finds both.
/// - No link, rule, route or address that is not of this sandbox is changed, except the
///   namespace-wide sysctls that the plan names.
///
/// # Errors
/// [`AttachError::NotPossible`] before anything was changed; [`AttachError::Step`] after undo.
pub fn attach(plan: &AttachPlan, pod: &NetNs) -> Result<(), AttachError> {
    let mut host = Rtnl::open()?;
    let mut inside = Rtnl::open_in(pod)?;
    let target = Target::of(plan);
    if teardown::has_leftovers(&mut inside, &target)? {
        detach(&target, pod)?;
    }
    let ground = Ground::survey(plan, &mut host, &mut inside)?;
    steps::Run::new(plan, &ground, pod).all(&mut host, &mut inside)
}
