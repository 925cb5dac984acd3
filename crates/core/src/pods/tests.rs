//! The kubelet's answers, as they come and as they must not: parts, demands, refusals.

use super::*;
use crate::attachment::Part;
use crate::binding::tests::nodes::{b4_8, demand, indexes, node};
use crate::binding::{Demand, bind};
use crate::gpus::devices::{MigParents, granted};
use crate::ids::{ResourceName, SlotId};
use proptest::prelude::*;
use std::collections::BTreeSet;

const RAIL: &str = "podrail.io/rail";
const GPU: &str = "nvidia.com/gpu";

/// `slot-03`, or the PCI address of a GPU of the node.
fn grant(container: &str, resource: &str, numbers: &[u16]) -> DeviceGrant {
    let topology = b4_8();
    let id = |number: &u16| match resource {
        RAIL => SlotId(*number).to_string(),
        _ => topology.gpus[usize::from(*number)]
            .path
            .function
            .to_string(),
    };
    DeviceGrant {
        container: container.into(),
        resource: resource.into(),
        ids: numbers.iter().map(id).collect(),
    }
}

fn listed(name: &str, devices: Vec<DeviceGrant>) -> ListedPod {
    ListedPod {
        namespace: "default".into(),
        name: name.into(),
        devices,
    }
}

fn kept(uid: &str, grants: Vec<DeviceGrant>) -> Vec<CheckpointGrant> {
    let entry = |grant| CheckpointGrant {
        pod_uid: uid.into(),
        grant,
    };
    grants.into_iter().map(entry).collect()
}

fn pod(name: &str, uid: &str) -> PodRef {
    PodRef {
        uid: PodUid::parse(uid).unwrap(),
        namespace: KubeName::parse("default").unwrap(),
        name: KubeName::parse(name).unwrap(),
    }
}

fn lookup(grants: &[DeviceGrant]) -> crate::gpus::devices::GrantedGpus {
    granted(&b4_8(), grants, &MigParents::new())
}

