//! The fault points of an attachment of 16 rails, and an error at each.

use super::guest;
use crate::support::Node;

/// Stages in their order, and how many steps each has: `file` has the namespace's rp_filter and
/// one setting of each child.
pub(super) const STAGES: [(&str, usize); 8] = [
    ("create", 16),
    ("file", 17),
    ("alias", 16),
    ("sysctl", 16),
    ("up", 16),
    ("address", 16),
    ("route", 16),
    ("rule", 16),
];

/// The first, a middle and the last step of each stage.
pub(super) fn some_steps() -> Vec<(&'static str, usize)> {
    let of = |(stage, steps): (&'static str, usize)| [0, 7, steps - 1].map(|n| (stage, n));
    STAGES.into_iter().flat_map(of).collect()
}

/// Every step of every stage, and the points around them.
fn error_points() -> Vec<String> {
    let of = |(stage, steps): (&'static str, usize)| (0..steps).map(move |n| (stage, n));
    let steps = STAGES.into_iter().flat_map(of);
    let steps = steps.map(|(stage, n)| format!("{stage}:{n}"));
    let around = ["reserved:0", "attached:0"].map(String::from);
    steps.chain(around).collect()
}

pub(super) fn every_error_takes_all_back(node: &Node) {
    let points = error_points();
    let behind: Vec<String> = STAGES.map(|(stage, n)| format!("{stage}:{n}:error")).into();
    let printed = guest(
        node,
        &format!(
            "foreign_pod pod
             look pod > /tmp/before
             for point in {}; do
                 code=$(fails $point:error attach pod job 16)
                 read -r said < /tmp/said
                 echo \"$code $(same /tmp/before pod) $said\"
             done
             echo $(fails {} attach pod job 16) $(whole pod job)
             detach job > /dev/null
             same /tmp/before pod",
            points.join(" "),
            behind.join(",")
        ),
    );
    let fault = |point: &String| format!("9 same error: fault injected at {point}");
    let mut must: Vec<String> = points.iter().map(fault).collect();
    // There are no more steps than these: behind the last one of each stage nothing fails.
    must.extend(["0 whole:16".into(), "same".into()]);
    assert_eq!(printed.lines().collect::<Vec<_>>(), must);
}
