//! Many sandboxes in a row and at once.

use super::guest;
use crate::support::Node;
use std::collections::BTreeSet;

/// Before the first look one attachment has made the state file and the lock.
pub(super) fn thirty_in_a_row_leave_no_trace(node: &Node) {
    let printed = guest(
        node,
        "foreign_pod pod
         files() { find /var/lib/podrail; }
         attach pod job 16 > /dev/null
         detach job > /dev/null
         look pod > /tmp/before
         files > /tmp/files
         for round in {1..30}; do
             attach pod job 16 > /dev/null
             rows 'select group_concat(address) from leases'
             detach job > /dev/null
         done
         echo $(same /tmp/before pod) $(rows 'select count(*) from leases')
         files | diff /tmp/files - && echo as many files",
    );
    let lines: Vec<&str> = printed.lines().collect();
    let (rounds, end) = lines.split_at(30);
    assert_eq!(end, ["same 0", "as many files"]);
    let issued: Vec<BTreeSet<&str>> = rounds
        .iter()
        .map(|line| line.split(',').collect())
        .collect();
    // A block of 32: what was freed comes back when the other half has been used.
    for pair in issued.windows(2) {
        assert_eq!((pair[0].len(), pair[1].len()), (16, 16), "{pair:?}");
        assert!(pair[0].is_disjoint(&pair[1]), "reissued at once: {pair:?}");
    }
}

pub(super) fn eight_at_once_get_a_rail_each(node: &Node) {
    let printed = guest(
        node,
        "for n in {1..8}; do plain_pod p$n; done
         for n in {1..8}; do attach p$n job$n 2 > /tmp/out$n 2>&1 & done
         for job in $(jobs -p); do wait $job || cat /tmp/out*; done
         rows 'select count(distinct pci), count(distinct address), count(distinct sandbox)
               from binding_rails join leases using (sandbox, rail)'
         for n in {1..8}; do echo $(whole p$n job$n); done
         for n in {1..8}; do detach job$n > /dev/null & done
         for job in $(jobs -p); do wait $job; done
         echo $(same /tmp/before pod)
         for n in {1..8}; do rails_in p$n 2>&1 | grep -cE '^(link|rule|route)' || true; done",
    );
    let must = [&["16|16|8"][..], &["whole:2"; 8], &["same"], &["0"; 8]];
    assert_eq!(printed.lines().collect::<Vec<_>>(), must.concat());
}

pub(super) fn one_sandbox_attached_twice_at_once(node: &Node) {
    let printed = guest(
        node,
        "attach pod job 4 -o json > /tmp/one & first=$!
         attach pod job 4 -o json > /tmp/two
         wait $first
         cmp /tmp/one /tmp/two && jq -r .state /tmp/one
         whole pod job
         detach job > /dev/null
         echo \" $(same /tmp/before pod)\"",
    );
    assert_eq!(printed, "ready\nwhole:4 same");
}

/// Ten rounds: both succeed, and whoever came last has had its way, wholly.
pub(super) fn attach_and_detach_race(node: &Node) {
    let printed = guest(
        node,
        "for round in {1..10}; do
             attach pod job 2 > /tmp/out 2>&1 & first=$!
             detach job > /dev/null
             wait $first || cat /tmp/out
             if [ $(rows 'select count(*) from leases') = 0 ]
             then echo $(same /tmp/before pod)
             else echo $(whole pod job)
             fi
         done
         detach job > /dev/null
         same /tmp/before pod",
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        (lines.len(), lines.last()),
        (11, Some(&"same")),
        "{printed}"
    );
    assert!(
        lines.iter().all(|line| ["same", "whole:2"].contains(line)),
        "{printed}"
    );
}