fn ask<T>(
    listed: &[ListedPod],
    checkpoint: Option<&[CheckpointGrant]>,
    question: impl FnOnce(Admitted<'_>) -> T,
) -> T {
    let resource = ResourceName::parse(RAIL).unwrap();
    question(Admitted {
        listed,
        checkpoint,
        resource: &resource,
        slots: 16,
    })
}

fn own(
    list: &[ListedPod],
    checkpoint: Option<&[CheckpointGrant]>,
    name: &str,
    uid: &str,
) -> Result<Own, PodsError> {
    ask(list, checkpoint, |admitted| {
        admitted.own(&pod(name, uid), &lookup)
    })
}

/// `main gpus 0,1 slots 2,3+init`: a slot that was lent shows the borrowers.
fn lines(own: &Own) -> Vec<String> {
    let join = |texts: Vec<String>| texts.join(",");
    let line = |part: &Part| {
        let gpus = join(part.gpus.iter().map(ToString::to_string).collect());
        let slot = |slot: &SlotId| match part.lent.get(slot) {
            Some(lent) => format!("{}+{}", slot.0, lent.join("+")),
            None => slot.0.to_string(),
        };
        assert_eq!(usize::from(part.rails), part.slots.len());
        let slots = join(part.slots.iter().map(slot).collect());
        format!("{} gpus {gpus} slots {slots}", part.containers.join("+"))
    };
    own.parts.iter().map(line).collect()
}

#[test]
fn containers_are_parts() {
    let main = [grant("main", GPU, &[1, 0]), grant("main", RAIL, &[3, 2])];
    let split = [
        grant("main", RAIL, &[3]),
        grant("main", GPU, &[0]),
        grant("main", RAIL, &[2]),
        grant("main", GPU, &[1]),
    ];
    let sidecar = [grant("sidecar", RAIL, &[5]), grant("sidecar", GPU, &[2])];
    let proxy = [grant("proxy", RAIL, &[6])];
    let plain = [grant("helper", GPU, &[7]), grant("helper", "cpu.io/x", &[])];
    for (grants, expected) in [
        (vec![&main[..]], vec!["main gpus 0,1 slots 2,3"]),
        (vec![&split[..]], vec!["main gpus 0,1 slots 2,3"]),
        (
            vec![&main, &sidecar],
            vec!["main gpus 0,1 slots 2,3", "sidecar gpus 2 slots 5"],
        ),
        (
            vec![&main, &proxy],
            vec!["main gpus 0,1 slots 2,3", "proxy gpus 0,1 slots 6"],
        ),
        (vec![&proxy, &plain], vec!["proxy gpus 7 slots 6"]),
        (vec![&proxy], vec!["proxy gpus  slots 6"]),
        (vec![&plain], vec![]),
        (vec![], vec![]),
    ] {
        let grants: Vec<DeviceGrant> = grants.concat();
        let list = [
            listed("other", vec![grant("main", RAIL, &[9])]),
            listed("job", grants.clone()),
        ];
        let found = own(&list, Some(&kept("u1", grants)), "job", "u1").unwrap();
        assert_eq!(
            (lines(&found), found.notes),
            (expected.iter().map(ToString::to_string).collect(), vec![])
        );
    }
}

#[test]
fn plain_init_containers_come_from_the_checkpoint() {
    let main = || vec![grant("main", RAIL, &[1, 2]), grant("main", GPU, &[0])];
    for (init, expected) in [
        // The same slots: handed on.
        (
            vec![grant("init", RAIL, &[1, 2])],
            vec!["main gpus 0 slots 1+init,2+init"],
        ),
        (
            vec![grant("init", RAIL, &[2])],
            vec!["main gpus 0 slots 1,2+init"],
        ),
        // More than the main one; two of them.
        (
            vec![grant("init", RAIL, &[1, 2, 3]), grant("init", GPU, &[5])],
            vec!["main gpus 0 slots 1+init,2+init", "init gpus 5 slots 3"],
        ),
        (
            vec![grant("a", RAIL, &[1, 3]), grant("b", RAIL, &[3, 4])],
            vec![
                "main gpus 0 slots 1+a,2",
                "a gpus 0 slots 3+b",
                "b gpus 0 slots 4",
            ],
        ),
    ] {
        let checkpoint = kept("u1", [main(), init].concat());
        let found = own(&[listed("job", main())], Some(&checkpoint), "job", "u1").unwrap();
        assert_eq!(lines(&found), expected);
    }
    // Alone: the pod is listed without slots, or not at all.
    let init = || {
        kept(
            "u1",
            vec![grant("init", RAIL, &[3, 4]), grant("main", GPU, &[6])],
        )
    };
    for list in [vec![], vec![listed("job", vec![grant("main", GPU, &[6])])]] {
        let found = own(&list, Some(&init()), "job", "u1").unwrap();
        assert_eq!(lines(&found), ["init gpus 6 slots 3,4"]);
    }
}

#[test]
fn a_pod_of_the_same_name_is_told_by_the_checkpoint() {
    let old = || vec![grant("main", RAIL, &[1]), grant("main", GPU, &[0])];
    let new = || vec![grant("main", RAIL, &[2]), grant("main", GPU, &[1])];
    let bare = || vec![grant("main", GPU, &[1])];
    let both = [kept("old", old()), kept("new", new())].concat();
    let list = [listed("job", old()), listed("job", new())];
    assert_eq!(
        lines(&own(&list, Some(&both), "job", "new").unwrap()),
        ["main gpus 1 slots 2"]
    );
    assert_eq!(
        lines(&own(&list, Some(&both), "job", "old").unwrap()),
        ["main gpus 0 slots 1"]
    );
    // The new one has no slots, or only an init container's.
    let without = [kept("old", old()), kept("new", bare())].concat();
    for list in [
        vec![listed("job", old())],
        vec![listed("job", old()), listed("job", bare())],
    ] {
        assert!(
            own(&list, Some(&without), "job", "new")
                .unwrap()
                .parts
                .is_empty()
        );
    }
    let init = kept(
        "new",
        vec![grant("main", GPU, &[1]), grant("init", RAIL, &[3])],
    );
    let checkpoint = [kept("old", old()), init].concat();
    let list_bare = [listed("job", old()), listed("job", bare())];
    assert_eq!(
        lines(&own(&list_bare, Some(&checkpoint), "job", "new").unwrap()),
        ["init gpus 1 slots 3"]
    );
    // Nothing tells them apart.
    for (list, checkpoint) in [(&list, None), (&list, Some(vec![])), (&list_bare, None)] {
        let error = own(list, checkpoint.as_deref(), "job", "new").unwrap_err();
        assert!(error.is_retryable() && !error.hint().is_empty());
        assert_eq!(
            error.to_string(),
            "the kubelet lists 2 pods default/job: which of them has UID new is not clear"
        );
    }
}

#[test]
fn without_the_checkpoint_it_says_so() {
    let main = vec![grant("main", RAIL, &[1]), grant("main", GPU, &[0])];
    let found = own(&[listed("job", main)], None, "job", "u1").unwrap();
    assert_eq!(lines(&found), ["main gpus 0 slots 1"]);
    assert_eq!(found.notes, [Note::NoCheckpoint]);
    assert!(found.notes[0].to_string().contains("plain init containers"));
}

#[test]
fn slots_that_cannot_be() {
    let refused = |grants: Vec<DeviceGrant>, init: Vec<DeviceGrant>| {
        let checkpoint = kept("u1", init);
        let error = own(&[listed("job", grants)], Some(&checkpoint), "job", "u1").unwrap_err();
        assert!(!error.is_retryable() && !error.hint().is_empty());
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    };
    let bad = |id: &str| DeviceGrant {
        ids: vec!["slot-01".into(), id.into()],
        ..grant("main", RAIL, &[])
    };
    let text = refused(vec![bad("gpu-1")], vec![]);
    assert_eq!(
        text,
        "the kubelet gave container main of pod default/job a slot that does not exist: slot \
         \"gpu-1\" is not valid: slot-00 to slot-65535, two digits at least"
    );
    let text = refused(vec![bad("slot-16")], vec![]);
    assert!(
        text.ends_with("slot \"slot-16\" is not valid: the node has fewer slots"),
        "{text}"
    );
    let text = refused(vec![], vec![bad("slot-1")]);
    assert!(text.contains("slot \"slot-1\""), "{text}");
    let twice = vec![grant("a", RAIL, &[1, 2]), grant("b", RAIL, &[2])];
    assert_eq!(
        refused(twice, vec![]),
        "the kubelet gave slot-02 to containers a and b of pod default/job"
    );
}

#[test]
fn unknown_gpus_are_as_none_and_said() {
    let mut strange = grant("main", GPU, &[3]);
    strange.ids.extend((0..6).map(|n| format!("GPU-{n}{n}")));
    let grants = vec![strange, grant("main", RAIL, &[1])];
    let found = own(&[listed("job", grants)], Some(&[]), "job", "u1").unwrap();
    assert_eq!(lines(&found), ["main gpus 3 slots 1"]);
    let notes: Vec<String> = found.notes.iter().map(Note::to_string).collect();
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("GPU-00") && notes[0].contains("container main"),
        "{notes:?}"
    );
    assert!(notes[0].contains("and 2 more"), "{notes:?}");
}

