//! Pods of several containers and with annotations, on real machines' nodes.

use super::super::*;
use crate::binding::tests::nodes::{b4_8, bound, demand, h100_8, live};
use crate::config::{Config, PoolSettings};
use crate::networks;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

fn pool() -> Pool {
    let settings = PoolSettings {
        name: "rails".into(),
        subnets: vec!["10.239.0.0/16".parse().unwrap()],
        block_size: None,
        block: 0,
        exclude: vec![],
        gateways: vec![],
    };
    Pool::new("pool", &settings).unwrap()
}

fn part(container: &str, gpus: &[usize], slots: impl IntoIterator<Item = u16>) -> Part {
    let slots: Vec<SlotId> = slots.into_iter().map(SlotId).collect();
    Part {
        containers: vec![container.to_owned()],
        gpus: gpus.to_vec(),
        rails: u16::try_from(slots.len()).unwrap(),
        slots,
        ..Part::default()
    }
}

fn pod(parts: Vec<Part>) -> PodWish {
    PodWish {
        sandbox: SandboxId::parse("pod-1").unwrap(),
        parts,
        networks: Wanted::default(),
        previous_rp_filter: None,
    }
}

/// With an annotation about networks `r0`, `r1`, ...
fn annotated(parts: Vec<Part>, topology: &Topology, text: &str) -> PodWish {
    let document = json!({ "networks": [{ "name": "r{rail}" }] });
    let config = Config::from_document(document).unwrap();
    let elements = networks::parse(text).unwrap();
    let networks = Wanted::of(&elements, "default", &config.networks, topology).unwrap();
    PodWish {
        networks,
        ..pod(parts)
    }
}

fn decided(
    topology: &Topology,
    shares: u16,
    held: &Held,
    wish: &PodWish,
    others: &[Demand],
) -> Result<Attachment, DecideError> {
    let settings = RailSettings {
        shares,
        ..RailSettings::default()
    };
    let means = Means {
        topology,
        settings: &settings,
        pool: &pool(),
    };
    decide_pod(&means, held, wish, others).map(|decision| decision.attachment)
}

fn attached(topology: &Topology, wish: &PodWish) -> Attachment {
    decided(topology, 1, &Held::default(), wish, &[]).unwrap()
}

fn indexes(attachment: &Attachment) -> Vec<u16> {
    attachment.rails.iter().map(|rail| rail.index.0).collect()
}

/// Rails of one container.
fn rails_of(attachment: &Attachment, container: &str) -> Vec<u16> {
    let rails = attachment.rails.iter();
    rails
        .filter(|rail| rail.containers.iter().any(|name| name == container))
        .map(|rail| rail.index.0)
        .collect()
}

fn interfaces(attachment: &Attachment) -> Vec<String> {
    let rails = attachment.rails.iter();
    rails
        .map(|rail| format!("{}:{}", rail.index, rail.interface))
        .collect()
}

#[test]
fn the_posts_two_jobs_whoever_binds_first() {
    let topology = live(b4_8());
    let jobs = [
        ("middle", vec![2, 3, 4, 5], vec![4, 5, 6, 7, 8, 9, 10, 11]),
        ("edges", vec![0, 1, 6, 7], vec![0, 1, 2, 3, 12, 13, 14, 15]),
    ];
    for order in [[0, 1], [1, 0]] {
        let [(first, gpus, rails), (_, later_gpus, later_rails)] = order.map(|at| jobs[at].clone());
        let wish = pod(vec![part(first, &gpus, 0..8)]);
        let others = [demand(&later_gpus, 8)];
        let early = decided(&topology, 1, &Held::default(), &wish, &others).unwrap();
        assert_eq!(
            (indexes(&early), early.near(), early.exact),
            (rails.clone(), 8, true)
        );
        let held = Held {
            bound: vec![bound("early", &gpus, rails)],
            ..Held::default()
        };
        let wish = pod(vec![part("later", &later_gpus, 8..16)]);
        let later = decided(&topology, 1, &held, &wish, &[]).unwrap();
        assert_eq!((indexes(&later), later.near()), (later_rails, 8));
    }
}

#[test]
fn four_gpus_take_all_sixteen_rails() {
    let attachment = attached(
        &live(b4_8()),
        &pod(vec![part("main", &[0, 1, 2, 3], 0..16)]),
    );
    assert_eq!((attachment.rails.len(), attachment.near()), (16, 8));
}

#[test]
fn slots_become_rails_in_order() {
    let topology = live(b4_8());
    let wish = pod(vec![part("b", &[2], [9, 3]), part("a", &[0], [1, 7])]);
    let attachment = attached(&topology, &wish);
    let lines: Vec<String> = attachment
        .rails
        .iter()
        .map(|rail| {
            format!(
                "{} {} {}",
                rail.index,
                rail.slot.unwrap(),
                rail.containers.concat()
            )
        })
        .collect();
    assert_eq!(
        lines,
        ["0 slot-01 a", "1 slot-07 a", "4 slot-03 b", "5 slot-09 b"]
    );
}

