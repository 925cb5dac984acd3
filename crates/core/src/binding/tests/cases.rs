//! The post's nodes: what users ran into, and the right answer.

use super::nodes::*;
use super::*;
use crate::ids::PciAddr;

fn rails(range: std::ops::RangeInclusive<u16>) -> Vec<u16> {
    range.collect()
}

fn own(node: &Node<'_>, gpus: &[usize], count: u16) -> Vec<u16> {
    let plan = bind(node, &demand(gpus, count), &[]).unwrap();
    assert!(plan.exact);
    indexes(&plan.own)
}

fn near_first() -> (Demand, Vec<u16>) {
    let expected = [rails(0..=3), rails(12..=15)].concat();
    (demand(&[0, 1, 6, 7], 8), expected)
}

#[test]
fn the_posts_two_jobs_get_the_rails_next_to_their_gpus() {
    let topology = b4_8();
    let ((first, near), second) = (near_first(), demand(&[2, 3, 4, 5], 8));
    for (one, other) in [(&first, &second), (&second, &first)] {
        let mut node = node(&topology);
        let expected = |d: &Demand| {
            if *d == first {
                near.clone()
            } else {
                rails(4..=11)
            }
        };
        let both = bind(&node, one, std::slice::from_ref(other)).unwrap();
        assert_eq!(indexes(&both.own), expected(one));
        assert_eq!(indexes(&both.others[0]), expected(other));
        assert_eq!((both.own.near(), both.own.at(Level::Root)), (8, 8));
        let alone = bind(&node, one, &[]).unwrap();
        assert_eq!(alone.own, both.own);
        node.bound.push(bound("first", &one.gpus, expected(one)));
        assert_eq!(bind(&node, other, &[]).unwrap().own, both.others[0]);
    }
}

#[test]
fn h100_takes_the_nics_of_the_gpus_and_none_of_their_numa_neighbours() {
    let topology = h100_8();
    let node = node(&topology);
    let plan = bind(&node, &demand(&[0, 1], 4), &[]).unwrap();
    let chosen: Vec<String> = plan
        .own
        .indexes()
        .map(|rail| topology.rail(rail).unwrap().path.function.to_string())
        .collect();
    assert_eq!(
        chosen,
        [
            "0000:0c:00.0",
            "0000:0c:00.1",
            "0000:2a:00.0",
            "0000:2a:00.1"
        ]
    );
    assert_eq!(own(&node, &[5], 2), [10, 11]);
    assert_eq!(own(&node, &[7, 4], 4), [8, 9, 14, 15]);
}

#[test]
fn more_rails_than_are_near_are_the_nearest_and_said_to_be_far() {
    let topology = b4_8();
    let plan = bind(&node(&topology), &demand(&[0, 1, 2, 3], 16), &[]).unwrap();
    assert_eq!(indexes(&plan.own), rails(0..=15));
    assert_eq!(plan.own.near(), 8);
    assert_eq!(
        plan.own.at(Level::Socket),
        0,
        "sockets: GPUs 0-3 on one, the other rails on the other"
    );
    assert_eq!(plan.own.at(Level::Any), 8);
}

#[test]
fn equal_shares_tell_each_rail_its_gpu() {
    let topology = b4_8();
    let plan = bind(&node(&topology), &near_first().0, &[]).unwrap();
    let served: Vec<usize> = plan
        .own
        .rails
        .iter()
        .map(|rail| rail.serves.unwrap().gpu)
        .collect();
    for gpu in [0, 1, 6, 7] {
        assert_eq!(
            served.iter().filter(|served| **served == gpu).count(),
            2,
            "GPU {gpu}"
        );
    }
    for chosen in &plan.own.rails {
        let (served, rail) = (chosen.serves.unwrap(), topology.rail(chosen.rail).unwrap());
        let distance = topology.distance(&topology.gpus[served.gpu].path, &rail.path);
        assert_eq!(served.distance, distance);
    }
}

#[test]
fn the_ports_of_a_nic_stay_together_unless_the_count_is_odd() {
    let topology = b4_8();
    let node = node(&topology);
    assert_eq!(own(&node, &[0], 1), [0]);
    assert_eq!(own(&node, &[0], 2), [0, 1]);
    assert_eq!(own(&node, &[0], 3), [0, 1, 2]);
    assert_eq!(own(&node, &[0], 4), rails(0..=3));
    // The next nearest are those of the same socket, and still a whole NIC.
    assert_eq!(own(&node, &[0], 5), rails(0..=4));
    assert_eq!(own(&node, &[0], 6), rails(0..=5));
}

#[test]
fn a_broken_nic_is_filled_before_another_is_broken() {
    let topology = b4_8();
    let mut node = node(&topology);
    let odd = demand(&[0], 1);
    let chosen = in_turn(&mut node, &[odd.clone(), demand(&[1], 1), demand(&[2], 3)]);
    let chosen: Vec<Vec<u16>> = chosen.iter().map(indexes).collect();
    assert_eq!(chosen, [vec![0], vec![1], vec![4, 5, 6]]);
    // rdma7 is the only odd one left, and as far as all others.
    node.bound.push(bound("numa-3", &[], [2, 3]));
    assert_eq!(own(&node, &[3], 1), [7]);
}

