//! Namespaces that are gone while the state file stays: replaced in the same boot, and a power cut.
//!
//! Two sandboxes of 16 rails fill a block of 32; with three shares of a rail it is addresses that
//! run out first.

use super::guest;
use crate::support::{CONFIG, Node};

/// The kernel may give a new namespace the numbers of one that is gone; these are made before.
const REPLACE: &str = "
    replace() {
        plain_pod new
        ip netns del $1
        touch /run/netns/$1
        mount --bind /run/netns/new /run/netns/$1
        umount /run/netns/new
        rm /run/netns/new
    }
    leases() { rows 'select count(*), count(distinct sandbox) from leases'; }
";

pub(super) fn namespaces_are_replaced_in_the_same_boot(node: &Node) {
    node.configure(&format!("{CONFIG}rails: {{ shares: 3 }}\n"));
    let printed = guest(
        node,
        &format!(
            "{REPLACE}
             plain_pod one
             plain_pod two
             for pod in one two; do attach $pod job-$pod 16 > /dev/null; done
             replace one
             replace two
             for pod in one two; do
                 echo $(fails - attach $pod job-$pod 16) $(leases)
                 tail -2 /tmp/said
                 detach job-$pod 2> /dev/null
                 attach $pod job-$pod 16 > /dev/null
             done
             for pod in one two; do echo $(whole $pod job-$pod); done
             echo $(leases) $(fails - attach pod job 2)
             cat /tmp/said"
        ),
    );
    let replaced = |pod: &str| {
        [
            "5 32|2".to_owned(),
            format!(
                "error: /run/netns/{pod} is another network namespace than the one that sandbox job-{pod} was attached to"
            ),
            "hint: run 'podrail detach' for this id, then attach again".into(),
            format!("job-{pod}: removed 0 interfaces, freed 16 rails and 16 addresses"),
        ]
    };
    let exhausted = [
        "whole:16",
        "whole:16",
        "32|2 4",
        "error: no addresses for sandbox job",
        "  because: pool rails, block 0 of this node: 2 IPv4 addresses asked for, 32 of 32 are in use",
        "hint: wait for pods with rails to end on this node, ask for fewer rails than 2, or give pool rails a larger block size",
    ];
    let must = [
        &replaced("one")[..],
        &replaced("two"),
        &exhausted.map(String::from),
    ]
    .concat();
    assert_eq!(printed.lines().collect::<Vec<_>>(), must);
}

/// After the power is back the kernel has another boot id: attach alone is enough, in either order
/// and under new ids.
pub(super) fn pods_come_back_after_a_power_cut(node: &Node) {
    let printed = guest(
        node,
        &format!(
            "{REPLACE}
             replace one
             replace two
             cat /proc/sys/kernel/random/uuid > /tmp/boot
             mount --bind /tmp/boot /proc/sys/kernel/random/boot_id
             attach two job-two 16 2>&1 > /dev/null | sort
             attach one new-one 16 > /dev/null
             echo $(leases) $(whole two job-two) $(whole one new-one)
             for id in job-two new-one; do detach $id; done
             leases
             umount /proc/sys/kernel/random/boot_id"
        ),
    );
    let must = [
        "note: sandbox job-one was of an earlier boot and is forgotten",
        "note: sandbox job-two was of an earlier boot and is forgotten",
        "32|2 whole:16 whole:16",
        "job-two: removed 16 interfaces, freed 16 rails and 16 addresses",
        "new-one: removed 16 interfaces, freed 16 rails and 16 addresses",
        "0|0",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), must);
    node.configure(CONFIG);
}
