//! From a request to rails in a namespace: reserve, attach, expose, mark ready.

use crate::error::{NodeError, in_words};
use crate::kernel::Kernel;
use crate::markers::settle;
use crate::sandbox::{attachment, is_ready};
use crate::session::{Notes, Session};
use podrail_attach::{Target, faults};
use podrail_core::attachment::{Attachment, DecideError};
use podrail_store::{Binding, Decision, Request, Reserved, Snapshot, State, Store};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Why a hook failed; it says so itself.
pub type HookError = Box<dyn Error + Send + Sync>;

/// How containers get the devices of their rails: files of the container device interface, or
/// nothing at all.
pub trait Exposure {
    /// Makes the devices of a binding known, before it counts as ready, as far as its slots are
    /// still its own: `store` tells. Returns what is worth knowing. Twice has to be as once.
    ///
    /// # Errors
    /// What is there then is concealed again.
    fn expose(
        &mut self,
        binding: &Binding,
        attachment: &Attachment,
        store: &Store,
    ) -> Result<Notes, HookError>;

    /// What of an earlier [`expose`](Self::expose) is not there, in words that name the rail; slots
    /// that are no longer the binding's own are passed over.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn missing(&self, binding: &Binding, store: &Store) -> Result<Vec<String>, HookError>;

    /// Takes back what still belongs to this binding and to none that is newer. Twice, and after
    /// half of an `expose`, has to be fine.
    ///
    /// # Errors
    /// The binding stays reserved then.
    fn conceal(&mut self, binding: &Binding) -> Result<(), HookError>;
}

/// Without Kubernetes whoever starts the job passes the devices on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Exposure for Nothing {
    fn expose(&mut self, _: &Binding, _: &Attachment, _: &Store) -> Result<Notes, HookError> {
        Ok(vec![])
    }

    fn missing(&self, _: &Binding, _: &Store) -> Result<Vec<String>, HookError> {
        Ok(vec![])
    }

    fn conceal(&mut self, _: &Binding) -> Result<(), HookError> {
        Ok(())
    }
}

impl<K: Kernel> Session<K> {
    /// Gives the session's sandbox what `decide` chooses, and attaches it. `decide` runs under the
    /// store's write lock, with no other sandbox coming to or going from the namespace.
    ///
    /// # Guarantees
    /// All rails or none. Twice with the same arguments: the same rails, and what stands is left
    /// as it is. Killed anywhere: the next attach or detach of the sandbox finishes what was begun.
    ///
    /// # Errors
    /// Nothing is attached or reserved then, unless a note says that it stays reserved.
    pub fn attach(
        &mut self,
        request: &Request,
        netns: &K::Netns,
        decide: impl FnOnce(&Snapshot) -> Result<Decision, DecideError>,
        exposure: &mut impl Exposure,
    ) -> Result<Binding, NodeError> {
        self.lock.with_namespace(self.kernel.id(netns))?;
        self.still_there(request, netns)?;
        self.refuse_lost_state()?;
        let mut binding = self.reserve(request, decide)?;
        let attachment = attachment(&binding)?;
        if binding.request.netns_id != request.netns_id {
            return Err(NodeError::NetnsReplaced {
                path: PathBuf::from(&request.netns),
                sandbox: request.sandbox.to_string(),
            });
        }
        if is_ready(&binding) && self.stands((&binding, &attachment), netns, exposure)? {
            return Ok(binding);
        }
        if let Err(failure) = self.establish(&binding, &attachment, netns, exposure) {
            self.give_back(&binding, &attachment, netns, (exposure, &failure));
            return Err(failure);
        }
        faults::reach("ready", 0).map_err(NodeError::Injected)?;
        binding.state = State::Ready;
        Ok(binding)
    }

    /// A file in which nobody was ever bound, on a node with rails in use, is not the one that these
    /// stand in: what they hold would be given out twice.
    fn refuse_lost_state(&self) -> Result<(), NodeError> {
        if !self.store.is_unused()? {
            return Ok(());
        }
        let others = self.kernel.others_than(&self.sandbox)?;
        // Whoever was attached meanwhile was bound before.
        match others.first() {
            Some(one) if self.store.is_unused()? => Err(NodeError::StateLost {
                sandbox: one.to_string(),
                count: others.len(),
            }),
            _ => Ok(()),
        }
    }

