//! The calls of plugin and agent, made as they make them, each with the state file opened anew.

use super::kernel::{Netns, Sim, file_id};
use super::node::{Node, RAILS, SHARES, netdev};
use crate::attach::{Exposure, HookError};
use crate::cdi::{CdiFiles, conceal_slots, remove_orphans, write_own};
use crate::garbage::collect_on;
use crate::kernel::Kernel;
use crate::markers::{allocate, forget_pod, forget_slots, repair};
use crate::session::{Notes, Session};
use crate::{Deadline, NodeError, attachment, held, kept};
use podrail_attach::cdi::CdiFileError;
use podrail_core::attachment::{Attachment, DecideError, Means, Part, PodWish, decide_pod};
use podrail_core::cdi::{Options, files};
use podrail_core::ids::{PodUid, SandboxId, SlotId};
use podrail_core::networks::Wanted;
use podrail_core::pods::PodRef;
use podrail_store::{Binding, Decision, Request, Snapshot, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How long a mark stands until it may count as left over, in seconds.
const SETTLED: i64 = 60;

/// What plugin and agent are asked.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Allocate {
        slots: Vec<SlotId>,
        at: i64,
    },
    Add(Add),
    Del {
        sandbox: SandboxId,
        pod: PodUid,
        path: Option<PathBuf>,
    },
    Check {
        sandbox: SandboxId,
        path: PathBuf,
    },
    Gc {
        valid: BTreeSet<SandboxId>,
    },
    Agent(Kubelet),
    /// The interface of a rail has a link, has none, or is gone.
    Link {
        rail: u16,
        link: Option<bool>,
    },
    /// The namespace at a path is gone; or only its path.
    Gone {
        path: PathBuf,
        whole: bool,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Add {
    pub(super) sandbox: SandboxId,
    pub(super) pod: PodRef,
    pub(super) path: PathBuf,
    pub(super) slots: BTreeSet<SlotId>,
    pub(super) at: i64,
}

/// What the kubelet knows.
#[derive(Debug, Clone)]
pub(super) struct Kubelet {
    pub(super) slots: BTreeSet<SlotId>,
    pub(super) uids: BTreeSet<PodUid>,
    pub(super) now: i64,
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Done {
    /// The plan of the rails.
    Attached(String),
    /// The plugin took it for a pod without rails.
    Passed,
    /// What CHECK found.
    Found(Vec<String>),
    Nothing,
}

/// Why a call failed, and what was noted.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: NodeError,
    pub(super) notes: Notes,
}

impl<E: Into<NodeError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let (error, notes) = (error.into(), vec![]);
        Self { error, notes }
    }
}

/// For what is no error of the node itself.
fn cdi_failure(error: CdiFileError) -> Failure {
    let sandbox = "any".into();
    let source = error.into();
    NodeError::Conceal { sandbox, source }.into()
}

impl Node {
    pub(super) fn perform(&self, call: &Call) -> Result<Done, Failure> {
        match call {
            Call::Allocate { slots, at } => self.allocate(slots, *at),
            Call::Add(add) => self.add(add),
            Call::Del { sandbox, pod, path } => {
                if !self.markers().knows(Some(pod)).unwrap() {
                    return Ok(Done::Passed);
                }
                self.detach(sandbox, path.as_deref())
            }
            Call::Check { sandbox, path } => self.check(sandbox, path),
            Call::Gc { valid } => self.gc(valid),
            Call::Agent(kubelet) => self.agent(kubelet),
            Call::Link { rail, link } => {
                self.kernel.set_link(netdev(*rail).as_str(), *link);
                Ok(Done::Nothing)
            }
            Call::Gone { path, whole } => {
                self.gone(path, *whole);
                Ok(Done::Nothing)
            }
        }
    }

    fn allocate(&self, slots: &[SlotId], at: i64) -> Result<Done, Failure> {
        allocate(&mut self.open()?, &self.markers(), slots, at)?;
        conceal_slots(&self.cdi(), slots).map_err(cdi_failure)?;
        Ok(Done::Nothing)
    }

