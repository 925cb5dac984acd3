//! Three ways to give pods their rails, side by side, as pure models (level L0).
//!
//! - [`Allocator::Kubelet`]: the rails come from a device plugin that lets the kubelet choose.
//! - [`Allocator::Restricted`]: the same plugin below the Topology Manager's policy `restricted`.
//! - [`Allocator::Podrail`]: the project's own choice, at CNI ADD.
//!
//! A pod is placed for good: no allocator moves the devices of a pod that runs.

mod dice;
mod kubelet;
mod machine;
mod measure;
mod podrail;
mod replay;
mod restricted;
mod shapes;
mod trace;

pub(crate) use dice::Dice;
pub(crate) use machine::{Grant, Machine, PodId};
pub(crate) use measure::{Score, share};
pub(crate) use replay::{Tally, replay};
pub(crate) use shapes::topology;
pub(crate) use trace::{Event, trace};

use podrail_core::binding::BindError;
use podrail_core::topology::Topology;

/// A pod that asks for devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its id.
    pub(crate) pod: PodId,
    /// The GPUs that it has got, as positions in [`Topology::gpus`]. Only their number counts for
    /// `restricted`, which is a choice of GPUs too.
    pub(crate) gpus: Vec<usize>,
    /// How many rails.
    pub(crate) rails: u16,
}

/// Why a pod does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    /// Admission by the Topology Manager.
    #[error("TopologyAffinityError")]
    TopologyAffinity,
    /// The kubelet does not start with a Topology Manager policy.
    #[error("the Topology Manager refuses nodes with more than {limit} NUMA nodes, here {nodes}")]
    NumaNodes {
        /// NUMA nodes here.
        nodes: usize,
        /// What it can do.
        limit: usize,
    },
    /// The node's devices are in use.
    #[error("too few devices are free")]
    TooFew,
    /// Podrail's own refusal.
    #[error("no choice of rails")]
    Bind(#[source] BindError),
}

/// Who chooses the rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocator {
    /// The kubelet, out of an unordered set, whatever the pod's GPUs are.
    Kubelet,
    /// The kubelet, held to NUMA nodes by the policy `restricted` with scope `pod`.
    Restricted,
    /// Podrail, once the pod's GPUs are known.
    Podrail,
}

impl Allocator {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Self; 3] = [Self::Kubelet, Self::Restricted, Self::Podrail];

    /// What the tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet's choice",
            Self::Restricted => "`restricted`",
            Self::Podrail => "Podrail",
        }
    }

    /// Chooses the devices of one pod; `waiting` are admitted pods without rails, which only
    /// Podrail looks at. The caller starts the pod on the machine.
    ///
    /// # Errors
    /// The pod does not run.
    pub(crate) fn place(
        self,
        machine: &Machine<'_>,
        own: &Request,
        waiting: &[Request],
        dice: &mut Dice,
    ) -> Result<Grant, Rejection> {
        match self {
            Self::Kubelet => kubelet::place(machine, own, dice),
            Self::Restricted => restricted::place(machine, own, dice),
            Self::Podrail => podrail::place(machine, own, waiting),
        }
    }

    /// Places jobs that are admitted together on an empty node, in their order.
    ///
    /// The same seed gives the same result.
    pub(crate) fn place_all(
        self,
        topology: &Topology,
        jobs: &[Request],
        seed: u64,
    ) -> Vec<Result<(Grant, Score), Rejection>> {
        let mut machine = Machine::new(topology);
        let mut dice = Dice::new(seed);
        let mut outcomes = vec![];
        let mut waiting = jobs;
        while let [own, rest @ ..] = waiting {
            waiting = rest;
            let outcome = self.place(&machine, own, rest, &mut dice);
            outcomes.push(outcome.map(|grant| {
                let score = Score::of(&machine, &grant);
                machine.start(own.pod, grant.clone());
                (grant, score)
            }));
        }
        outcomes
    }
}

#[cfg(test)]
mod tests;