#[test]
fn others_that_wait() {
    let list = [
        listed(
            "bound",
            vec![grant("main", RAIL, &[0, 1]), grant("main", GPU, &[0])],
        ),
        listed(
            "job",
            vec![grant("main", RAIL, &[2]), grant("main", GPU, &[1])],
        ),
        listed(
            "two",
            vec![
                grant("a", RAIL, &[3, 4]),
                grant("a", GPU, &[2]),
                grant("b", RAIL, &[5]),
            ],
        ),
        listed(
            "half",
            vec![grant("main", RAIL, &[6, 7]), grant("main", "x.y/z", &[])],
        ),
        listed("none", vec![grant("main", GPU, &[7])]),
    ];
    let checkpoint = [
        kept(
            "u-two",
            vec![
                grant("a", RAIL, &[3, 4]),
                grant("init", RAIL, &[3, 8]),
                grant("init", GPU, &[5]),
            ],
        ),
        kept("u-only", vec![grant("init", RAIL, &[9])]),
    ]
    .concat();
    // 7 is bound already, 10 is nobody's.
    let waiting: BTreeSet<SlotId> = [2, 3, 4, 5, 6, 8, 9, 10].map(SlotId).into();
    let others = |list: &[ListedPod]| {
        ask(list, Some(&checkpoint), |admitted| {
            let own = admitted.own(&pod("job", "u-job"), &lookup).unwrap();
            assert_eq!(lines(&own), ["main gpus 1 slots 2"]);
            demands(&admitted.others(&own, &waiting, &lookup))
        })
    };
    let expected = [
        demand(&[], 1),
        demand(&[], 1),
        demand(&[2], 1),
        demand(&[2], 2),
        demand(&[5], 1),
    ];
    assert_eq!(others(&list), expected);
    let reversed: Vec<ListedPod> = list.into_iter().rev().collect();
    assert_eq!(others(&reversed), expected);
}