    fn session(&self, sandbox: &SandboxId) -> Result<Session<Sim>, NodeError> {
        let soon = Deadline::within(Duration::ZERO);
        Session::on(self.kernel.clone(), &self.state(), sandbox, soon)
    }

    /// If rails or addresses are short, what dead sandboxes hold is collected first.
    fn add(&self, add: &Add) -> Result<Done, Failure> {
        if !self.markers().wants_rails(Some(&add.pod.uid)).unwrap() {
            return Ok(Done::Passed);
        }
        let waiting = self.read().waiting().clone().into_iter();
        let request = Request {
            sandbox: add.sandbox.clone(),
            fingerprint: add.pod.uid.to_string(),
            netns: add.path.to_str().unwrap().to_owned(),
            netns_id: file_id(&add.path),
            gpus: vec![],
            pod: Some(add.pod.clone()),
            at: add.at,
            seen: waiting.map(|(slot, row)| (slot, row.number)).collect(),
        };
        let path = add.path.clone();
        let netns = self.kernel.open(&path)?;
        let netns = netns.ok_or(NodeError::NetnsGone { path })?;
        match self.attach(add, &request, &netns) {
            Err(failure) if failure.error.is_short() => {
                match self.collect(&mut CdiFiles::of_others(&self.cdi()))? {
                    0 => Err(failure),
                    _ => self.attach(add, &request, &netns),
                }
            }
            other => other,
        }
    }

