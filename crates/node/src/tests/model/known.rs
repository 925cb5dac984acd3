//! Histories that went wrong once.

use super::steps::{At, Fault, Moment, Step};
use super::world::World;

const POD: Step = Step::Allocate { slots: 1 };
const ADD: Step = Step::Add {
    pod: 0,
    fresh: false,
    again: false,
};
const DEL: Step = Step::Del {
    sandbox: 0,
    path: true,
};
const PATH_GONE: Step = Step::Gone {
    sandbox: 0,
    whole: false,
};

fn history(steps: &[(Step, Option<&'static str>)]) {
    let mut world = World::new();
    for (step, killed) in steps {
        let fault = killed.map(|stage| (At::Stage(stage), Fault::Kill));
        world.take(&Moment {
            step: *step,
            fault,
            pause: 0,
        });
    }
    let killed = steps.iter().filter(|(_, killed)| killed.is_some()).count();
    assert_eq!(world.counts.kills(), killed as u64);
    world.end();
}

/// Killed before it had its alias, and then only a process held the namespace: DEL freed the lease
/// and left the interface.
#[test]
fn a_half_made_rail_in_a_namespace_without_a_path_goes_with_its_lease() {
    history(&[
        (POD, None),
        (ADD, Some("create")),
        (PATH_GONE, None),
        (DEL, None),
    ]);
}

/// The rail's interface was gone, and the child with it: DEL left the rule, and `rp_filter` as the
/// attachment had made it.
#[test]
fn rules_in_a_namespace_without_a_path_go_though_the_rail_is_gone() {
    let gone = Step::Link {
        rail: 0,
        link: None,
    };
    history(&[
        (POD, None),
        (ADD, None),
        (PATH_GONE, None),
        (gone, None),
        (DEL, None),
    ]);
}

/// Both DEL and the ADD after it were killed: the rails stood, so that the last ADD took the pod for
/// whole, and its containers had no devices.
#[test]
fn an_add_finds_that_the_files_of_its_slots_are_missing() {
    history(&[
        (POD, None),
        (ADD, None),
        (DEL, Some("concealed")),
        (ADD, Some("attached")),
        (ADD, None),
    ]);
}

/// DEL was killed between the interfaces and `rp_filter`; the next ADD could not attach and freed
/// all, so that nobody ever set `rp_filter` back.
#[test]
fn an_add_that_fails_sets_back_what_a_killed_del_has_left() {
    let down = Step::Link {
        rail: 0,
        link: Some(false),
    };
    history(&[
        (POD, None),
        (ADD, None),
        (down, None),
        (DEL, Some("removed")),
        (ADD, None),
        (DEL, None),
    ]);
}