/// The post's two jobs, both admitted, whichever ADD comes first: from the kubelet's answer to
/// rails.
#[test]
fn the_posts_jobs_do_not_take_each_others_rails() {
    let job = |gpus: &[u16], slots: std::ops::Range<u16>| {
        vec![
            grant("main", GPU, gpus),
            grant("main", RAIL, &slots.collect::<Vec<_>>()),
        ]
    };
    let (middle, edges) = (job(&[2, 3, 4, 5], 0..8), job(&[6, 7, 0, 1], 8..16));
    let list = [
        listed("middle", middle.clone()),
        listed("edges", edges.clone()),
    ];
    let checkpoint = [kept("u-middle", middle), kept("u-edges", edges)].concat();
    let waiting: BTreeSet<SlotId> = (0..16).map(SlotId).collect();
    let topology = b4_8();
    for (name, expected) in [
        ("middle", [4, 5, 6, 7, 8, 9, 10, 11]),
        ("edges", [0, 1, 2, 3, 12, 13, 14, 15]),
    ] {
        let (own, others) = ask(&list, Some(&checkpoint), |admitted| {
            let own = admitted
                .own(&pod(name, &format!("u-{name}")), &lookup)
                .unwrap();
            let others = admitted.others(&own, &waiting, &lookup);
            (own, demands(&others))
        });
        let plan = bind(&node(&topology), &own.parts[0].demand(), &others).unwrap();
        assert_eq!(indexes(&plan.own), expected);
    }
}

fn demands(others: &[Other]) -> Vec<Demand> {
    Other::without(others, &BTreeSet::new())
}

#[test]
fn what_was_bound_since_is_not_waited_for_twice() {
    let list = [
        listed(
            "near",
            vec![grant("main", RAIL, &[2, 3]), grant("main", GPU, &[1])],
        ),
        listed(
            "far",
            vec![grant("main", RAIL, &[4]), grant("main", GPU, &[7])],
        ),
    ];
    let waiting: BTreeSet<SlotId> = (0..8).map(SlotId).collect();
    let own = Own::default();
    let others = ask(&list, None, |admitted| {
        admitted.others(&own, &waiting, &lookup)
    });
    assert_eq!(demands(&others), [demand(&[1], 2), demand(&[7], 1)]);
    let bound = [SlotId(2), SlotId(3), SlotId(6)].into();
    assert_eq!(Other::without(&others, &bound), [demand(&[7], 1)]);
}

fn any_grant() -> impl Strategy<Value = DeviceGrant> {
    let container = prop_oneof!["[a-c]", Just(String::new())];
    let resource = prop_oneof![Just(RAIL.to_owned()), Just(GPU.to_owned()), any::<String>()];
    let id = prop_oneof![
        4 => (0..20u16).prop_map(|slot| SlotId(slot).to_string()),
        2 => (0..8usize).prop_map(|gpu| b4_8().gpus[gpu].path.function.to_string()),
        1 => any::<String>(),
    ];
    (container, resource, prop::collection::vec(id, 0..6)).prop_map(|(container, resource, ids)| {
        DeviceGrant {
            container,
            resource,
            ids,
        }
    })
}

fn any_list() -> impl Strategy<Value = Vec<ListedPod>> {
    let pod = ("job|other", prop::collection::vec(any_grant(), 0..5));
    let pod = pod.prop_map(|(name, devices)| listed(&name, devices));
    prop::collection::vec(pod, 0..4)
}

fn any_checkpoint() -> impl Strategy<Value = Option<Vec<CheckpointGrant>>> {
    let entry =
        ("u1|u2|", any_grant()).prop_map(|(pod_uid, grant)| CheckpointGrant { pod_uid, grant });
    prop::option::of(prop::collection::vec(entry, 0..6))
}

proptest! {
    #[test]
    fn any_answer_gives_whole_parts_or_a_refusal(
        list in any_list(),
        checkpoint in any_checkpoint(),
        waiting in prop::collection::btree_set((0..20u16).prop_map(SlotId), 0..20),
    ) {
        let found = own(&list, checkpoint.as_deref(), "job", "u1");
        let mut backwards = list.clone();
        backwards.reverse();
        backwards.iter_mut().for_each(|pod| pod.devices.reverse());
        let again = own(&backwards, checkpoint.as_deref(), "job", "u1");
        let (Ok(found), Ok(again)) = (&found, &again) else {
            prop_assert_eq!(found.is_err(), again.is_err());
            return Ok(());
        };
        prop_assert_eq!(&found.parts, &again.parts);
        let slots: Vec<SlotId> = found.parts.iter().flat_map(|part| part.slots.clone()).collect();
        let distinct: BTreeSet<SlotId> = slots.iter().copied().collect();
        prop_assert_eq!(slots.len(), distinct.len());
        prop_assert!(slots.iter().all(|slot| slot.0 < 16));
        let others = ask(&list, checkpoint.as_deref(), |all| demands(&all.others(found, &waiting, &lookup)));
        let wanted: usize = others.iter().map(|other| usize::from(other.rails)).sum();
        prop_assert!(wanted <= waiting.difference(&distinct).count());
        let backwards = ask(&backwards, checkpoint.as_deref(), |all| demands(&all.others(found, &waiting, &lookup)));
        let total: usize = backwards.iter().map(|other| usize::from(other.rails)).sum();
        prop_assert_eq!(wanted, total);
    }
}
