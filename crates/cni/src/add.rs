//! ADD: the pod's GPUs are known now, so its slots become rails.

use crate::failure::{from_node, with_holders};
use crate::kubelet::{self, Waits};
use crate::protocol::{Call, CniError, Code, NetConf, Settings as Places};
use crate::wish::{self, PodWants};
use crate::{Answer, Test, may_have_rails};
use podrail_core::attachment::{Means, PodWish, decide_pod};
use podrail_core::ids::{SandboxId, SlotId};
use podrail_core::ipam::Pool;
use podrail_core::networks::Wanted;
use podrail_core::pods::{Other, PodRef};
use podrail_core::topology::Topology;
use podrail_netlink::NetNs;
use podrail_node::{
    CdiFiles, Deadline, NodeError, Session, Settings, Sight, collect_garbage, fingerprint,
    foreign_netns, held, kept, netns_id, now, previous_rp_filter, topology_now,
};
use podrail_store::{Binding, BootId, ReadOnly, Request, Setup, Snapshot, Store};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Serves ADD.
///
/// # Guarantees
/// All rails of the pod or none. Twice for one sandbox: the same rails. Killed anywhere: the next
/// ADD, DEL or GC finishes what was begun.
///
/// # Errors
/// Nothing is held then.
pub(crate) fn add(call: &Call, conf: &NetConf) -> Result<Answer, CniError> {
    let mut answer = Answer {
        result: result(conf),
        notes: vec![],
    };
    if !may_have_rails(call, conf, Test::WantsSome) {
        return Ok(answer);
    }
    // Without Kubernetes nobody has slots.
    match call.args.pod() {
        Ok(Some(pod)) => answer.notes = serve(call, conf, &pod)?,
        Ok(None) => {}
        Err(error) => answer.notes = without_uid(call, conf, error)?,
    }
    Ok(answer)
}

/// Some runtimes (cri-dockerd) give no UID, by which slots are told: their pods pass, unless the
/// kubelet says that the pod of this name has slots.
fn without_uid(call: &Call, conf: &NetConf, error: CniError) -> Result<Vec<String>, CniError> {
    let places = conf.lenient_settings();
    let Some((namespace, name)) = call.args.name() else {
        return Err(error);
    };
    match kubelet::has_slots_by_name(&places, (namespace, name), Deadline::default())? {
        true => Err(error),
        false => Ok(vec![]),
    }
}

/// The previous plugin's result as it came: addresses added to it would become the pod's.
fn result(conf: &NetConf) -> String {
    let empty = || json!({ "cniVersion": conf.version() }).to_string();
    conf.previous().map_or_else(empty, str::to_owned)
}

