//! Steps of a pod, from what is seen of it.

use super::{Look, SANDBOX, Step, next};
use crate::manifest::{Object, Pod, parse};
use crate::runtime::{Doing, Sandbox, Seen};
use crate::status::Phase;
use std::collections::BTreeSet;

struct Case {
    pod: Pod,
    sandboxes: Vec<Sandbox>,
    containers: Vec<Seen>,
    stopped: BTreeSet<String>,
    resting: BTreeSet<String>,
    expired: BTreeSet<String>,
    finished: bool,
    deleting: bool,
}

fn case(spec: &str) -> Case {
    let text = format!("kind: Pod\nmetadata: {{name: p}}\nspec: {spec}");
    let Object::Pod(pod) = parse(&text).unwrap().objects.remove(0) else {
        panic!("no pod");
    };
    Case {
        pod: *pod,
        sandboxes: vec![],
        containers: vec![],
        stopped: BTreeSet::new(),
        resting: BTreeSet::new(),
        expired: BTreeSet::new(),
        finished: false,
        deleting: false,
    }
}

fn exited(code: i32) -> Doing {
    Doing::Exited {
        code,
        reason: String::new(),
        message: String::new(),
    }
}

impl Case {
    fn sandbox(mut self, id: &str, ready: bool) -> Self {
        let attempt = u32::try_from(self.sandboxes.len()).unwrap();
        self.sandboxes.push(Sandbox {
            id: id.into(),
            pod: "u".into(),
            attempt,
            ready,
        });
        self
    }

    fn container(mut self, sandbox: &str, name: &str, attempt: u32, doing: Doing) -> Self {
        self.containers.push(Seen {
            id: format!("{name}-{attempt}"),
            pod: "u".into(),
            sandbox: sandbox.into(),
            name: name.into(),
            attempt,
            doing,
        });
        self
    }

    fn next(&self) -> Step {
        next(&Look {
            pod: &self.pod,
            finished: self.finished,
            deleting: self.deleting,
            sandboxes: &self.sandboxes,
            containers: &self.containers,
            stopped: &self.stopped,
            resting: &self.resting,
            expired: &self.expired,
        })
    }
}

fn start(container: &str, attempt: u32) -> Step {
    Step::Start {
        container: container.into(),
        attempt,
    }
}

const WITH_INIT: &str = "{initContainers: [{name: side, restartPolicy: Always}, {name: init}], \
                         containers: [{name: main}]}";

#[test]
fn a_pod_starts_in_the_kubelets_order() {
    let case = case(WITH_INIT);
    assert_eq!(case.next(), Step::RunSandbox { attempt: 0 });
    let case = case.sandbox("s", true);
    assert_eq!(case.next(), start("side", 0));
    let case = case.container("s", "side", 0, Doing::Running);
    assert_eq!(case.next(), start("init", 0));
    let mut case = case.container("s", "init", 0, Doing::Running);
    assert_eq!(case.next(), Step::Wait);
    case.containers[1].doing = exited(0);
    assert_eq!(case.next(), start("main", 0));
    let case = case.container("s", "main", 0, Doing::Running);
    assert_eq!(case.next(), Step::Wait);
}

#[test]
fn a_resting_start_waits_and_holds_no_other_up() {
    let mut case = case("{containers: [{name: a}, {name: b}]}").sandbox("s", true);
    case.resting.insert("a".into());
    assert_eq!(case.next(), start("b", 0));
    let mut case = case.container("s", "b", 0, Doing::Running);
    assert_eq!(case.next(), Step::Wait);
    case.resting.clear();
    assert_eq!(case.next(), start("a", 0));
}

#[test]
fn a_dead_sandbox_is_stopped_then_replaced_and_removed_later() {
    let case = case("{containers: [{name: a}]}")
        .sandbox("s", false)
        .container("s", "a", 3, exited(137));
    assert_eq!(case.next(), Step::StopSandbox("s".into()));
    let mut case = case;
    case.stopped.insert("s".into());
    assert_eq!(case.next(), Step::RunSandbox { attempt: 1 });
    case.resting.insert(SANDBOX.into());
    assert_eq!(case.next(), Step::Wait);
    let mut case = case.sandbox("t", true);
    assert_eq!(
        case.next(),
        start("a", 4),
        "attempts count on over sandboxes"
    );
    case = case.container("t", "a", 4, Doing::Running);
    assert_eq!(case.next(), Step::Wait);
    case.expired.insert("s".into());
    assert_eq!(case.next(), Step::RemoveSandbox("s".into()));
}

#[test]
fn restart_policies_decide_about_the_end() {
    let ended = |policy: &str, code| {
        case(&format!(
            "{{restartPolicy: {policy}, containers: [{{name: a}}]}}"
        ))
        .sandbox("s", true)
        .container("s", "a", 0, exited(code))
        .next()
    };
    let phase = |step| match step {
        Step::Finish(verdict) => verdict.phase,
        step => panic!("{step:?}"),
    };
    assert_eq!(ended("Always", 0), start("a", 1));
    assert_eq!(ended("OnFailure", 1), start("a", 1));
    assert_eq!(phase(ended("OnFailure", 0)), Phase::Succeeded);
    assert_eq!(phase(ended("Never", 0)), Phase::Succeeded);
    assert_eq!(phase(ended("Never", 1)), Phase::Failed);
}

#[test]
fn a_failed_init_container_ends_or_repeats() {
    let failed = |policy: &str| {
        case(&format!(
            "{{restartPolicy: {policy}, initContainers: [{{name: i}}], containers: [{{name: a}}]}}"
        ))
        .sandbox("s", true)
        .container("s", "i", 0, exited(1))
        .next()
    };
    assert!(matches!(failed("Never"), Step::Finish(_)));
    assert_eq!(failed("Always"), start("i", 1));
}

#[test]
fn deletion_ends_containers_then_network_then_all() {
    let mut case = case("{containers: [{name: a}]}")
        .sandbox("s", true)
        .container("s", "a", 0, Doing::Running);
    case.deleting = true;
    assert_eq!(case.next(), Step::Kill(vec!["a-0".into()]));
    case.containers[0].doing = exited(0);
    assert_eq!(case.next(), Step::StopSandbox("s".into()));
    case.stopped.insert("s".into());
    case.sandboxes[0].ready = false;
    assert_eq!(case.next(), Step::RemoveSandbox("s".into()));
    case.sandboxes.clear();
    assert_eq!(case.next(), Step::Gone);
}

#[test]
fn an_ended_pod_keeps_its_sandbox_and_loses_its_network() {
    let mut case = case("{containers: [{name: a}]}").sandbox("s", true);
    case.finished = true;
    assert_eq!(case.next(), Step::StopSandbox("s".into()));
    case.stopped.insert("s".into());
    case.sandboxes[0].ready = false;
    assert_eq!(case.next(), Step::Settled);
}
