//! Crash safety: a fault or a kill behind every step, power cuts, and many at once.
//!
//! One script does a whole table of cases on the node and prints a line for each; the lines are
//! judged here. The script's eyes are `ip`, `/proc/sys` and `sqlite3` (see `faults/guest.sh`).

mod kill;
mod many;
mod points;
mod power;
mod undo;

use crate::support::{Node, code};
use std::time::Duration;

const HELPERS: &str = include_str!("faults/guest.sh");

/// Runs a script with the helpers, which must succeed; what it printed.
fn guest(node: &Node, script: &str) -> String {
    let text = format!("{HELPERS}\n{script}");
    let shell = node.lab.cmd(["bash", "-euo", "pipefail", "-c", &text]);
    let output = shell.timeout(Duration::from_secs(1800)).run().unwrap();
    let said = output.stderr_text();
    assert_eq!(code(&output), 0, "{}\n{said}", output.text());
    // What was different is there; it is shown where an assertion of the caller fails.
    println!("{said}");
    output.text()
}

/// A failed step or a failed undo leaves what was there, or says what it left.
#[test]
fn a_fault_at_any_step_of_16_rails() {
    let Some(node) = Node::boot("B4.8") else {
        return;
    };
    points::every_error_takes_all_back(&node);
    undo::rights_that_are_missing(&node);
    undo::undo_that_fails_keeps_the_reservation(&node);
    undo::the_last_sandbox_of_a_namespace_sets_it_back(&node);
}

/// A process killed behind any step leaves what the next attach or detach finishes.
#[test]
fn a_kill_at_any_step_of_16_rails() {
    let Some(node) = Node::boot("B4.8") else {
        return;
    };
    kill::every_kill_is_finished_by_the_next_call(&node);
    kill::the_namespace_is_deleted_after_the_kill(&node);
    kill::another_sandbox_comes_after_the_kill(&node);
}

/// Full blocks, power cuts, thirty in a row, eight at once.
#[test]
fn many_sandboxes_in_a_row_and_at_once() {
    let Some(node) = Node::boot("B4.8") else {
        return;
    };
    many::thirty_in_a_row_leave_no_trace(&node);
    many::eight_at_once_get_a_rail_each(&node);
    many::one_sandbox_attached_twice_at_once(&node);
    many::attach_and_detach_race(&node);
    power::namespaces_are_replaced_in_the_same_boot(&node);
    power::pods_come_back_after_a_power_cut(&node);
}