#[test]
fn a_slot_that_was_lent_names_both_containers() {
    let mut own = part("main", &[0], [1, 2]);
    own.lent.insert(SlotId(2), vec!["init".into()]);
    let attachment = attached(&live(b4_8()), &pod(vec![own]));
    let containers = attachment
        .rails
        .iter()
        .map(|rail| rail.containers.join("+"));
    assert_eq!(containers.collect::<Vec<_>>(), ["main", "main+init"]);
}

#[test]
fn containers_do_not_take_each_others_rails() {
    let topology = live(h100_8());
    let wish = pod(vec![
        part("proxy", &[], 0..2),
        part("right", &[1], 2..4),
        part("left", &[0], 4..6),
    ]);
    let attachment = attached(&topology, &wish);
    assert_eq!(rails_of(&attachment, "left"), [0, 1]);
    assert_eq!(rails_of(&attachment, "right"), [2, 3]);
    assert_eq!(attachment.near(), 4);
    let proxy = &attachment.rails[4..];
    assert!(
        proxy
            .iter()
            .all(|rail| rail.gpu.is_none() && rail.distance.is_none())
    );
    assert_eq!(attachment.gpus.len(), 2);
}

#[test]
fn containers_that_share_the_pods_gpus() {
    let wish = pod(vec![part("a", &[0, 1], 0..2), part("b", &[0, 1], 2..4)]);
    let attachment = attached(&live(b4_8()), &wish);
    assert_eq!(
        (indexes(&attachment), attachment.near()),
        (vec![0, 1, 2, 3], 4)
    );
    assert_eq!(rails_of(&attachment, "a"), [0, 1]);
}

#[test]
fn a_pod_never_has_a_shared_rail_twice() {
    let topology = live(b4_8());
    let wish = pod(vec![part("a", &[0], 0..4), part("b", &[0], 4..8)]);
    let attachment = decided(&topology, 4, &Held::default(), &wish, &[]).unwrap();
    let distinct: BTreeSet<u16> = indexes(&attachment).into_iter().collect();
    assert_eq!((attachment.rails.len(), distinct.len()), (8, 8));
    assert_eq!(attachment.near(), 4);
}

#[test]
fn too_many_for_all_containers_together() {
    let topology = live(b4_8());
    let held = Held {
        bound: vec![bound("old", &[0], 0..4)],
        ..Held::default()
    };
    let wish = pod(vec![part("a", &[2], 0..8), part("b", &[4], 8..16)]);
    let error = decided(&topology, 1, &held, &wish, &[]).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        cause,
        "16 rails asked for, 12 can be had: held by 4x old; unusable: none"
    );
}

#[test]
fn the_posts_annotation_does_not_change_the_choice() {
    let topology = live(b4_8());
    let all: Vec<String> = (0..16).map(|rail| format!("r{rail}")).collect();
    for (gpus, rails) in [
        (vec![0, 1, 6, 7], 8),
        (vec![2, 3], 4),
        (vec![4, 5], 3),
        (vec![], 5),
    ] {
        let parts = || vec![part("main", &gpus, 0..rails)];
        let plain = attached(&topology, &pod(parts()));
        let named = attached(&topology, &annotated(parts(), &topology, &all.join(",")));
        assert_eq!(plain, named);
        for rail in &named.rails {
            assert_eq!(rail.interface, rail.index.default_interface());
        }
    }
}

#[test]
fn only_named_rails_if_they_are_enough() {
    let topology = live(b4_8());
    let parts = || vec![part("main", &[0], 0..2)];
    let wish = annotated(parts(), &topology, "x,r9@ib9,r8,r15");
    let attachment = attached(&topology, &wish);
    // No rail near GPU 0 is named: the whole NIC among the equally far ones.
    assert_eq!(interfaces(&attachment), ["8:net3", "9:ib9"]);
    let held = Held {
        bound: vec![bound("old", &[4], [8, 9])],
        ..Held::default()
    };
    let error = decided(&topology, 1, &held, &wish, &[]).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.starts_with(
            "2 rails asked for, 1 can be had: held by 2x old; unusable: rail 0: not named by"
        ),
        "{cause}"
    );
    assert!(error.hint().starts_with("name more rails"));
}

#[test]
fn another_pods_needs_do_not_push_a_pod_off_its_named_rails() {
    let topology = live(b4_8());
    let wish = annotated(vec![part("main", &[0], 0..2)], &topology, "r0,r1,r12,r13");
    let others = [demand(&[1], 2)];
    let attachment = decided(&topology, 1, &Held::default(), &wish, &others).unwrap();
    assert_eq!(indexes(&attachment), [0, 1]);
}

