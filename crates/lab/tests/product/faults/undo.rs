//! Undo: where rights are missing, where it fails itself, and where a namespace is shared.
//!
//! These run after `points`: the namespace `pod` and the look `/tmp/before` are its.

use super::guest;
use crate::support::Node;

pub(super) fn rights_that_are_missing(node: &Node) {
    let printed = guest(
        node,
        "words=(podrail attach --netns /run/netns/pod --id job --rails 16)
         read_only='mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec'
         echo $(fails - setpriv --bounding-set -net_admin \"${words[@]}\") $(same /tmp/before pod)
         cat /tmp/said
         echo $(fails - unshare -m sh -c \"$read_only ${words[*]}\") $(same /tmp/before pod)
         cat /tmp/said",
    );
    let lines: Vec<&str> = printed.lines().collect();
    let [
        no_right,
        step,
        refusal,
        run_as_root,
        read_only,
        sysctl,
        cause,
        writable,
    ] = lines[..]
    else {
        panic!("{printed}");
    };
    assert_eq!((no_right, read_only), ("9 same", "9 same"), "{printed}");
    assert!(
        step.contains("cannot attach rail 0 (rdma0) as net1"),
        "{step}"
    );
    assert!(!step.contains("not undone"), "{step}");
    assert!(refusal.contains("EPERM"), "{refusal}");
    assert!(
        run_as_root.starts_with("hint: this needs CAP_NET_ADMIN"),
        "{run_as_root}"
    );
    assert_eq!(
        sysctl,
        "error: cannot set sysctl net/ipv4/conf/all/rp_filter"
    );
    assert!(cause.contains("Read-only file system"), "{cause}");
    assert!(
        writable.starts_with("hint: /proc/sys must be writable"),
        "{writable}"
    );
}

pub(super) fn undo_that_fails_keeps_the_reservation(node: &Node) {
    let printed = guest(
        node,
        "leases='select count(*) from leases'
         for next in attach detach; do
             echo $(fails rule:15:error,remove:4:error attach pod job 16) $(rows \"$leases\")
             cat /tmp/said
             if [ $next = attach ]; then attach pod job 16 > /dev/null; whole pod job; echo; fi
             # What cannot be taken away stays reserved too.
             echo $(fails remove:2:error detach job) $(rows \"$leases\")
             cat /tmp/said
             detach job > /dev/null
             echo $(same /tmp/before pod)
         done",
    );
    let failed_undo = [
        "9 16",
        "note: the rails stay reserved: run 'podrail detach' for this id",
        "error: fault injected at rule:15 (not undone: fault injected at remove:4)",
    ];
    let failed_detach = [
        "9 16",
        "error: 1 of the steps to take the rails away failed (not undone: fault injected at remove:2)",
        "hint: run this on the host as root, and try again",
    ];
    let must = [
        &failed_undo[..],
        &["whole:16"],
        &failed_detach,
        &["same"],
        &failed_undo,
        &failed_detach,
        &["same"],
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), must.concat());
}

/// `all.rp_filter` is one for all sandboxes of a namespace: 0 as long as there is a rail, then what
/// it was before the first.
pub(super) fn the_last_sandbox_of_a_namespace_sets_it_back(node: &Node) {
    let printed = guest(
        node,
        "rp_filter() { nsenter --net=/run/netns/pod cat /proc/sys/net/ipv4/conf/all/rp_filter; }
         attach pod job1 2 > /dev/null
         attach pod job2 2 > /dev/null
         echo both $(rp_filter)
         detach job1 > /dev/null
         echo second $(rp_filter)
         echo failed $(fails up:0:error attach pod job3 2) $(rp_filter)
         detach job2 > /dev/null
         echo $(same /tmp/before pod)",
    );
    let must = ["both 0", "second 0", "failed 9 0", "same"];
    assert_eq!(printed.lines().collect::<Vec<_>>(), must);
}
