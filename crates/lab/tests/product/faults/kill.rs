//! Killed behind a step; then the same call again, the opposite one, or none that comes in time.

use super::guest;
use super::points::some_steps;
use crate::support::{CONFIG, Node};

/// What the next call is.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Attach,
    Detach,
}

impl Next {
    fn word(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Detach => "detach",
        }
    }
}

/// An attach killed at a point, then the next call; and where that is an attach, the detach behind
/// it killed as well, and what comes then.
struct Case {
    point: String,
    next: Next,
    detach: Option<(&'static str, Next)>,
}

/// Steps of a detach: 16 rules, then one request for all links.
const DETACH: [&str; 6] = [
    "remove:0",
    "remove:7",
    "remove:15",
    "remove:16",
    "detached:0",
    "released:0",
];

/// Attach and detach in turns over the steps, both for some, and a killed detach behind as many
/// attaches as there are ways to kill one.
fn cases() -> Vec<Case> {
    // In the middle of the stages between, half of the children look like the first, half like the
    // last: that is left to the errors, which cost less.
    let steps = some_steps()
        .into_iter()
        .filter(|(stage, n)| *n != 7 || ["create", "file", "rule"].contains(stage))
        .map(|(stage, n)| format!("{stage}:{n}"));
    let around = ["reserved:0", "attached:0", "ready:0"].map(String::from);
    let points: Vec<String> = steps.chain(around).collect();
    let turns = [Next::Attach, Next::Detach];
    let one = points.iter().cloned().zip(turns.into_iter().cycle());
    let other = [
        "create:0",
        "create:7",
        "file:0",
        "rule:15",
        "attached:0",
        "ready:0",
    ];
    let both = one
        .clone()
        .filter(|(point, _)| other.contains(&point.as_str()));
    let opposite = both.map(|(point, next)| match next {
        Next::Attach => (point, Next::Detach),
        Next::Detach => (point, Next::Attach),
    });
    let mut detaches = DETACH
        .into_iter()
        .flat_map(|point| turns.map(|next| (point, next)));
    let case = |(point, next)| {
        let detach = if next == Next::Attach {
            detaches.next()
        } else {
            None
        };
        Case {
            point,
            next,
            detach,
        }
    };
    one.chain(opposite).map(case).collect()
}

/// How many links and rules an attachment has when it is killed behind a step.
fn made(point: &str) -> (usize, usize) {
    let (stage, number) = point.split_once(':').unwrap();
    let steps = number.parse::<usize>().unwrap() + 1;
    match stage {
        "reserved" => (0, 0),
        "create" => (steps, 0),
        "rule" => (16, steps),
        "attached" | "ready" => (16, 16),
        _ => (16, 0),
    }
}

const KILLS: &str = "
    leases() { rows \"select rail, address from leases order by rail\"; }
    count() { ip -n pod \"${@:2}\" | grep -c \"$1\" || true; }
    foreign_pod pod
    look pod > /tmp/before
    while read -r point next stop then; do
        echo -n \"$point $(fails $point:kill attach pod job 16)\"
        echo -n \" $(count : -o link show type ipvlan) $(count 'proto 112' rule)\"
        leases > /tmp/reserved
        if [ $next = attach ]; then
            attach pod job 16 > /dev/null
            leases > /tmp/leased
            echo -n \" $(whole pod job) $(cmp -s /tmp/reserved /tmp/leased && echo kept || echo moved)\"
        fi
        if [ $stop != - ]; then
            echo -n \" $stop $(fails $stop:kill detach job)\"
            if [ $then = attach ]; then
                attach pod job 16 > /dev/null 2>&1
                echo -n \" $(whole pod job)\"
            fi
        fi
        detach job > /dev/null
        echo \" $(same /tmp/before pod)\"
    done";

pub(super) fn every_kill_is_finished_by_the_next_call(node: &Node) {
    let cases = cases();
    let table: Vec<String> = cases.iter().map(Case::row).collect();
    let printed = guest(node, &format!("{KILLS} <<'END'\n{}\nEND", table.join("\n")));
    let must: Vec<String> = cases.iter().map(Case::outcome).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), must);
    let detaches = cases.iter().filter(|case| case.detach.is_some()).count();
    assert_eq!(
        detaches,
        2 * DETACH.len(),
        "each is followed by an attach and by a detach"
    );
}

impl Case {
    fn row(&self) -> String {
        let (stop, then) = self
            .detach
            .map_or(("-", "-"), |(stop, then)| (stop, then.word()));
        format!("{} {} {stop} {then}", self.point, self.next.word())
    }