    /// Reserves, and brings the markers in line: the pod is known before, the slots wait no longer
    /// after. The pod is marked once more then: [`forget_pod`] may have taken the mark away before
    /// there was a binding to see.
    ///
    /// [`forget_pod`]: crate::forget_pod
    fn reserve(
        &mut self,
        request: &Request,
        decide: impl FnOnce(&Snapshot) -> Result<Decision, DecideError>,
    ) -> Result<Binding, NodeError> {
        if let Some(pod) = &request.pod {
            self.markers.mark_pod(&pod.uid)?;
        }
        self.mind_the_time()?;
        let reserved = self.store.reserve(request, decide)?;
        let binding = reserved.binding().clone();
        if let Reserved::New(binding) = &reserved {
            if let Some(pod) = &request.pod
                && let Err(error) = self.markers.mark_pod(&pod.uid)
            {
                // Without the mark nobody would detach it.
                let released = self.store.release(&self.sandbox);
                self.noted(released.map_err(NodeError::from));
                return Err(error);
            }
            let slots: Vec<_> = binding.rails.iter().filter_map(|rail| rail.slot).collect();
            // One marker too many costs a question; the binding is kept already.
            if let Err(error) = settle(&self.store, &self.markers, &slots) {
                self.notes.push(in_words(&error, error.hint()));
            }
        }
        Ok(binding)
    }

    /// Attach, expose, mark ready.
    fn establish(
        &mut self,
        binding: &Binding,
        attachment: &Attachment,
        netns: &K::Netns,
        exposure: &mut impl Exposure,
    ) -> Result<(), NodeError> {
        faults::reach("reserved", 0).map_err(NodeError::Injected)?;
        self.kernel.attach(&attachment.plan, netns)?;
        faults::reach("attached", 0).map_err(NodeError::Injected)?;
        let exposed = exposure.expose(binding, attachment, &self.store);
        self.notes
            .extend(exposed.map_err(|source| NodeError::Expose {
                sandbox: self.sandbox.to_string(),
                source,
            })?);
        faults::reach("exposed", 0).map_err(NodeError::Injected)?;
        self.still_there(&binding.request, netns)?;
        self.mind_the_time()?;
        Ok(self.store.mark_ready(&self.sandbox)?)
    }

    /// Whether what was attached earlier is still whole; notes what is not.
    fn stands(
        &mut self,
        (binding, attachment): (&Binding, &Attachment),
        netns: &K::Netns,
        exposure: &impl Exposure,
    ) -> Result<bool, NodeError> {
        let mut differences = self.kernel.differences(&attachment.plan, netns)?;
        // A detach and the attach after it may both have been killed half-way.
        let missing = exposure.missing(binding, &self.store);
        differences.extend(missing.map_err(|source| NodeError::Expose {
            sandbox: self.sandbox.to_string(),
            source,
        })?);
        let notes = differences.iter();
        self.notes
            .extend(notes.map(|difference| format!("{difference}: attaching again")));
        Ok(differences.is_empty())
    }

    /// Takes back what is in the kernel and what was exposed, then the reservation. What could not
    /// be undone stays reserved, so that no other sandbox gets an address that is still up. A
    /// second failure is a note: the first one is the result.
    fn give_back(
        &mut self,
        binding: &Binding,
        attachment: &Attachment,
        netns: &K::Netns,
        (exposure, failure): (&mut impl Exposure, &NodeError),
    ) {
        let undone = match failure {
            // It says what it could not undo.
            NodeError::Attach(error) if error.left_something() => false,
            // Even if it has undone what it did: a detach that was killed may have left settings of
            // the namespace as an earlier attach made them.
            _ => {
                let detached = self.kernel.detach(&Target::of(&attachment.plan), netns);
                self.noted(detached.map_err(NodeError::from))
            }
        };
        let concealed = conceal(exposure, binding);
        if !(self.noted(concealed) && undone) {
            let words = "the rails stay reserved: run 'podrail detach' for this id";
            return self.notes.push(words.into());
        }
        let released = self.store.release(&self.sandbox);
        self.noted(released.map_err(NodeError::from));
    }