fn serve(call: &Call, conf: &NetConf, pod: &PodRef) -> Result<Vec<String>, CniError> {
    let state = conf.state();
    let read = match Store::open_read_only(&state) {
        Ok(read) => read,
        // Nothing that is wrong with rails may stop a pod that has none.
        Err(_) if kubelet::has_none(&conf.lenient_settings(), &pod.uid) => return Ok(vec![]),
        Err(error) => return Err(from_node(&error.into())),
    };
    // Slots are given out by the agent, which keeps its configuration before.
    let Some(setup) = read.setup() else {
        return without_setup(conf, &state, pod);
    };
    let checked = settings(setup).and_then(|settings| Ok((settings, conf.settings()?)));
    let (settings, places) = match checked {
        Ok(checked) => checked,
        Err(_) if kubelet::has_none(&conf.lenient_settings(), &pod.uid) => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let boot = podrail_node::boot_id().map_err(|error| from_node(&error))?;
    let until = Deadline::default();
    let waits = Waits {
        slots: waiting(&read, &boot),
        bound: read
            .pods()
            .iter()
            .map(|known| known.pod.uid.clone())
            .collect(),
    };
    let resource = &settings.config.resource;
    let Some(told) = kubelet::ask(&places, &pod.uid, resource, &waits, until)? else {
        return Ok(vec![]);
    };
    let topology = topology(&read, &boot, setup, &settings).map_err(|error| from_node(&error))?;
    let (counted, root) = ((resource, read.slots()), Path::new(&setup.root));
    let wants = wish::of(&told, pod, counted, &waits.slots, (root, &topology))?;
    if wants.parts.is_empty() {
        return Ok(vec![]);
    }
    let networks = wish::networks(conf.networks()?.as_deref(), pod, &settings, &topology)?;
    let job = Job::new(call, (pod, &read), places, (settings, topology), networks)?;
    job.carry_out(wants, until)
}

fn settings(setup: &Setup) -> Result<Settings, CniError> {
    Settings::of_setup(setup).map_err(|error| {
        CniError::new(
            Code::State,
            "the configuration in the state file is not valid",
        )
        .details(format!(
            "because: {error}\nhint: restart the agent: it writes its configuration again"
        ))
    })
}

/// Markers say that slots were given out, and the state file does not tell as what: it is gone or
/// new. Only a pod that has slots by the kubelet's own file is stopped.
fn without_setup(conf: &NetConf, state: &Path, pod: &PodRef) -> Result<Vec<String>, CniError> {
    let places = conf.lenient_settings();
    if !kubelet::seems_to_have_slots(&places, &pod.uid) {
        return Ok(vec![]);
    }
    let message = format!("{} holds no configuration of the agent", state.display());
    Err(CniError::new(Code::State, message).details(
        "because: the state file is gone or new, and this pod has slots\n\
         hint: start the agent: it writes its configuration",
    ))
}

/// Slots that wait: those that were bound before a power cut, and not since, do so again.
fn waiting(read: &ReadOnly, boot: &BootId) -> BTreeSet<SlotId> {
    let (now, earlier): (Vec<&Binding>, Vec<_>) = read
        .list()
        .iter()
        .partition(|binding| binding.boot == *boot);
    let (now, earlier) = (slots_of(&now), slots_of(&earlier));
    let again = earlier.difference(&now);
    read.waiting().keys().chain(again).copied().collect()
}

fn slots_of(bindings: &[&Binding]) -> BTreeSet<SlotId> {
    let rails = bindings.iter().flat_map(|binding| &binding.rails);
    rails.filter_map(|rail| rail.slot).collect()
}

/// What waited before the kubelet was asked: what was allocated since may be of another pod.
fn seen(read: &ReadOnly) -> BTreeMap<SlotId, i64> {
    let waiting = read.waiting().iter();
    waiting.map(|(slot, row)| (*slot, row.number)).collect()
}

fn sandbox_of(binding: &Binding) -> SandboxId {
    binding.request.sandbox.clone()
}

fn topology(
    read: &ReadOnly,
    boot: &BootId,
    setup: &Setup,
    settings: &Settings,
) -> Result<Topology, NodeError> {
    let seen = read.topology().filter(|seen| seen.boot == *boot);
    let root = Path::new(&setup.root);
    topology_now(seen.map(|seen| seen.text.as_str()), root, settings)
}

/// Everything that is known before the first effect.
struct Job {
    places: Places,
    settings: Settings,
    pool: Pool,
    topology: Topology,
    netns: NetNs,
    networks: Wanted,
    request: Request,
    /// Sandboxes that were bound before the kubelet was asked.
    bound: BTreeSet<SandboxId>,
}

impl Job {
    fn new(
        call: &Call,
        (pod, read): (&PodRef, &ReadOnly),
        places: Places,
        (settings, topology): (Settings, Topology),
        networks: Wanted,
    ) -> Result<Self, CniError> {
        let path = call.required_netns()?;
        let netns = foreign_netns(path).map_err(|error| from_node(&error))?;
        let pool = settings.pool.clone().ok_or_else(|| {
            CniError::new(Code::Addresses, "the configuration names no address pool")
                .details("hint: add 'pool' to the agent's configuration")
        })?;
        let text = path
            .to_str()
            .ok_or_else(|| CniError::new(Code::Environment, "CNI_NETNS is no UTF-8 text"))?;
        let request = Request {
            sandbox: call.sandbox()?,
            fingerprint: fingerprint::of_pod(&pod.uid, text),
            netns: text.to_owned(),
            netns_id: Some(netns_id(&netns)),
            pod: Some(pod.clone()),
            gpus: vec![],
            at: now(),
            seen: seen(read),
        };
        Ok(Self {
            places,
            settings,
            pool,
            topology,
            netns,
            networks,
            request,
            bound: read.list().iter().map(sandbox_of).collect(),
        })
    }

    /// Attaches; if rails or addresses are short, what dead sandboxes hold is collected first.
    fn carry_out(mut self, wants: PodWants, until: Deadline) -> Result<Vec<String>, CniError> {
        self.request.gpus = self.gpus(&wants);
        let mut notes = wants.notes.clone();
        let first = self.attach(&wants, until, &mut notes);
        let Err(error) = first else {
            return Ok(notes);
        };
        let failed = if error.is_short() {
            let found = self.collect(until, &mut notes);
            match found {
                0 => Err(error),
                _ => self.attach(&wants, until, &mut notes),
            }
        } else {
            Err(error)
        };
        failed.map(|()| notes).map_err(|error| self.explain(&error))
    }

    fn gpus(&self, wants: &PodWants) -> Vec<podrail_core::ids::PciAddr> {
        let positions: BTreeSet<usize> = wants
            .parts
            .iter()
            .flat_map(|part| part.gpus.iter().copied())
            .collect();
        let gpus = positions
            .into_iter()
            .filter_map(|at| self.topology.gpus.get(at));
        gpus.map(|gpu| gpu.path.function).collect()
    }

    fn attach(
        &self,
        wants: &PodWants,
        until: Deadline,
        notes: &mut Vec<String>,
    ) -> Result<(), NodeError> {
        let mut session = Session::open(&self.places.state, self.sandbox(), until)?;
        let decide = |snapshot: &Snapshot| self.decide(wants, snapshot);
        let attached = session.attach(&self.request, &self.netns, decide, &mut self.files());
        notes.extend(session.take_notes());
        attached.map(drop)
    }

    fn decide(
        &self,
        wants: &PodWants,
        snapshot: &Snapshot,
    ) -> Result<podrail_store::Decision, podrail_core::attachment::DecideError> {
        let means = Means {
            topology: &self.topology,
            settings: &self.settings.config.rails,
            pool: &self.pool,
        };
        let wish = PodWish {
            sandbox: self.sandbox().clone(),
            parts: wants.parts.clone(),
            networks: self.networks.clone(),
            previous_rp_filter: previous_rp_filter(&self.netns, snapshot),
        };
        let held = held(snapshot, &self.topology, self.pool.name());
        let others = Other::without(&wants.others, &self.bound_since(snapshot));
        let decided = decide_pod(&means, &held, &wish, &others)?;
        Ok(kept(&decided, snapshot, self.pool.name()))
    }

    /// Slots of pods that were bound while this one waited for the lock or the kubelet.
    fn bound_since(&self, snapshot: &Snapshot) -> BTreeSet<SlotId> {
        let new = snapshot.holdings.iter();
        let new = new.filter(|holding| !self.bound.contains(&holding.sandbox));
        let rails = new.flat_map(|holding| &holding.rails);
        rails.filter_map(|rail| rail.slot).collect()
    }

    fn collect(&self, until: Deadline, notes: &mut Vec<String>) -> usize {
        let sight = Sight::find_out();
        let collected = collect_garbage(&self.places.state, &sight, &mut self.files(), until);
        let Ok(garbage) = collected else {
            // The shortage is the error that counts.
            return 0;
        };
        let gone = garbage.released.iter().map(|binding| {
            let sandbox = &binding.request.sandbox;
            format!(
                "sandbox {sandbox} is gone: freed {} rails",
                binding.rails.len()
            )
        });
        notes.extend(gone);
        notes.extend(garbage.notes);
        garbage.released.len()
    }

    fn explain(&self, error: &NodeError) -> CniError {
        let failed = from_node(error);
        match Store::open_read_only(&self.places.state) {
            Ok(state) => with_holders(failed, error, &state),
            Err(_) => failed,
        }
    }

    fn files(&self) -> CdiFiles<'_> {
        CdiFiles::new(&self.places.cdi, &self.settings, &self.topology)
    }

    fn sandbox(&self) -> &SandboxId {
        &self.request.sandbox
    }
}