#[test]
fn a_whole_nic_counts_more_than_bridges_and_less_than_distance() {
    let topology = b4_8();
    let mut node = node(&topology);
    node.bound.push(bound("other", &[], [1]));
    assert_eq!(own(&node, &[0], 2), [2, 3], "rdma0 lost its other port");
    node.bound.push(bound("another", &[], [3]));
    assert_eq!(
        own(&node, &[0], 2),
        [0, 2],
        "two odd ports next to the GPU, no whole NIC there"
    );
}

#[test]
fn pods_without_gpus_leave_the_rails_of_free_gpus_alone() {
    let topology = b4_8();
    let mut node = node(&topology);
    // GPUs 0 and 1 are in use by a pod without rails: nobody wants rdma0-3.
    node.bound.push(bound("no-rails", &[0, 1], []));
    assert_eq!(own(&node, &[], 2), [0, 1]);
    assert_eq!(own(&node, &[], 4), rails(0..=3));
    assert_eq!(own(&node, &[], 8).len(), 8);
    // And with GPUs 4 and 5 in use, rdma8-11 are free to take too.
    node.bound.push(bound("no-rails-2", &[4, 5], []));
    assert_eq!(own(&node, &[], 8), [rails(0..=3), rails(8..=11)].concat());
    // A pod that still waits for those rails goes first.
    let waiting = [demand(&[0, 1], 4)];
    node.bound.clear();
    let plan = bind(&node, &demand(&[], 8), &waiting).unwrap();
    assert_eq!(indexes(&plan.others[0]), rails(0..=3));
    assert!(indexes(&plan.own).iter().all(|rail| *rail > 3));
}

#[test]
fn an_early_pod_does_not_take_the_rails_of_a_later_one() {
    let topology = b4_8();
    let node = node(&topology);
    // GPU 0 could take all four rails of its root; GPU 1 waits for its half.
    let plan = bind(&node, &demand(&[0], 2), &[demand(&[1], 2)]).unwrap();
    assert_eq!((plan.own.near(), plan.others[0].near()), (2, 2));
    // A pod with one far GPU does not push away one that is near everything.
    let plan = bind(&node, &demand(&[], 12), &[demand(&[6, 7], 4)]).unwrap();
    assert_eq!(indexes(&plan.own), rails(0..=11));
    assert_eq!(plan.others[0].near(), 4);
}

