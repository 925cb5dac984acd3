//! What must hold for any input: one function per place where bytes of others come in.
//!
//! Each function feeds the product's own entry point and asserts that it does not panic, that what
//! it takes is read again as the same, and that a refusal says where and why in bounded words. Two
//! programs call them: `tests/usual.rs` with the committed corpus and changes of it, on every test
//! run, and the targets in `fuzz/` with whatever libFuzzer comes up with (`cargo xtask fuzz`).
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "asserting is what this crate is for"
)]

mod checkpoint;
mod cni;
mod config;
mod dump;
pub mod mutate;
mod nasty;
mod networks;
mod pod_resources;
mod state;
mod told;
mod tree;

pub use nasty::Nasty;

/// One entry point with its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target in `fuzz/fuzz_targets`, and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Feeds one input; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Inputs that are too large to be committed, made on the spot.
    pub nasty: fn() -> Vec<Nasty>,
    /// Changed inputs per run of the tests. Fewer where one costs a file system or a connection.
    pub changes: usize,
}

/// All of them.
pub const TARGETS: [Target; 10] = [
    target("cni_stdin", cni::stdin, nasty::json, 3000),
    target("cni_prev_result", cni::prev_result, nasty::json, 3000),
    target(
        "cni_environment",
        cni::environment,
        nasty::environment,
        3000,
    ),
    target("networks", networks::annotation, nasty::annotations, 3000),
    target("config", config::yaml, nasty::yaml, 2000),
    target("state", state::rows, nasty::rows, 200),
    target("tree", tree::discovery, nasty::trees, 80),
    target("dump", dump::xml, nasty::xml, 600),
    target("checkpoint", checkpoint::file, nasty::checkpoints, 1500),
    target("pod_resources", pod_resources::answer, nasty::answers, 300),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]),
    nasty: fn() -> Vec<Nasty>,
    changes: usize,
) -> Target {
    Target {
        name,
        run,
        nasty,
        changes,
    }
}

/// Feeds one input to a target.
///
/// # Panics
/// There is no such target, or something does not hold.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.expect("a name of the table above");
    (target.run)(input);
}

/// A directory that goes with the value; in memory where there is such a file system, since nothing
/// that is made in it has to last.
fn directory() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory
        .or_else(|_| tempfile::tempdir())
        .expect("a directory")
}
