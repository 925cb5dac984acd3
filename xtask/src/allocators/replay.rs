//! A trace under one allocator, and what came of it.

use super::{Allocator, Dice, Event, Machine, Request, Score};
use podrail_core::topology::Topology;

/// Sums over the pods of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    /// Pods that ran.
    pub(crate) placed: usize,
    /// Pods that did not.
    pub(crate) rejected: usize,
    /// Pods whose rails were all near.
    pub(crate) all_near: usize,
    /// Sums over the pods that ran; a NIC counts once for each pod that finds a port of it taken.
    pub(crate) sum: Score,
}

/// Runs the trace. The allocator's own chances are from the seed, apart from the trace's.
pub(crate) fn replay(
    topology: &Topology,
    events: &[Event],
    allocator: Allocator,
    seed: u64,
) -> Tally {
    let mut run = Run {
        machine: Machine::new(topology),
        dice: Dice::new(seed),
        allocator,
        tally: Tally::default(),
    };
    for event in events {
        match event {
            Event::Arrive(batch) => run.arrive(batch),
            Event::Leave(pod) => run.machine.stop(*pod),
        }
    }
    run.tally
}

struct Run<'a> {
    machine: Machine<'a>,
    dice: Dice,
    allocator: Allocator,
    tally: Tally,
}

impl Run<'_> {
    fn arrive(&mut self, mut batch: &[Request]) {
        while let [own, rest @ ..] = batch {
            batch = rest;
            let place = self
                .allocator
                .place(&self.machine, own, rest, &mut self.dice);
            match place {
                Ok(grant) => {
                    self.tally.add(Score::of(&self.machine, &grant));
                    self.machine.start(own.pod, grant);
                }
                Err(_) => self.tally.rejected += 1,
            }
        }
    }
}

impl Tally {
    fn add(&mut self, score: Score) {
        self.placed += 1;
        self.all_near += usize::from(score.near == score.rails);
        let sum = &mut self.sum;
        sum.rails += score.rails;
        sum.near += score.near;
        sum.remote_gpus += score.remote_gpus;
        sum.shared_nics += score.shared_nics;
        sum.carried += score.carried;
    }
}