#[test]
fn shares_are_spread_before_they_are_stacked() {
    let topology = b4_8();
    let mut node = node(&topology);
    node.shares_per_rail = 2;
    node.bound.push(bound("first", &[0], [0, 1]));
    assert_eq!(own(&node, &[1], 2), [2, 3]);
    node.bound.push(bound("second", &[1], [2, 3]));
    // A near rail that is shared beats a far one that is not.
    assert_eq!(own(&node, &[0], 2), [0, 1]);
    // A pod never gets a rail twice, whatever the shares.
    let all = own(&node, &[0], 16);
    assert_eq!(all, rails(0..=15));
    node.bound.push(bound("third", &[0], all));
    let error = bind(&node, &demand(&[0], 13), &[]).unwrap_err();
    assert!(
        matches!(
            error,
            BindError::NotEnoughFree {
                asked: 13,
                free: 12,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn rails_that_are_down_are_worked_around_and_named() {
    let mut topology = b4_8();
    topology.rails[0].link = LinkState::Down;
    topology.rails[5].faults.push(RailFault::MacvlanParent);
    let mut node = node(&topology);
    assert_eq!(own(&node, &[0], 2), [2, 3]);
    assert_eq!(
        own(&node, &[0], 1),
        [1],
        "a NIC with a dead port is no whole NIC to break"
    );
    assert_eq!(own(&node, &[0, 1, 2, 3, 4, 5, 6, 7], 14).len(), 14);
    node.bound.push(bound("job-a", &[], [1, 2, 3]));
    let error = bind(&node, &demand(&[0], 12), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "12 rails asked for, 11 can be had: held by 3x job-a; \
         unusable: rail 0: link down, rail 5: a macvlan hangs on it"
    );
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let topology = b4_8();
    let node = node(&topology);
    let error = |own: Demand, others: &[Demand]| bind(&node, &own, others).unwrap_err();
    assert_eq!(
        error(demand(&[], 17), &[]).to_string(),
        "17 rails asked for, the node has 16"
    );
    assert_eq!(
        error(demand(&[8], 1), &[]),
        BindError::UnknownGpu { gpu: 8, on_node: 8 }
    );
    assert_eq!(
        error(demand(&[], 1), &[demand(&[3, 3], 1)]),
        BindError::DuplicateGpu { gpu: 3 }
    );
    let plan = bind(&node, &demand(&[0], 0), &[demand(&[0], 2)]).unwrap();
    assert_eq!(plan.own, Choice::default());
    assert_eq!(indexes(&plan.others[0]), [0, 1]);
}

#[test]
fn others_that_no_longer_fit_go_short_and_the_own_pod_does_not() {
    let topology = b4_8();
    let node = node(&topology);
    let plan = bind(
        &node,
        &demand(&[0], 10),
        &[demand(&[6], 4), demand(&[2], 6)],
    )
    .unwrap();
    assert_eq!(plan.own.rails.len(), 10);
    let others: u16 = plan.others.iter().map(|choice| choice.missing).sum();
    assert_eq!(others, 4);
    let found: usize = plan.others.iter().map(|choice| choice.rails.len()).sum();
    assert_eq!(found, 6);
}

#[test]
fn an_override_moves_a_gpu() {
    let topology = b4_8();
    let far_root = |nic: &str| Override {
        gpu: PciAddr::parse("0000:0f:00.0").unwrap(),
        nic: crate::ids::NicId::parse(nic).unwrap(),
        level: Level::Switch,
    };
    let overrides = [far_root("0000:c3:00"), far_root("0000:d1:00")];
    let mut node = node(&topology);
    node.overrides = &overrides;
    let plan = bind(&node, &demand(&[0], 4), &[]).unwrap();
    assert_eq!(indexes(&plan.own), rails(12..=15));
    assert_eq!(plan.own.at(Level::Switch), 4);
    assert_eq!(own(&node, &[1], 4), rails(0..=3));
}

#[test]
fn without_numa_nodes_the_roots_still_count() {
    let topology = without_numa(b4_8());
    let node = node(&topology);
    let (first, near) = near_first();
    let plan = bind(&node, &first, &[]).unwrap();
    assert_eq!(indexes(&plan.own), near);
    let far = bind(&node, &demand(&[0], 6), &[]).unwrap();
    assert_eq!((far.own.near(), far.own.at(Level::Any)), (4, 2));
}

#[test]
fn a_switch_is_nearer_than_its_root() {
    let topology = s8();
    let node = node(&topology);
    assert_eq!(own(&node, &[2, 3], 2), [2, 3]);
    let plan = bind(&node, &demand(&[2, 3], 4), &[]).unwrap();
    assert_eq!(indexes(&plan.own), rails(0..=3));
    assert_eq!(
        (plan.own.at(Level::Switch), plan.own.at(Level::Root)),
        (2, 2)
    );
}

#[test]
fn fewer_bridges_decide_between_equal_levels() {
    let below = |function: &str, bridges: &[&str]| {
        let bridges: Vec<String> = bridges.iter().map(|b| format!("0000:10:{b}.0")).collect();
        path("10", None, function, &bridges)
    };
    let mut topology = Topology::default();
    topology.gpus.push(gpu(below("0000:20:00.0", &["01"])));
    topology
        .gpus
        .push(gpu(below("0000:21:00.0", &["01", "02"])));
    let deep = ["01", "02", "03"];
    for (index, function, bridges) in [
        (0, "0000:30:00.0", &deep[..]),
        (1, "0000:31:00.0", &deep[..1]),
        (2, "0000:32:00.0", &deep[..1]),
    ] {
        topology.rails.push(rail(index, below(function, bridges)));
    }
    let node = node(&topology);
    assert_eq!(own(&node, &[0], 1), [1]);
    assert_eq!(own(&node, &[1], 1), [0]);
    let both = bind(&node, &demand(&[0, 1], 2), &[]).unwrap().own;
    let served: Vec<(u16, usize)> = both
        .rails
        .iter()
        .map(|chosen| (chosen.rail.0, chosen.serves.unwrap().gpu))
        .collect();
    assert_eq!(served, [(0, 1), (1, 0)]);
    assert_eq!(both.at(Level::Switch), 2);
}

#[test]
fn rails_that_the_node_no_longer_has_are_ignored() {
    let topology = b4_8();
    let mut node = node(&topology);
    node.bound.push(bound("old", &[31], [99]));
    node.unusable
        .insert(RailIndex(98), Unusable::Other("gone".into()));
    assert_eq!(own(&node, &[0], 2), [0, 1]);
    node.shares_per_rail = 0;
    let error = bind(&node, &demand(&[0], 1), &[]).unwrap_err();
    assert!(matches!(error, BindError::NotEnoughFree { free: 0, .. }));
    assert!(
        error.to_string().ends_with("held by none; unusable: none"),
        "{error}"
    );
}

#[test]
fn more_others_than_can_be_planned_are_said_to_be_left_out() {
    let topology = b4_8();
    let crowd = vec![demand(&[], 1); 40];
    let plan = bind(&node(&topology), &demand(&[0], 4), &crowd).unwrap();
    assert!(!plan.exact);
    assert_eq!(indexes(&plan.own), rails(0..=3));
    assert_eq!(plan.others.len(), 40);
    let missing: u16 = plan.others.iter().map(|choice| choice.missing).sum();
    assert_eq!(missing, 40 - 12);
    let greedy = [demand(&[], u16::MAX)];
    let plan = bind(&node(&topology), &demand(&[0], 4), &greedy).unwrap();
    assert_eq!(plan.others[0].missing, u16::MAX - 12);
}
