//! What a pod needs next. Pure: the worker looks, this decides, the worker acts and looks again.

use crate::manifest::{Container, Pod, RestartPolicy};
use crate::runtime::{Doing, Sandbox, Seen};
use crate::status::{Phase, Verdict, newest};
use std::collections::BTreeSet;

/// Where a wait for the sandbox is noted among those for containers.
pub(crate) const SANDBOX: &str = "";

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until something changes.
    Wait,
    /// End these containers.
    Kill(Vec<String>),
    /// Network away: the runtime calls DEL.
    StopSandbox(String),
    /// Stopped once more, then removed.
    RemoveSandbox(String),
    /// A new sandbox: the runtime calls ADD.
    RunSandbox { attempt: u32 },
    /// A new start of a container.
    Start { container: String, attempt: u32 },
    /// The pod has ended for good.
    Finish(Verdict),
    /// Ended, nothing runs, the network is gone: its devices are free.
    Settled,
    /// Nothing is left of a deleted pod.
    Gone,
}

/// What is known of a pod.
pub(crate) struct Look<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) finished: bool,
    pub(crate) deleting: bool,
    /// Oldest first.
    pub(crate) sandboxes: &'a [Sandbox],
    pub(crate) containers: &'a [Seen],
    /// Sandboxes for which StopPodSandbox went well.
    pub(crate) stopped: &'a BTreeSet<String>,
    /// Containers, or [`SANDBOX`], that wait for their next try.
    pub(crate) resting: &'a BTreeSet<String>,
    /// Replaced sandboxes whose time has come.
    pub(crate) expired: &'a BTreeSet<String>,
}

/// The next step.
pub(crate) fn next(look: &Look<'_>) -> Step {
    if look.deleting {
        return look.end(Step::Gone, true);
    }
    if look.finished {
        return look.end(Step::Settled, false);
    }
    if let Some(verdict) = look.outcome() {
        return Step::Finish(verdict);
    }
    match look.sandboxes.last() {
        Some(sandbox) if sandbox.ready => look.in_sandbox(sandbox),
        last => look.replace(last),
    }
}

impl Look<'_> {
    fn running(&self) -> Vec<String> {
        let running = self
            .containers
            .iter()
            .filter(|seen| seen.doing == Doing::Running);
        running.map(|seen| seen.id.clone()).collect()
    }

    fn end(&self, end: Step, remove: bool) -> Step {
        let running = self.running();
        if !running.is_empty() {
            return Step::Kill(running);
        }
        let mut sandboxes = self.sandboxes.iter();
        if let Some(sandbox) = sandboxes.find(|s| s.ready || !self.stopped.contains(&s.id)) {
            return Step::StopSandbox(sandbox.id.clone());
        }
        match self.sandboxes.first().filter(|_| remove) {
            Some(sandbox) => Step::RemoveSandbox(sandbox.id.clone()),
            None => end,
        }
    }

    /// The last sandbox is not ready, or there is none.
    fn replace(&self, last: Option<&Sandbox>) -> Step {
        let running = self.running();
        if !running.is_empty() {
            return Step::Kill(running);
        }
        if let Some(last) = last.filter(|last| !self.stopped.contains(&last.id)) {
            return Step::StopSandbox(last.id.clone());
        }
        match self.resting.contains(SANDBOX) {
            true => Step::Wait,
            false => Step::RunSandbox {
                attempt: last.map_or(0, |last| last.attempt + 1),
            },
        }
    }

    /// How the pod ended, if it did.
    fn outcome(&self) -> Option<Verdict> {
        let spec = &self.pod.spec;
        let policy = spec.restart_policy;
        let mut plain = spec.init_containers.iter().filter(|c| !c.stays());
        let failed_init = plain.find(|c| self.code(c).is_some_and(|code| code != 0));
        if policy == RestartPolicy::Never
            && let Some(container) = failed_init
        {
            return Some(failed(&format!("init container {} failed", container.name)));
        }
        let codes: Option<Vec<i32>> = spec.containers.iter().map(|c| self.code(c)).collect();
        let all_well = codes?.iter().all(|code| *code == 0);
        match policy {
            RestartPolicy::Always => None,
            RestartPolicy::OnFailure if !all_well => None,
            _ if all_well => Some(Verdict {
                phase: Phase::Succeeded,
                reason: "Completed".to_owned(),
                message: String::new(),
            }),
            _ => Some(failed("a container ended with another code than 0")),
        }
    }

    /// With which code the newest start of a container ended, if it did.
    fn code(&self, container: &Container) -> Option<i32> {
        match newest(self.containers, &container.name)?.doing {
            Doing::Exited { code, .. } => Some(code),
            _ => None,
        }
    }

    fn in_sandbox(&self, sandbox: &Sandbox) -> Step {
        let step = self.init(sandbox).unwrap_or_else(|| self.main(sandbox));
        match step {
            Step::Wait => self.collect(sandbox),
            step => step,
        }
    }

    /// Init containers in order; `None` when the main ones may start.
    fn init(&self, sandbox: &Sandbox) -> Option<Step> {
        let spec = &self.pod.spec;
        let in_sandbox = |name: &str| self.in_this(sandbox, name);
        let main_started = spec
            .containers
            .iter()
            .any(|c| in_sandbox(&c.name).is_some());
        for container in &spec.init_containers {
            let doing = in_sandbox(&container.name).map(|seen| &seen.doing);
            match (container.stays(), doing) {
                (true, Some(Doing::Running)) => {}
                (false, Some(Doing::Exited { code: 0, .. })) => {}
                (false, _) if main_started => {}
                (false, Some(Doing::Running)) => return Some(Step::Wait),
                _ => match self.start(container) {
                    // A sidecar that rests does not hold the others up.
                    Step::Wait if main_started => {}
                    step => return Some(step),
                },
            }
        }
        None
    }

    fn main(&self, sandbox: &Sandbox) -> Step {
        let wanting = self.pod.spec.containers.iter().filter(|container| {
            match self
                .in_this(sandbox, &container.name)
                .map(|seen| &seen.doing)
            {
                Some(Doing::Running) => false,
                Some(Doing::Exited { code, .. }) => self.again(*code),
                Some(Doing::Created) | None => true,
            }
        });
        let mut steps = wanting.map(|container| self.start(container));
        steps.find(|step| *step != Step::Wait).unwrap_or(Step::Wait)
    }

    fn again(&self, code: i32) -> bool {
        match self.pod.spec.restart_policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        }
    }

    fn in_this(&self, sandbox: &Sandbox, name: &str) -> Option<&Seen> {
        newest(self.containers, name).filter(|seen| seen.sandbox == sandbox.id)
    }

    fn start(&self, container: &Container) -> Step {
        let name = &container.name;
        if self.resting.contains(name) {
            return Step::Wait;
        }
        Step::Start {
            container: name.clone(),
            // Names in the runtime have the attempt and no sandbox: it counts on over sandboxes.
            attempt: newest(self.containers, name).map_or(0, |seen| seen.attempt + 1),
        }
    }

    /// Sandboxes that were replaced long enough ago.
    fn collect(&self, current: &Sandbox) -> Step {
        let mut old = self.sandboxes.iter().filter(|s| s.id != current.id);
        match old.find(|sandbox| self.expired.contains(&sandbox.id)) {
            Some(sandbox) => Step::RemoveSandbox(sandbox.id.clone()),
            None => Step::Wait,
        }
    }
}

fn failed(message: &str) -> Verdict {
    Verdict {
        phase: Phase::Failed,
        reason: "Error".to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
