//! What kubelet and runtime know, and what becomes of it by each call.

use super::calls::{Add, Call, Done, Failure, Kubelet};
use super::counts::Counts;
use super::kernel::file_id;
use super::laws;
use super::node::{Node, RAILS, SHARES};
use super::steps::{At, Fault, Moment, Step};
use podrail_attach::faults::{self, Action, Stopped};
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use podrail_core::pods::PodRef;
use podrail_store::NetnsId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

/// A pod that the kubelet has admitted at some time.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) pod: PodRef,
    pub(super) slots: BTreeSet<SlotId>,
    /// The kubelet has it still.
    pub(super) known: bool,
}

/// A sandbox that the runtime has made at some time.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) id: SandboxId,
    pub(super) pod: usize,
    pub(super) path: PathBuf,
    pub(super) netns: Option<NetnsId>,
    /// The runtime has not seen it deleted.
    pub(super) known: bool,
    pub(super) path_is_there: bool,
    /// The plan of the ADD that went well, with nothing since that could have changed it.
    pub(super) plan: Option<String>,
    /// An interface of the host is gone since, and the children with it.
    pub(super) broken: bool,
    /// Its slots are, or were, another sandbox's since.
    pub(super) outdated: bool,
}

/// What came of a call, as its caller sees it.
pub(super) type Outcome = Result<Result<Done, Failure>, Stopped>;

/// Another call between the effects of one.
type Meanwhile = Option<Result<Done, Failure>>;