    fn collect(&self, files: &mut CdiFiles<'_>) -> Result<usize, Failure> {
        let soon = Deadline::within(Duration::ZERO);
        let state = self.state();
        let found = collect_on(self.kernel.clone(), &state, &self.sight, (files, soon))?;
        match found.failed.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(found.released.len()),
        }
    }

    fn attach(&self, add: &Add, request: &Request, netns: &Rc<Netns>) -> Result<Done, Failure> {
        let mut session = self.session(&add.sandbox)?;
        let decide = |snapshot: &Snapshot| self.decide(add, netns, snapshot);
        let attached = session.attach(request, netns, decide, &mut Shown(self));
        let notes = session.take_notes();
        attached
            .map(|binding| Done::Attached(binding.plan))
            .map_err(|error| Failure { error, notes })
    }

    fn decide(
        &self,
        add: &Add,
        netns: &Netns,
        snapshot: &Snapshot,
    ) -> Result<Decision, DecideError> {
        let topology = self.topology();
        let pool = self.settings.pool.as_ref().unwrap();
        let means = Means {
            topology: &topology,
            settings: &self.settings.config.rails,
            pool,
        };
        let part = Part {
            containers: vec!["main".into()],
            rails: u16::try_from(add.slots.len()).unwrap(),
            slots: add.slots.iter().copied().collect(),
            ..Part::default()
        };
        let wish = PodWish {
            sandbox: add.sandbox.clone(),
            parts: vec![part],
            networks: Wanted::default(),
            previous_rp_filter: Some(netns.inside.borrow().rp_filter.clone()),
        };
        let held = held(snapshot, &topology, pool.name());
        let decided = decide_pod(&means, &held, &wish, &[])?;
        Ok(kept(&decided, snapshot, pool.name()))
    }

    fn detach(&self, sandbox: &SandboxId, path: Option<&Path>) -> Result<Done, Failure> {
        let mut session = self.session(sandbox)?;
        if session.binding()?.is_some() {
            session.detach(path, &mut CdiFiles::of_others(&self.cdi()))?;
        }
        Ok(Done::Nothing)
    }

    fn check(&self, sandbox: &SandboxId, path: &Path) -> Result<Done, Failure> {
        let read = self.read();
        let Some(binding) = read.get(sandbox) else {
            return Ok(Done::Found(vec!["nothing is bound".into()]));
        };
        let path = path.to_owned();
        let netns = self.kernel.open(&path)?;
        let netns = netns.ok_or(NodeError::NetnsGone { path })?;
        let mut found = self
            .kernel
            .differences(&attachment(binding)?.plan, &netns)?;
        let newest =
            |slot| read.slot_owner(slot) == Some(sandbox) && !read.waiting().contains_key(&slot);
        let cdi = self.cdi();
        let files = CdiFiles::of_others(&cdi).missing(binding, newest);
        found.extend(files.map_err(cdi_failure)?);
        Ok(Done::Found(found))
    }

    fn gc(&self, valid: &BTreeSet<SandboxId>) -> Result<Done, Failure> {
        let read = self.read();
        let gone = read.list().iter().map(|binding| &binding.request.sandbox);
        let mut failures: Vec<Failure> = gone
            .filter(|sandbox| !valid.contains(sandbox))
            .filter_map(|sandbox| self.detach(sandbox, None).err())
            .collect();
        failures.pop().map_or(Ok(Done::Nothing), Err)
    }

    /// What the agent does at its start and in each of its rounds.
    fn agent(&self, kubelet: &Kubelet) -> Result<Done, Failure> {
        self.open()?.grow_slots(RAILS * SHARES)?;
        let cdi = self.cdi();
        self.collect(&mut CdiFiles::of_others(&cdi))?;
        let bindings = || Ok::<_, Orphan>(Store::open_read_only(&self.state())?.list().to_vec());
        remove_orphans(&cdi, bindings).map_err(|error| error.0)?;
        let (mut store, markers) = (self.open()?, self.markers());
        let marked = markers.pods()?;
        repair(&store, &markers)?;
        let mut pods: BTreeMap<PodUid, i64> = marked.into_iter().map(|uid| (uid, 0)).collect();
        pods.extend(
            store
                .pods()?
                .into_iter()
                .map(|one| (one.pod.uid, one.since)),
        );
        let settled = |since: i64| kubelet.now - since >= SETTLED;
        let waiting = store.waiting()?.into_iter();
        let stale = waiting
            .filter(|(slot, row)| settled(row.since) && !kubelet.slots.contains(slot))
            .collect::<Vec<_>>();
        forget_slots(&mut store, &markers, &stale)?;
        let holding = |binding: Binding| Some(binding.request.pod?.uid);
        let holding: BTreeSet<PodUid> = store.list()?.into_iter().filter_map(holding).collect();
        for (uid, since) in pods {
            if settled(since) && !kubelet.uids.contains(&uid) && !holding.contains(&uid) {
                forget_pod(&mut store, &markers, &uid, since)?;
            }
        }
        Ok(Done::Nothing)
    }
}

/// Why orphans were not removed.
struct Orphan(Failure);

impl From<CdiFileError> for Orphan {
    fn from(error: CdiFileError) -> Self {
        Self(cdi_failure(error))
    }
}

impl From<StoreError> for Orphan {
    fn from(error: StoreError) -> Self {
        Self(error.into())
    }
}

/// The real files, without the look at the device nodes, which are none of the simulated kernel's.
struct Shown<'a>(&'a Node);

impl Exposure for Shown<'_> {
    fn expose(
        &mut self,
        binding: &Binding,
        attachment: &Attachment,
        store: &Store,
    ) -> Result<Notes, HookError> {
        let options = Options {
            resource: self.0.settings.config.resource.clone(),
            umad: false,
            issm: false,
        };
        let pod = binding.request.pod.as_ref();
        let files = files(&options, &self.0.topology(), attachment, pod)?;
        write_own(&self.0.cdi(), &files, (&binding.request.sandbox, store))
    }

    fn missing(&self, binding: &Binding, store: &Store) -> Result<Vec<String>, HookError> {
        Exposure::missing(&CdiFiles::of_others(&self.0.cdi()), binding, store)
    }

    fn conceal(&mut self, binding: &Binding) -> Result<(), HookError> {
        CdiFiles::of_others(&self.0.cdi()).conceal(binding)
    }
}
