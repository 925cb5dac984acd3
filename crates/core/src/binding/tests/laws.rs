//! Laws that hold for any node, whatever the numbers.

use super::nodes::*;
use super::oracle::scene;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_gpus_and_of_other_pods_does_not_matter(scene in scene(), turn in 0..4usize) {
        let node = scene.node();
        let mut turned = scene.demands.clone();
        for demand in &mut turned {
            let by = turn.min(demand.gpus.len());
            demand.gpus.rotate_left(by);
        }
        turned[1..].reverse();
        let plan = bind(&node, &scene.demands[0], &scene.demands[1..]);
        let other = bind(&node, &turned[0], &turned[1..]);
        match (plan, other) {
            (Ok(plan), Ok(other)) => prop_assert_eq!(plan.own, other.own),
            (plan, other) => prop_assert_eq!(plan.err(), other.err()),
        }
    }

    #[test]
    fn there_is_an_answer_exactly_while_enough_rails_are_free(scene in scene()) {
        let node = scene.node();
        let free = scene.topology.rails.iter().filter(|rail| {
            let held = node.bound.iter().flat_map(|b| &b.rails).filter(|held| **held == rail.index);
            !node.unusable.contains_key(&rail.index) && held.count() < usize::from(scene.shares)
        });
        let enough = free.count() >= usize::from(scene.demands[0].rails);
        let plan = bind(&node, &scene.demands[0], &scene.demands[1..]);
        prop_assert_eq!(plan.is_ok(), enough);
        let Ok(plan) = plan else { return Ok(()) };
        prop_assert_eq!(plan.own.missing, 0);
        for (demand, choice) in scene.demands.iter().zip(std::iter::once(&plan.own).chain(&plan.others)) {
            let rails: BTreeSet<RailIndex> = choice.indexes().collect();
            prop_assert_eq!(rails.len(), choice.rails.len(), "a rail twice");
            prop_assert_eq!(rails.len() + usize::from(choice.missing), usize::from(demand.rails));
            prop_assert!(choice.indexes().is_sorted());
            prop_assert!(choice.rails.iter().all(|rail| rail.serves.is_none() == demand.gpus.is_empty()));
        }
        for rail in &scene.topology.rails {
            let planned = std::iter::once(&plan.own).chain(&plan.others);
            let taken = planned.flat_map(Choice::indexes).filter(|taken| *taken == rail.index).count();
            let held = node.bound.iter().flat_map(|b| &b.rails).filter(|held| **held == rail.index).count();
            prop_assert!(taken == 0 || taken + held <= usize::from(scene.shares));
        }
    }

    #[test]
    fn a_nic_that_cannot_be_used_changes_nothing(scene in scene()) {
        let plan = bind(&scene.node(), &scene.demands[0], &scene.demands[1..]);
        let mut more = scene.clone();
        let index = more.topology.rails.len() as u16;
        let place = path("70", None, "0000:71:00.0", &[]);
        more.topology.rails.push(rail(index, place));
        more.topology.rails[usize::from(index)].link = LinkState::Down;
        let other = bind(&more.node(), &scene.demands[0], &scene.demands[1..]);
        prop_assert_eq!(plan.ok(), other.ok());
    }

    #[test]
    fn others_get_what_was_planned_for_them_once_the_own_pod_is_bound(scene in scene()) {
        let node = scene.node();
        let Ok(plan) = bind(&node, &scene.demands[0], &scene.demands[1..]) else { return Ok(()) };
        let Some((next, rest)) = scene.demands[1..].split_first() else { return Ok(()) };
        let promised: usize = plan.others.iter().map(|choice| usize::from(choice.missing)).sum();
        prop_assume!(promised == 0);
        let mut later = node.clone();
        later.bound.push(Bound {
            sandbox: SandboxId::parse("own").unwrap(),
            gpus: scene.demands[0].gpus.clone(),
            rails: plan.own.indexes().collect(),
        });
        let second = bind(&later, next, rest).unwrap();
        prop_assert!(second.others.iter().all(|choice| choice.missing == 0));
    }
}