#[test]
fn all_named_rails_and_more_if_they_are_not_enough() {
    let topology = live(b4_8());
    let parts = || {
        vec![
            part("a", &[0, 2], 0..4),
            part("b", &[4], 4..6),
            part("c", &[], 6..8),
        ]
    };
    let attachment = attached(&topology, &annotated(parts(), &topology, "r10@x,r2"));
    // GPU 0 keeps its share of two with rail 2, and so does GPU 4 with rail 10.
    let rails = |container| rails_of(&attachment, container);
    assert!(
        rails("a").contains(&2) && rails("b").contains(&10),
        "{:?}",
        interfaces(&attachment)
    );
    assert_eq!(attachment.near(), 6, "{:?}", interfaces(&attachment));
    assert!(interfaces(&attachment).contains(&"10:x".to_owned()));
    assert!(interfaces(&attachment).contains(&"2:net2".to_owned()));
    let held = Held {
        bound: vec![bound("old", &[4], [10])],
        ..Held::default()
    };
    let wish = annotated(parts(), &topology, "r10,r2");
    let error = decided(&topology, 1, &held, &wish, &[]).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.starts_with("2 rails asked for, 1 can be had: held by 1x old"),
        "{cause}"
    );
}

#[test]
fn names_that_clash_move_on() {
    let topology = live(b4_8());
    // Rail 12 is called net1, the macvlan net2: rails 0 and 1, which are not named, move on.
    let parts = vec![part("main", &[0, 6], 0..4)];
    let attachment = attached(
        &topology,
        &annotated(parts, &topology, "r12,macvlan,y@net3"),
    );
    assert_eq!(
        interfaces(&attachment),
        ["0:net4", "1:net5", "12:net1", "13:net14"]
    );
}

/// A node by name, GPUs per container, slots per container.
fn shapes() -> impl Strategy<Value = (bool, Vec<Vec<usize>>, Vec<u16>)> {
    let gpus = prop::collection::vec(prop::option::weighted(0.8, 0..3usize), 8);
    let rails = prop::collection::vec(0..6u16, 3);
    (any::<bool>(), gpus, rails).prop_map(|(b4, owners, rails)| {
        let of = |container| {
            let gpus = owners.iter().enumerate();
            gpus.filter(|(_, owner)| **owner == Some(container))
                .map(|(gpu, _)| gpu)
                .collect()
        };
        (b4, (0..3).map(of).collect(), rails)
    })
}

fn containers(gpus: &[Vec<usize>], rails: &[u16]) -> Vec<Part> {
    let mut first = 0;
    let named = ["a", "b", "c"].iter().zip(gpus.iter().zip(rails));
    named
        .map(|(name, (gpus, rails))| {
            let slots = first..first + rails;
            first += rails;
            part(name, gpus, slots)
        })
        .collect()
}

fn check_whole(attachment: &Attachment, parts: &[Part]) {
    let mut by_container: BTreeMap<&str, Vec<&HeldRail>> = BTreeMap::new();
    for rail in &attachment.rails {
        assert_eq!(rail.containers.len(), 1);
        by_container
            .entry(&rail.containers[0])
            .or_default()
            .push(rail);
    }
    let distinct: BTreeSet<u16> = indexes(attachment).into_iter().collect();
    let names: BTreeSet<&IfName> = attachment
        .rails
        .iter()
        .map(|rail| &rail.interface)
        .collect();
    let total: usize = parts.iter().map(|part| usize::from(part.rails)).sum();
    assert_eq!(
        (attachment.rails.len(), distinct.len(), names.len()),
        (total, total, total)
    );
    for part in parts {
        let rails = by_container.get(part.containers[0].as_str());
        let slots: Vec<SlotId> = rails.into_iter().flatten().filter_map(|r| r.slot).collect();
        assert_eq!(slots, part.slots);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_is_whole_and_without_order(
        (b4, gpus, rails) in shapes(),
        (others, named) in (0..3u16, prop::collection::btree_set(0..16u16, 0..16)),
        seed in any::<u64>(),
    ) {
        let topology = live(if b4 { b4_8() } else { h100_8() });
        let parts = containers(&gpus, &rails);
        let text: Vec<String> = named.iter().map(|rail| format!("r{rail}")).collect();
        let others = vec![demand(&[], others), demand(&[7], 1)];
        let wish = annotated(parts.clone(), &topology, &text.join(","));
        let attachment = decided(&topology, 1, &Held::default(), &wish, &others).unwrap();
        check_whole(&attachment, &parts);
        let held: BTreeSet<u16> = indexes(&attachment).into_iter().collect();
        let among = held.intersection(&named).count();
        prop_assert_eq!(among, named.len().min(held.len()));
        let mut mixed = wish;
        mixed.parts.rotate_left(usize::try_from(seed % 3).unwrap());
        for part in &mut mixed.parts {
            part.gpus.reverse();
            part.slots.reverse();
        }
        let reversed: Vec<Demand> = others.into_iter().rev().collect();
        let again = decided(&topology, 1, &Held::default(), &mixed, &reversed).unwrap();
        prop_assert_eq!(attachment, again);
    }

    #[test]
    fn two_rails_per_gpu_are_all_near((b4, gpus, _) in shapes()) {
        let topology = live(if b4 { b4_8() } else { h100_8() });
        let rails: Vec<u16> = gpus.iter().map(|own| u16::try_from(own.len() * 2).unwrap()).collect();
        let attachment = attached(&topology, &pod(containers(&gpus, &rails)));
        prop_assert_eq!(attachment.near(), attachment.rails.len());
        prop_assert!(attachment.exact);
    }
}