    /// Whether it went well; if not, there is a note.
    fn noted<T>(&mut self, outcome: Result<T, NodeError>) -> bool {
        if let Err(error) = &outcome {
            self.notes.push(in_words(error, error.hint()));
        }
        outcome.is_ok()
    }

    /// A runtime that gave up while the kubelet or a lock was waited for has said DEL already,
    /// before there was anything to detach, and takes the namespace away: nobody would ever detach
    /// what is attached now.
    fn still_there(&self, request: &Request, netns: &K::Netns) -> Result<(), NodeError> {
        let path = Path::new(&request.netns);
        let found = self.kernel.open(path)?.map(|found| self.kernel.id(&found));
        match found == Some(self.kernel.id(netns)) {
            true => Ok(()),
            false => Err(NodeError::NetnsGone {
                path: path.to_owned(),
            }),
        }
    }
}

pub(crate) fn conceal(exposure: &mut impl Exposure, binding: &Binding) -> Result<(), NodeError> {
    exposure
        .conceal(binding)
        .map_err(|source| NodeError::Conceal {
            sandbox: binding.request.sandbox.to_string(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Deadline;
    use crate::markers::Markers;
    use crate::testing;
    use podrail_netlink::NetNs;

    fn session(dir: &tempfile::TempDir) -> (Session, Request) {
        let (state, sandbox) = (dir.path().join("state.db"), testing::sandbox("a"));
        let session = Session::open(&state, &sandbox, Deadline::default()).unwrap();
        let request = testing::request(&session.store, "a");
        (session, request)
    }

    /// The agent takes the mark of a pod away whose binding is not there yet.
    #[test]
    fn a_pod_that_is_bound_is_marked_whatever_was_taken_away_before() {
        let dir = tempfile::tempdir().unwrap();
        let markers = Markers::at(dir.path());
        let (mut session, request) = session(&dir);
        let uid = testing::pod("a").uid;
        let decide = |_: &Snapshot| {
            assert!(markers.knows(Some(&uid)).unwrap());
            markers.clear_pod(&uid).unwrap();
            Ok(testing::decision("a", &[3]))
        };
        session.reserve(&request, decide).unwrap();
        assert!(markers.knows(Some(&uid)).unwrap());
    }

    #[test]
    fn a_namespace_that_is_gone_gets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, request) = session(&dir);
        let ours = NetNs::current().unwrap();
        let at = |path: &Path| Request {
            netns: path.to_str().unwrap().to_owned(),
            ..request.clone()
        };
        let own = at(Path::new("/proc/self/ns/net"));
        session.still_there(&own, &ours).unwrap();
        let left = dir.path().join("left");
        std::fs::write(&left, "").unwrap();
        for path in [left, dir.path().join("none")] {
            let decide = |_: &Snapshot| panic!("nothing is reserved");
            let attached = session.attach(&at(&path), &ours, decide, &mut Nothing);
            let gone = matches!(attached, Err(NodeError::NetnsGone { .. }));
            assert!(gone, "{attached:?}");
        }
        assert_eq!(session.binding().unwrap(), None);
    }

    #[test]
    fn a_slot_that_was_given_away_meanwhile_is_worth_another_try() {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, request) = session(&dir);
        testing::store(dir.path())
            .allocate(&[podrail_core::ids::SlotId(3)], 100)
            .unwrap();
        let decide = |_: &Snapshot| Ok(testing::decision("a", &[3]));
        let error = session.reserve(&request, decide).unwrap_err();
        assert!(error.retryable(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("slot-03 was given to another pod"),
            "{error}"
        );
        assert!(error.hint().unwrap().starts_with("try again"));
        assert_eq!(session.binding().unwrap(), None);
    }
}
