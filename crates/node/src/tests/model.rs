//! Random histories of a node, stopped between any two effects, against what must hold.
//!
//! The state file, the markers, the locks and the CDI directory are the real ones; the kernel is
//! simulated. A usual run has the same histories each time, and those that failed once;
//! `PODRAIL_MODEL_CASES=N` has N other ones.

mod calls;
mod counts;
mod kernel;
mod known;
mod laws;
mod node;
mod steps;
mod world;

use counts::Counts;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestError, TestRunner};
use steps::history;
use world::World;

/// How many histories a normal run has.
const CASES: u32 = 220;

#[test]
fn whatever_is_killed_no_rail_or_address_is_lost_or_given_twice() {
    let asked = std::env::var("PODRAIL_MODEL_CASES").ok();
    let rng_seed = match asked {
        None => RngSeed::Fixed(1),
        Some(_) => RngSeed::Random,
    };
    let cases = asked.map_or(CASES, |text| text.parse().expect("a number of cases"));
    let persistence = FileFailurePersistence::SourceParallel("proptest-regressions");
    let mut runner = TestRunner::new(Config {
        cases,
        rng_seed,
        max_shrink_time: 120_000,
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(persistence)),
        ..Config::default()
    });
    let counts = std::cell::RefCell::new(Counts::default());
    let outcome = runner.run(&history(), |steps| {
        let mut world = World::new();
        steps.iter().for_each(|step| world.take(step));
        world.end();
        counts.borrow_mut().add(&world.counts);
        Ok(())
    });
    let counts = counts.into_inner();
    eprintln!("{counts}");
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("{why}\n{}", steps.join("\n"));
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
    assert!(cases < CASES || counts.are_enough(), "{counts}");
}