    /// 137 is death by SIGKILL.
    fn outcome(&self) -> String {
        let (links, rules) = made(&self.point);
        let mut text = format!("{} 137 {links} {rules}", self.point);
        if self.next == Next::Attach {
            text.push_str(" whole:16 kept");
        }
        if let Some((stop, then)) = self.detach {
            text.push_str(&format!(" {stop} 137"));
            if then == Next::Attach {
                text.push_str(" whole:16");
            }
        }
        text + " same"
    }
}

/// The namespace and all in it are gone, and its path may be somebody else's by then.
pub(super) fn the_namespace_is_deleted_after_the_kill(node: &Node) {
    let printed = guest(
        node,
        "for point in create:7 rule:15 attached:0; do
             plain_pod gone
             echo -n \"$(fails $point:kill attach gone job 16) \"
             ip netns del gone
             echo $(detach job) $(same /tmp/before pod)
         done
         plain_pod gone
         plain_pod other
         fails rule:15:kill attach gone job 16
         ip netns del gone
         touch /run/netns/gone
         mount --bind /run/netns/other /run/netns/gone
         set_other() { nsenter --net=/run/netns/other sh -c \"$1 /proc/sys/net/ipv4/conf/all/rp_filter\"; }
         set_other 'echo 1 >'
         echo \" $(detach job 2> /tmp/said) $(same /tmp/before pod) $(set_other cat)\"
         cat /tmp/said
         # The namespace that was attached is cleaned, whatever path is given.
         attach pod job 2 > /dev/null
         podrail detach --id job --netns /run/netns/other 2> /tmp/said
         same /tmp/before pod
         umount /run/netns/gone
         rm /run/netns/gone
         ip netns del other",
    );
    let freed = "job: removed 0 interfaces, freed 16 rails and 16 addresses";
    let must = [
        &format!("137 {freed} same"),
        &format!("137 {freed} same"),
        &format!("137 {freed} same"),
        &format!("137 {freed} same 1"),
        "note: /run/netns/gone is not the namespace that job was attached to: left alone",
        "job: removed 2 interfaces, freed 2 rails and 2 addresses",
        "same",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), must);
}

/// With shares the rails are not what is in the way, but the names in the namespace.
pub(super) fn another_sandbox_comes_after_the_kill(node: &Node) {
    node.configure(&format!("{CONFIG}rails: {{ shares: 2 }}\n"));
    let printed = guest(
        node,
        // Not a whole look: IPv6 is still at its address detection.
        "killed() { rails_in pod; held; }
         for point in create:7 rule:15; do
             fails $point:kill attach pod job 16 > /dev/null
             killed > /tmp/killed
             echo $(fails - attach pod other 16) $(killed | cmp -s /tmp/killed - && echo same)
             cat /tmp/said
             detach job > /dev/null
             attach pod other 16 > /dev/null
             whole pod other
             detach other > /dev/null
             echo \" $(same /tmp/before pod)\"
         done",
    );
    let refused = |owner: &str| {
        [
            "5 same".to_owned(),
            "error: rail 0 cannot be attached: the namespace has the interface net1 of ".to_owned()
                + owner
                + " already",
            "hint: run 'podrail detach' for that sandbox first ('podrail status' lists them)"
                .into(),
            "whole:16 same".into(),
        ]
    };
    let must = [
        refused("another sandbox, whose attach was killed,"),
        refused("sandbox job"),
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), must.concat());
    node.configure(CONFIG);
}
