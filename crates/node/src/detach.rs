//! Rails out of a namespace: links first, then devices, then addresses and rails.

use crate::attach::{Exposure, conceal};
use crate::error::NodeError;
use crate::kernel::Kernel;
use crate::sandbox::attachment;
use crate::session::Session;
use podrail_attach::{Target, faults};
use podrail_store::{Binding, Released};
use std::path::Path;

/// What a detach did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// How many interfaces there were.
    pub links: usize,
    /// What is no longer held.
    pub released: Released,
}

impl<K: Kernel> Session<K> {
    /// Takes all rails of the session's sandbox away, in the namespace at `path` or in the one that
    /// was attached, and frees what it holds.
    ///
    /// # Guarantees
    /// Succeeds twice, without a binding, and when the namespace is gone. Goes on after a fault.
    /// Another namespace than the attached one, and the host's own, are left alone.
    ///
    /// # Errors
    /// What cannot be taken away stays reserved, and the error lists it.
    pub fn detach(
        &mut self,
        path: Option<&Path>,
        exposure: &mut impl Exposure,
    ) -> Result<Detached, NodeError> {
        let binding = self.binding()?;
        let links = match self.namespace(path, binding.as_ref())? {
            Some(netns) => {
                self.lock.with_namespace(self.kernel.id(&netns))?;
                let (target, problem) = self.target(binding.as_ref());
                let words = |error| format!("{error}: detaching by group and alias");
                self.notes.extend(problem.map(words));
                self.kernel.detach(&target, &netns)?
            }
            None => 0,
        };
        faults::reach("detached", 0).map_err(NodeError::Injected)?;
        if let Some(binding) = &binding {
            conceal(exposure, binding)?;
        }
        faults::reach("concealed", 0).map_err(NodeError::Injected)?;
        self.mind_the_time()?;
        let released = self.store.release(&self.sandbox)?;
        faults::reach("released", 0).map_err(NodeError::Injected)?;
        Ok(Detached { links, released })
    }

    /// The namespace to clean, by the given path or by the one that was attached; none if it is
    /// gone.
    pub(crate) fn namespace(
        &mut self,
        path: Option<&Path>,
        binding: Option<&Binding>,
    ) -> Result<Option<K::Netns>, NodeError> {
        let attached = binding.map(|binding| Path::new(&binding.request.netns));
        for path in path.into_iter().chain(attached) {
            let Some(netns) = self.kernel.open(path)? else {
                continue;
            };
            match binding.and_then(|binding| binding.request.netns_id) {
                // Even if it is the one this runs in: the caller may be in the pod's.
                Some(id) if id == self.kernel.id(&netns) => return Ok(Some(netns)),
                // A path may be used again for another namespace, which is none of our business.
                Some(_) => self.notes.push(format!(
                    "{} is not the namespace that {} was attached to: left alone",
                    path.display(),
                    self.sandbox
                )),
                // No rail is ever attached to the host's own.
                None if self.kernel.id(&netns) == self.kernel.own()? => {}
                None => return Ok(Some(netns)),
            }
        }
        Ok(binding.and_then(|binding| self.elsewhere(binding)))
    }

    /// The attached namespace by another path than the one that is gone: its addresses are up, so
    /// they must not be freed before it is cleaned. Inodes are used again, hence only a namespace
    /// that has something of this sandbox counts.
    fn elsewhere(&self, binding: &Binding) -> Option<K::Netns> {
        let netns = self.kernel.find(binding.request.netns_id?)?;
        let (target, _) = self.target(Some(binding));
        self.kernel.has_any(&target, &netns).then_some(netns)
    }

    /// What is to go; and why it is not known by its plan, where that cannot be read.
    fn target(&self, binding: Option<&Binding>) -> (Target, Option<NodeError>) {
        let lost = || Target::without_plan(self.sandbox.clone());
        match binding.map(attachment) {
            Some(Ok(attachment)) => (Target::of(&attachment.plan), None),
            Some(Err(error)) => (lost(), Some(error)),
            None => (lost(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Deadline;
    use crate::kernel::Linux;
    use crate::sandbox::netns_id;
    use podrail_core::ids::SandboxId;
    use podrail_store::{BootId, NetnsId, Request, State};

    const HERE: &str = "/proc/thread-self/ns/net";

    fn binding(id: NetnsId) -> Binding {
        Binding {
            request: Request {
                sandbox: SandboxId::parse("job1").unwrap(),
                fingerprint: String::new(),
                netns: HERE.into(),
                netns_id: Some(id),
                gpus: vec![],
                pod: None,
                at: 0,
                seen: std::collections::BTreeMap::new(),
            },
            state: State::Ready,
            boot: BootId::parse("00000000-0000-4000-8000-000000000000").unwrap(),
            sequence: 1,
            rails: vec![],
            leases: vec![],
            plan: String::new(),
        }
    }

    /// Run in the pod (`ip netns exec job1 podrail detach`), it must not free addresses that are up.
    #[test]
    fn the_attached_namespace_is_cleaned_even_from_inside() {
        // Opening a namespace enters it, which takes privileges.
        let Ok(Some(here)) = Linux.open(Path::new(HERE)) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let (state, job) = (
            dir.path().join("state.db"),
            SandboxId::parse("job1").unwrap(),
        );
        let mut session = Session::open(&state, &job, Deadline::default()).unwrap();
        let id = netns_id(&here);
        let found = session.namespace(None, Some(&binding(id))).unwrap();
        assert_eq!(found.map(|netns| netns.id()), Some(here.id()));
        let other = NetnsId { ino: 1, ..id };
        let found = session.namespace(None, Some(&binding(other))).unwrap();
        assert!(found.is_none(), "another namespace is left alone");
        assert_eq!(session.take_notes().len(), 1);
        let found = session.namespace(Some(Path::new(HERE)), None).unwrap();
        assert!(found.is_none(), "the host's own is left alone");
    }
}