#[derive(Debug)]
pub(super) struct World {
    pub(super) node: Rc<Node>,
    pub(super) pods: Vec<Pod>,
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) counts: Counts,
    /// Since the last boot the agent has made one whole round.
    pub(super) repaired: bool,
    clock: i64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            node: Rc::new(Node::new()),
            pods: vec![],
            sandboxes: vec![],
            counts: Counts::default(),
            repaired: true,
            clock: 1000,
        }
    }

    pub(super) fn take(&mut self, moment: &Moment) {
        self.counts.steps += 1;
        self.clock += i64::from(moment.pause);
        match moment.step {
            Step::Reboot => self.reboot(),
            Step::Forget { pod } => self.forget(pod),
            step => self.try_call(step, moment.fault),
        }
        laws::hold(self);
    }

    fn try_call(&mut self, step: Step, fault: Option<(At, Fault)>) {
        let Some(call) = self.call(step) else { return };
        let other = match fault {
            Some((_, Fault::Meanwhile(step))) => self.other(&call, step),
            _ => None,
        };
        let before = laws::Before::look(self, &call);
        let (outcome, meanwhile, fired) = self.run(&call, fault, other.clone());
        if let (Some(other), Some(done)) = (&other, meanwhile) {
            self.counts.meanwhile += 1;
            self.book(other, &Ok(done));
        }
        before.compare(self, &call, (&outcome, fired));
        self.book(&call, &outcome);
    }

    fn reboot(&mut self) {
        self.counts.reboots += 1;
        self.node.reboot();
        self.repaired = false;
        for sandbox in &mut self.sandboxes {
            sandbox.netns = None;
            sandbox.path_is_there = false;
            sandbox.plan = None;
        }
    }

    fn forget(&mut self, pod: u8) {
        if let Some(at) = pick(pod, self.pods.len()) {
            self.pods[at].known = false;
        }
    }

    /// The call that a step is; none if there is nobody to call for.
    fn call(&mut self, step: Step) -> Option<Call> {
        let sandbox = |number| pick(number, self.sandboxes.len());
        Some(match step {
            Step::Allocate { slots } => {
                let slots: Vec<SlotId> = self.free_slots().take(slots.into()).collect();
                let at = self.clock;
                (!slots.is_empty()).then_some(Call::Allocate { slots, at })?
            }
            Step::Add { pod, fresh, again } => Call::Add(self.add(pod, fresh, again)?),
            Step::Del {
                sandbox: number,
                path,
            } => {
                let sandbox = &self.sandboxes[sandbox(number)?];
                let pod = self.pods[sandbox.pod].pod.uid.clone();
                let path = path.then(|| sandbox.path.clone());
                let sandbox = sandbox.id.clone();
                Call::Del { sandbox, pod, path }
            }
            Step::Check { sandbox: number } => {
                let sandbox = &self.sandboxes[sandbox(number)?];
                let path = sandbox.path.clone();
                let sandbox = sandbox.id.clone();
                Call::Check { sandbox, path }
            }
            Step::Gc => {
                let valid = self.sandboxes.iter().filter(|sandbox| sandbox.known);
                let valid = valid.map(|sandbox| sandbox.id.clone()).collect();
                Call::Gc { valid }
            }
            Step::Agent => Call::Agent(self.kubelet()),
            Step::Link { rail, link } => Call::Link { rail, link },
            Step::Gone {
                sandbox: number,
                whole,
            } => {
                let path = self.sandboxes[sandbox(number)?].path.clone();
                Call::Gone { path, whole }
            }
            Step::Reboot | Step::Forget { .. } => return None,
        })
    }

    /// What another process may do while a call is under way: the agent does one thing at a time.
    /// Now and then the kubelet has just forgotten the very pod whose ADD is under way, so that its
    /// slots are given away or its marks are taken.
    fn other(&mut self, call: &Call, step: Step) -> Option<Call> {
        let of_agent = |call: &Call| matches!(call, Call::Allocate { .. } | Call::Agent(_));
        if let (Call::Add(add), Step::Allocate { slots: 2 } | Step::Agent) = (call, step) {
            let mut pods = self.pods.iter_mut();
            let pod = pods.find(|pod| pod.pod == add.pod);
            pod.into_iter().for_each(|pod| pod.known = false);
        }
        let other = self.call(step)?;
        (!(of_agent(call) && of_agent(&other))).then_some(other)
    }

    fn free_slots(&self) -> impl Iterator<Item = SlotId> + use<> {
        let taken = self.kubelet().slots;
        let all = (0..RAILS * SHARES).map(SlotId);
        all.filter(move |slot| !taken.contains(slot))
    }

    fn kubelet(&self) -> Kubelet {
        let known = self.pods.iter().filter(|pod| pod.known);
        Kubelet {
            slots: known.clone().flat_map(|pod| pod.slots.clone()).collect(),
            uids: known.map(|pod| pod.pod.uid.clone()).collect(),
            now: self.clock,
        }
    }

    /// For the newest sandbox of a pod that the kubelet has, or for a new one.
    fn add(&mut self, pod: u8, fresh: bool, again: bool) -> Option<Add> {
        let known: Vec<usize> = (0..self.pods.len())
            .filter(|at| self.pods[*at].known)
            .collect();
        let pod = known[pick(pod, known.len())?];
        let mut usable = self.sandboxes.iter().rev();
        let newest = usable.find(|sandbox| sandbox.pod == pod && sandbox.known);
        let usable = newest.filter(|sandbox| sandbox.path_is_there && !fresh);
        let (sandbox, path) = match usable {
            Some(sandbox) => (sandbox.id.clone(), sandbox.path.clone()),
            None => self.make_sandbox(pod, again),
        };
        Some(Add {
            sandbox,
            pod: self.pods[pod].pod.clone(),
            path,
            slots: self.pods[pod].slots.clone(),
            at: self.clock,
        })
    }

    fn make_sandbox(&mut self, pod: usize, again: bool) -> (SandboxId, PathBuf) {
        let name = format!("sandbox-{}", self.sandboxes.len());
        let path = self.node.make_netns(&name, again);
        let id = SandboxId::parse(&name).unwrap();
        self.sandboxes.push(Sandbox {
            id: id.clone(),
            pod,
            netns: file_id(&path),
            path: path.clone(),
            known: true,
            path_is_there: true,
            plan: None,
            broken: false,
            outdated: false,
        });
        (id, path)
    }

    /// Does a call, with what is to come between its effects; whether it came.
    fn run(
        &mut self,
        call: &Call,
        fault: Option<(At, Fault)>,
        other: Option<Call>,
    ) -> (Outcome, Meanwhile, bool) {
        let struck = Rc::new(RefCell::new(None));
        let done = Rc::new(RefCell::new(None));
        let passed = Cell::new(0);
        let choose = {
            let (node, struck, done) = (self.node.clone(), struck.clone(), done.clone());
            move |stage: &str, _: usize| {
                let (at, fault) = fault?;
                // Others wait for the lock of the directory.
                let waits = matches!(fault, Fault::Meanwhile(_)) && stage.starts_with("cdi");
                let number = passed.replace(passed.get() + 1);
                let early = match at {
                    At::Point(at) => number < at,
                    At::Stage(at) => stage != at,
                };
                if early || waits || struck.borrow().is_some() {
                    return None;
                }
                *struck.borrow_mut() = Some(stage.to_owned());
                match fault {
                    Fault::Kill => Some(Action::Stop),
                    Fault::Error => Some(Action::Error),
                    Fault::Meanwhile(_) => {
                        *done.borrow_mut() = other.as_ref().map(|other| node.perform(other));
                        None
                    }
                }
            }
        };
        let node = self.node.clone();
        let outcome = faults::run(choose, || node.perform(call));
        let struck = struck.take();
        match (&struck, &outcome, fault) {
            (Some(stage), Err(Stopped), _) => {
                *self.counts.kills.entry(stage.clone()).or_default() += 1
            }
            (Some(_), _, Some((_, Fault::Error))) => self.counts.errors += 1,
            _ => {}
        }
        (outcome, done.take(), struck.is_some())
    }

    /// What kubelet and runtime make of an outcome.
    fn book(&mut self, call: &Call, outcome: &Outcome) {
        match (call, outcome) {
            (Call::Allocate { slots, .. }, outcome) => {
                // Half of it may be done, whatever the kubelet hears.
                self.outdate(slots, None);
                if matches!(outcome, Ok(Ok(_))) {
                    self.admit(slots);
                }
            }
            (Call::Add(add), outcome) => self.book_add(add, outcome),
            (Call::Del { sandbox, .. }, outcome) => {
                let at = self.sandbox(sandbox);
                self.sandboxes[at].plan = None;
                if matches!(outcome, Ok(Ok(_))) {
                    self.sandboxes[at].known = false;
                    self.gone(at, true);
                }
            }
            (Call::Gc { valid }, _) => {
                let gone = self.sandboxes.iter_mut();
                let gone = gone.filter(|sandbox| !valid.contains(&sandbox.id));
                gone.for_each(|sandbox| sandbox.plan = None);
            }
            (Call::Agent(_), Ok(Ok(_))) => self.repaired = true,
            (Call::Link { link: None, .. }, _) => {
                self.sandboxes.iter_mut().for_each(|one| one.broken = true);
            }
            (Call::Gone { path, whole }, _) => {
                let mut sandboxes = self.sandboxes.iter();
                let at = sandboxes.position(|sandbox| sandbox.path == *path);
                self.gone(at.unwrap(), *whole);
            }
            _ => {}
        }
    }

    fn admit(&mut self, slots: &[SlotId]) {
        let name = format!("pod-{}", self.pods.len());
        self.pods.push(Pod {
            pod: PodRef {
                uid: PodUid::parse(&format!("uid-of-{name}")).unwrap(),
                namespace: "jobs".parse().unwrap(),
                name: name.parse().unwrap(),
            },
            slots: slots.iter().copied().collect(),
            known: true,
        });
    }

    fn book_add(&mut self, add: &Add, outcome: &Outcome) {
        let slots: Vec<SlotId> = add.slots.iter().copied().collect();
        self.outdate(&slots, Some(&add.sandbox));
        let at = self.sandbox(&add.sandbox);
        let sandbox = &mut self.sandboxes[at];
        sandbox.plan = None;
        if let Ok(Ok(Done::Attached(plan))) = outcome {
            sandbox.plan = Some(plan.clone());
            self.counts.attached += 1;
        }
        if matches!(outcome, Ok(Err(failure)) if failure.error.is_short()) {
            self.counts.short += 1;
        }
    }

    fn outdate(&mut self, slots: &[SlotId], by: Option<&SandboxId>) {
        for sandbox in &mut self.sandboxes {
            let has = |slot| self.pods[sandbox.pod].slots.contains(slot);
            sandbox.outdated |= slots.iter().any(has) && Some(&sandbox.id) != by;
        }
    }

    fn gone(&mut self, at: usize, whole: bool) {
        let sandbox = &mut self.sandboxes[at];
        let path = sandbox.path.clone();
        sandbox.path_is_there = false;
        if whole {
            sandbox.netns = None;
            sandbox.plan = None;
        }
        self.node.perform(&Call::Gone { path, whole }).unwrap();
    }

    pub(super) fn sandbox(&self, id: &SandboxId) -> usize {
        let mut sandboxes = self.sandboxes.iter();
        sandboxes.position(|sandbox| sandbox.id == *id).unwrap()
    }

    /// Everything ends well in the end: whatever there was, nothing is left.
    pub(super) fn end(&mut self) {
        for number in 0..self.sandboxes.len() {
            let sandbox = u8::try_from(number).unwrap();
            self.try_call(
                Step::Del {
                    sandbox,
                    path: number % 2 == 0,
                },
                None,
            );
            laws::hold(self);
        }
        self.pods.iter_mut().for_each(|pod| pod.known = false);
        for _ in 0..2 {
            self.clock += 1000;
            self.try_call(Step::Agent, None);
        }
        laws::hold(self);
        laws::nothing_is_left(self);
    }
}

fn pick(number: u8, of: usize) -> Option<usize> {
    usize::from(number).checked_rem(of)
}
