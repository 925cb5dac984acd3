//! The models against cases with a known answer, and the claims of the traces.

use super::*;
use podrail_core::ids::RailIndex;
use podrail_core::topology::{Level, NumaNode};
use podrail_lab::{SHAPES, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

const SEED: u64 = 3;

fn node(name: &str) -> Topology {
    topology(&Shape::named(name).unwrap()).unwrap()
}

fn request(pod: PodId, gpus: &[usize], rails: u16) -> Request {
    Request {
        pod,
        gpus: gpus.to_vec(),
        rails,
    }
}

fn rails(range: RangeInclusive<u16>) -> Vec<RailIndex> {
    range.map(RailIndex).collect()
}

fn grant(gpus: &[usize], rails: &[u16]) -> Grant {
    let rails = rails.iter().copied().map(RailIndex).collect();
    Grant::new(gpus.to_vec(), rails)
}

fn grants(allocator: Allocator, topology: &Topology, jobs: &[Request]) -> Vec<Grant> {
    let outcomes = allocator.place_all(topology, jobs, SEED);
    outcomes.into_iter().map(|o| o.unwrap().0).collect()
}

/// The two jobs of the published test, GPUs as in its run without a policy.
fn two_jobs() -> [Request; 2] {
    [request(1, &[2, 3, 4, 5], 8), request(2, &[0, 1, 6, 7], 8)]
}

mod shapes {
    use super::*;

    fn levels(topology: &Topology, gpu: usize) -> Vec<Level> {
        let gpu = &topology.gpus[gpu].path;
        let rails = topology.rails.iter();
        rails
            .map(|rail| topology.distance(gpu, &rail.path).level)
            .collect()
    }

    #[test]
    fn a_shape_has_the_lab_s_addresses_in_its_order() {
        for name in SHAPES {
            let (shape, topology) = (Shape::named(name).unwrap(), node(name));
            let ports = shape.rails();
            let expected: Vec<_> = ports
                .iter()
                .map(|port| (port.pci.clone(), port.netdev.clone(), port.rdma.clone()))
                .collect();
            let found = topology.rails.iter().map(|rail| {
                let (netdev, rdma) = (rail.netdev.as_ref(), rail.rdma.as_ref());
                let name = |of: Option<String>| of.unwrap();
                (
                    rail.path.function.to_string(),
                    name(netdev.map(ToString::to_string)),
                    name(rdma.map(ToString::to_string)),
                )
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{name}");
            let gpus: Vec<_> = shape.gpus().into_iter().map(|gpu| gpu.pci).collect();
            let found = topology
                .gpus
                .iter()
                .map(|gpu| gpu.path.function.to_string());
            assert_eq!(found.collect::<Vec<_>>(), gpus, "{name}");
        }
    }

    #[test]
    fn s8_has_every_distance() {
        use Level::{Any, Numa, Root, Switch};
        let topology = node("S8");
        let expected = [Switch, Switch, Numa, Numa, Any, Any, Any, Any];
        assert_eq!(levels(&topology, 0), expected);
        assert_eq!(levels(&topology, 2)[2..4], [Root, Root]);
        assert_eq!(levels(&topology, 4)[4..], [Switch, Root, Numa, Numa]);
    }

    #[test]
    fn b4_8_has_two_gpus_and_four_rails_on_a_root() {
        let levels = levels(&node("B4.8"), 6);
        assert_eq!(levels[12..], [Level::Root; 4]);
        assert_eq!(levels[8..12], [Level::Socket; 4]);
        assert_eq!(levels[..8], [Level::Any; 8]);
    }
}

mod measure {
    use super::*;

    #[test]
    fn the_published_run_without_a_policy_had_three_of_eight_near() {
        let topology = node("B4.8");
        let mut machine = Machine::new(&topology);
        let first = grant(&[2, 3, 4, 5], &[1, 4, 5, 6, 12, 13, 14, 15]);
        let second = grant(&[0, 1, 6, 7], &[0, 2, 3, 7, 8, 9, 10, 11]);
        let expected = |shared_nics| Score {
            rails: 8,
            near: 3,
            remote_gpus: 2,
            shared_nics,
            carried: 3.0,
        };
        assert_eq!(Score::of(&machine, &first), expected(0));
        machine.start(1, first);
        // rdma0 and rdma1 are one NIC, rdma6 and rdma7 another.
        assert_eq!(Score::of(&machine, &second), expected(2));
    }

    #[test]
    fn a_rail_that_only_another_gpu_reaches_does_not_carry_a_share() {
        let topology = node("B4.8");
        let machine = Machine::new(&topology);
        let score = Score::of(&machine, &grant(&[0, 2], &[0, 1, 2, 3]));
        assert_eq!((score.near, score.remote_gpus), (4, 1));
        assert!((score.carried - 2.0).abs() < 1e-9, "{}", score.carried);
        assert!((score.ceiling() - 0.5).abs() < 1e-9);
    }

    /// The largest flow by augmenting paths: code that shares nothing with the smallest cut.
    fn flow(near: &[Vec<bool>], rails: usize) -> usize {
        let gpus = near.len();
        let mut sent = vec![vec![0_usize; rails]; gpus];
        let mut total = 0;
        for gpu in 0..gpus {
            for _ in 0..rails {
                let mut seen = vec![false; rails];
                total += usize::from(augment(near, &mut sent, gpu, &mut seen));
            }
        }
        total
    }

    fn augment(near: &[Vec<bool>], sent: &mut [Vec<usize>], gpu: usize, seen: &mut [bool]) -> bool {
        for rail in 0..seen.len() {
            if !near[gpu][rail] || seen[rail] {
                continue;
            }
            seen[rail] = true;
            let used: usize = sent.iter().map(|row| row[rail]).sum();
            if used == near.len() {
                let mut others = 0..near.len();
                let yields = others
                    .find(|other| sent[*other][rail] > 0 && augment(near, sent, *other, seen));
                let Some(other) = yields else { continue };
                sent[other][rail] -= 1;
            }
            sent[gpu][rail] += 1;
            return true;
        }
        false
    }

    #[test]
    fn what_is_carried_is_the_largest_flow() {
        let mut dice = Dice::new(1);
        for name in SHAPES {
            let topology = node(name);
            let machine = Machine::new(&topology);
            for _ in 0..300 {
                let (gpus, rails) = (1 + dice.below(5), 1 + dice.below(7));
                let gpus = dice.draw(&machine.free_gpus(), gpus);
                let grant = Grant::new(gpus, dice.draw(&machine.free_rails(), rails));
                let near: Vec<Vec<bool>> = grant
                    .gpus
                    .iter()
                    .map(|gpu| near(&topology, *gpu, &grant))
                    .collect();
                let expected = share(flow(&near, rails), grant.gpus.len());
                let carried = Score::of(&machine, &grant).carried;
                assert!(
                    (carried - expected).abs() < 1e-9,
                    "{name} {grant:?}: {carried}, {expected}"
                );
            }
        }
    }

    fn near(topology: &Topology, gpu: usize, grant: &Grant) -> Vec<bool> {
        let rails = grant.rails.iter();
        rails.map(|rail| same_root(topology, gpu, *rail)).collect()
    }
}

/// "Near" in other words.
fn same_root(topology: &Topology, gpu: usize, rail: RailIndex) -> bool {
    topology.gpus[gpu].path.root == topology.rails[usize::from(rail.0)].path.root
}

mod kubelet {
    use super::*;

    #[test]
    fn any_free_rail_may_come_and_no_other() {
        let topology = node("B4.8");
        let mut machine = Machine::new(&topology);
        machine.start(1, grant(&[0], &[0, 5, 15]));
        let mut dice = Dice::new(SEED);
        let own = request(2, &[1], 2);
        let mut seen = BTreeSet::new();
        for _ in 0..500 {
            let grant = Allocator::Kubelet
                .place(&machine, &own, &[], &mut dice)
                .unwrap();
            assert_eq!(
                (grant.gpus.as_slice(), grant.rails.len()),
                ([1].as_slice(), 2)
            );
            seen.extend(grant.rails);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), machine.free_rails());
    }

    #[test]
    fn too_few_rails() {
        let topology = node("S8");
        let mut machine = Machine::new(&topology);
        machine.start(1, grant(&[0], &[0, 1]));
        for allocator in [Allocator::Kubelet, Allocator::Restricted] {
            let place = allocator.place(&machine, &request(2, &[1], 7), &[], &mut Dice::new(1));
            assert_eq!(place, Err(Rejection::TooFew));
        }
    }
}

mod restricted {
    use super::*;

    fn place(machine: &Machine<'_>, own: &Request) -> Result<Grant, Rejection> {
        Allocator::Restricted.place(machine, own, &[], &mut Dice::new(SEED))
    }

    fn without_numa(mut topology: Topology) -> Topology {
        let gpus = topology.gpus.iter_mut().map(|gpu| &mut gpu.path);
        let rails = topology.rails.iter_mut().map(|rail| &mut rail.path);
        gpus.chain(rails).for_each(|path| path.numa = None);
        topology
    }

    #[test]
    fn the_published_run_had_numa_nodes_1_and_3_then_5_and_7() {
        let grants = grants(Allocator::Restricted, &node("B4.8"), &two_jobs());
        // GPUs 2 and 3 are on node 1, 0 and 1 on 3, 6 and 7 on 5, 4 and 5 on 7.
        assert_eq!(grants[0], Grant::new(vec![0, 1, 2, 3], rails(0..=7)));
        assert_eq!(grants[1], Grant::new(vec![4, 5, 6, 7], rails(8..=15)));
    }

    #[test]
    fn four_gpus_and_sixteen_rails_are_rejected_and_podrail_starts_them() {
        let (topology, job) = (node("B4.8"), request(1, &[0, 1, 2, 3], 16));
        let machine = Machine::new(&topology);
        assert_eq!(place(&machine, &job), Err(Rejection::TopologyAffinity));
        let outcome = Allocator::Podrail.place_all(&topology, &[job], SEED);
        let (grant, score) = outcome[0].clone().unwrap();
        assert_eq!((grant.rails, score.near), (rails(0..=15), 8));
    }

    #[test]
    fn the_whole_node_is_admitted() {
        let topology = node("B4.8");
        let all: Vec<usize> = (0..8).collect();
        let grant = place(&Machine::new(&topology), &request(1, &all, 16)).unwrap();
        assert_eq!(grant, Grant::new(all, rails(0..=15)));
    }

    #[test]
    fn small_pods_fill_the_lowest_numa_node_first() {
        let jobs: Vec<Request> = (0..3).map(|pod| request(pod, &[0], 2)).collect();
        let grants = grants(Allocator::Restricted, &node("B4.8"), &jobs);
        let gpus: Vec<usize> = grants.iter().flat_map(|grant| grant.gpus.clone()).collect();
        let first_two: BTreeSet<usize> = gpus[..2].iter().copied().collect();
        assert_eq!(first_two, BTreeSet::from([2, 3]), "node 1");
        assert!([0, 1].contains(&gpus[2]), "node 3: {gpus:?}");
    }

    #[test]
    fn free_devices_in_pieces_are_rejected_and_podrail_binds_them_near() {
        let topology = node("B4.8");
        let mut machine = Machine::new(&topology);
        for (pod, gpu, rail) in [(1, 0, 0), (2, 2, 4), (3, 4, 8), (4, 6, 12)] {
            machine.start(pod, grant(&[gpu], &[rail, rail + 1]));
        }
        let job = request(5, &[1, 3, 5, 7], 8);
        assert_eq!(place(&machine, &job), Err(Rejection::TopologyAffinity));
        let grant = Allocator::Podrail
            .place(&machine, &job, &[], &mut Dice::new(1))
            .unwrap();
        let score = Score::of(&machine, &grant);
        assert_eq!(
            (score.near, score.remote_gpus, score.shared_nics),
            (8, 0, 0)
        );
    }

    #[test]
    fn the_sets_must_be_the_same_for_gpus_and_rails() {
        let topology = node("B4.8");
        let mut machine = Machine::new(&topology);
        // GPUs are left on NUMA nodes 1 and 3 only, rails on 5 and 7 only.
        machine.start(1, grant(&[4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]));
        let job = request(2, &[0], 2);
        assert_eq!(place(&machine, &job), Err(Rejection::TopologyAffinity));
    }

    #[test]
    fn inside_a_numa_node_it_does_not_know_a_gpus_own_nic() {
        let topology = node("H100.8");
        let (machine, job) = (Machine::new(&topology), request(1, &[0], 2));
        let mut dice = Dice::new(SEED);
        let mut all_near = 0;
        for _ in 0..200 {
            let grant = Allocator::Restricted
                .place(&machine, &job, &[], &mut dice)
                .unwrap();
            assert!(
                grant.gpus[0] < 4 && grant.rails.iter().all(|rail| rail.0 < 8),
                "{grant:?}"
            );
            all_near += usize::from(Score::of(&machine, &grant).near == 2);
        }
        // Both ports of one NIC out of eight: 1 in 28.
        assert!((1..40).contains(&all_near), "{all_near}");
    }

    #[test]
    fn devices_without_numa_nodes_have_no_preference() {
        let topology = without_numa(node("B4.8"));
        let job = request(1, &[0, 1, 2, 3], 16);
        assert!(place(&Machine::new(&topology), &job).is_ok());
    }

    #[test]
    fn a_resource_that_is_not_asked_for_has_no_say() {
        let topology = node("B4.8");
        let machine = Machine::new(&topology);
        let grant = place(&machine, &request(1, &[], 4)).unwrap();
        assert_eq!(grant, Grant::new(vec![], rails(4..=7)), "NUMA node 1");
    }

    #[test]
    fn nine_numa_nodes_are_too_many() {
        let mut topology = node("B4.8");
        topology.numa.push(NumaNode {
            id: 8,
            socket: None,
        });
        let refusal = Rejection::NumaNodes { nodes: 9, limit: 8 };
        assert_eq!(
            place(&Machine::new(&topology), &request(1, &[0], 2)),
            Err(refusal)
        );
    }
}

mod podrail {
    use super::*;

    #[test]
    fn the_two_jobs_get_the_rails_of_their_gpus() {
        let topology = node("B4.8");
        let grants = grants(Allocator::Podrail, &topology, &two_jobs());
        assert_eq!(grants[0].rails, rails(4..=11));
        assert_eq!(grants[1].rails, [rails(0..=3), rails(12..=15)].concat());
    }

    #[test]
    fn a_pod_that_waits_keeps_its_rails() {
        let topology = node("B4.8");
        // Without the second pod in mind the first would take the next rails of its own socket.
        let jobs = [request(1, &[0, 1], 6), request(2, &[2, 3], 4)];
        let grants = grants(Allocator::Podrail, &topology, &jobs);
        assert_eq!(grants[1].rails, rails(4..=7));
        assert_eq!(grants[0].rails[..4], rails(0..=3));
    }
}

mod traces {
    use super::*;

    const PODS: usize = 1_000;

    /// Walks through a trace with the pods that run at each arrival.
    fn walk(events: &[Event], mut see: impl FnMut(&BTreeMap<PodId, Request>, &Request)) {
        let mut running = BTreeMap::new();
        for event in events {
            match event {
                Event::Leave(pod) => assert!(running.remove(pod).is_some(), "{pod} never came"),
                Event::Arrive(batch) => {
                    for own in batch {
                        see(&running, own);
                        running.insert(own.pod, own.clone());
                    }
                }
            }
        }
    }

    #[test]
    fn pods_of_all_sizes_take_free_gpus() {
        let events = trace(&node("B4.8"), PODS, SEED);
        let mut sizes = BTreeMap::new();
        walk(&events, |running, own| {
            let taken: Vec<usize> = running.values().flat_map(|pod| pod.gpus.clone()).collect();
            assert!(own.gpus.iter().all(|gpu| !taken.contains(gpu)), "{own:?}");
            assert_eq!(usize::from(own.rails), 2 * own.gpus.len());
            *sizes.entry(own.gpus.len()).or_insert(0) += 1;
        });
        assert_eq!(sizes.values().sum::<usize>(), PODS);
        assert_eq!(sizes.keys().copied().collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert!(sizes.values().all(|count| *count > 100), "{sizes:?}");
        let together = events
            .iter()
            .filter(|event| matches!(event, Event::Arrive(batch) if batch.len() > 1));
        assert!(together.count() > 100, "pods that wait for each other");
    }

    #[test]
    fn a_seed_is_a_trace() {
        let topology = node("B4.8");
        assert_eq!(trace(&topology, 100, 1), trace(&topology, 100, 1));
        assert_ne!(trace(&topology, 100, 1), trace(&topology, 100, 2));
    }

    #[test]
    fn a_batch_is_never_empty() {
        for seed in 0..20 {
            let events = trace(&node("S8"), 50, seed);
            assert!(!events.contains(&Event::Arrive(vec![])), "seed {seed}");
        }
    }

    /// Podrail's part of the claim, judged with the free rails of that moment and nothing of the
    /// choice itself: as many rails are near as could be.
    #[test]
    fn podrail_rejects_none_and_every_rail_is_near_that_can_be() {
        for (name, seed) in SHAPES.into_iter().zip(SEED..) {
            let topology = node(name);
            let mut machine = Machine::new(&topology);
            for event in trace(&topology, PODS, seed) {
                let batch = match event {
                    Event::Leave(pod) => {
                        machine.stop(pod);
                        continue;
                    }
                    Event::Arrive(batch) => batch,
                };
                for (place, own) in batch.iter().enumerate() {
                    let free = machine.free_rails();
                    let waiting = &batch[place + 1..];
                    let grant = Allocator::Podrail
                        .place(&machine, own, waiting, &mut Dice::new(1))
                        .unwrap();
                    let near = |rails: &[RailIndex]| {
                        let is_near = |rail: &&RailIndex| {
                            own.gpus
                                .iter()
                                .any(|gpu| same_root(&topology, *gpu, **rail))
                        };
                        rails.iter().filter(is_near).count()
                    };
                    assert_eq!(
                        grant.rails.iter().collect::<BTreeSet<_>>().len(),
                        usize::from(own.rails)
                    );
                    assert!(
                        grant.rails.iter().all(|rail| free.contains(rail)),
                        "{name}: {grant:?}"
                    );
                    assert_eq!(
                        near(&grant.rails),
                        near(&free).min(usize::from(own.rails)),
                        "{name}: {own:?}"
                    );
                    assert_eq!(
                        near(&grant.rails),
                        usize::from(own.rails),
                        "{name}: {own:?}"
                    );
                    machine.start(own.pod, grant);
                }
            }
        }
    }

    #[test]
    fn the_others_are_worse_in_their_own_ways() {
        for (name, seed) in SHAPES.into_iter().zip(SEED..) {
            let topology = node(name);
            let events = trace(&topology, PODS, seed);
            let [kubelet, restricted, podrail] =
                Allocator::ALL.map(|allocator| replay(&topology, &events, allocator, seed));
            assert_eq!(
                (podrail.placed, podrail.rejected, podrail.all_near),
                (PODS, 0, PODS),
                "{name}"
            );
            assert_eq!(
                (
                    podrail.sum.near,
                    podrail.sum.remote_gpus,
                    podrail.sum.shared_nics
                ),
                (podrail.sum.rails, 0, 0)
            );
            assert!(podrail.sum.ceiling() > 0.999_999, "{name}: {podrail:?}");
            assert_eq!((kubelet.placed, kubelet.rejected), (PODS, 0), "{name}");
            assert!(
                kubelet.all_near < PODS / 2 && kubelet.sum.ceiling() < 0.8,
                "{name}: {kubelet:?}"
            );
            assert!(restricted.rejected > 0, "{name}: {restricted:?}");
            assert_eq!(restricted.placed + restricted.rejected, PODS);
            // One root per NUMA node: what it admits is aligned. Several: it cannot tell.
            let aligned = restricted.all_near == restricted.placed;
            assert_eq!(aligned, name == "B4.8", "{name}: {restricted:?}");
        }
    }

    #[test]
    fn the_chances_are_those_of_the_seed() {
        let topology = node("H100.8");
        let events = trace(&topology, 100, 1);
        let run = |allocator, seed| replay(&topology, &events, allocator, seed);
        for allocator in Allocator::ALL {
            assert_eq!(run(allocator, 1), run(allocator, 1));
        }
        assert_ne!(run(Allocator::Kubelet, 1), run(Allocator::Kubelet, 2));
        assert_eq!(run(Allocator::Podrail, 1), run(Allocator::Podrail, 2));
    }
}
