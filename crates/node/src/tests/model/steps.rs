//! What happens on a node, by chance.

use proptest::prelude::*;

/// Most steps of one history; half as many on average.
pub(super) const STEPS: usize = 120;

/// Something that happens. Numbers choose among what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A new pod is admitted and gets slots.
    Allocate {
        slots: u8,
    },
    /// The kubelet forgets a pod; its sandbox may stay, as after a deletion by force.
    Forget {
        pod: u8,
    },
    /// ADD for a pod: of its sandbox, or of a new one although the old one is there still.
    Add {
        pod: u8,
        fresh: bool,
        again: bool,
    },
    Del {
        sandbox: u8,
        path: bool,
    },
    Check {
        sandbox: u8,
    },
    Gc,
    Agent,
    Reboot,
    Link {
        rail: u16,
        link: Option<bool>,
    },
    Gone {
        sandbox: u8,
        whole: bool,
    },
}

/// What comes between the effects of a step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The process is killed.
    Kill,
    /// What was tried fails.
    Error,
    /// Another process does this.
    Meanwhile(Step),
}

/// One of the fault points of a step.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    /// The first one behind so many others.
    Point(usize),
    /// The first one of a stage.
    Stage(&'static str),
}

/// A step, and what comes behind which of its fault points.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub(super) step: Step,
    pub(super) fault: Option<(At, Fault)>,
    /// Seconds that pass before.
    pub(super) pause: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let add = (any::<u8>(), prop::bool::weighted(0.15), prop::bool::ANY);
    let add = add.prop_map(|(pod, fresh, again)| Step::Add { pod, fresh, again });
    let del = (any::<u8>(), prop::bool::weighted(0.7));
    let del = del.prop_map(|(sandbox, path)| Step::Del { sandbox, path });
    let link = prop_oneof![5 => Just(Some(true)), 2 => Just(Some(false)), 1 => Just(None)];
    let link = (0_u16..4, link).prop_map(|(rail, link)| Step::Link { rail, link });
    let gone = (any::<u8>(), prop::bool::weighted(0.6));
    let gone = gone.prop_map(|(sandbox, whole)| Step::Gone { sandbox, whole });
    prop_oneof![
        16 => (1_u8..4).prop_map(|slots| Step::Allocate { slots }),
        6 => any::<u8>().prop_map(|pod| Step::Forget { pod }),
        30 => add,
        16 => del,
        4 => any::<u8>().prop_map(|sandbox| Step::Check { sandbox }),
        4 => Just(Step::Gc),
        10 => Just(Step::Agent),
        2 => Just(Step::Reboot),
        5 => link,
        5 => gone,
    ]
}

fn fault() -> impl Strategy<Value = Option<(At, Fault)>> {
    let kind = prop_oneof![
        4 => Just(Fault::Kill),
        1 => Just(Fault::Error),
        3 => step().prop_map(Fault::Meanwhile),
    ];
    let at = prop_oneof![0_usize..10, 0_usize..48].prop_map(At::Point);
    prop::option::weighted(0.7, (at, kind))
}

/// A history of at most [`STEPS`] moments.
pub(super) fn history() -> impl Strategy<Value = Vec<Moment>> {
    let moment = (step(), fault(), 0_u8..40);
    let moment = moment.prop_map(|(step, fault, pause)| Moment { step, fault, pause });
    prop::collection::vec(moment, 1..=STEPS)
}
