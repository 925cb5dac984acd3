//! From what is in the kernel to what the sandboxes hold. Pure.
//!
//! What is certain is bound as ready. What is doubtful is bound as pending: its rails and addresses
//! are not given out twice, and a detach takes all of it away. What cannot be bound at all is told
//! and left alone.

use super::{Evidence, Finding, SeenNetns};
use podrail_attach::Child;
use podrail_core::attachment::{Attachment, HeldRail, Part};
use podrail_core::cdi::Owner;
use podrail_core::ids::{IfName, PciAddr, RailIndex, SandboxId, SlotId};
use podrail_core::plan::{AttachPlan, RailAttachment};
use podrail_core::pods::PodRef;
use podrail_core::topology::Rail;
use podrail_store::NetnsId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

const LEFT: &str = "it is left alone and not in the state file: take the pod or job away, then run \
                    'podrail state rebuild --force'";
const PENDING: &str = "its rails and addresses stay reserved until it is detached";
const LATER: &str = "nothing has to be done: it costs order, not safety";

/// What a sandbox holds, as far as it can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Its pod, where a CDI file names one.
    pub pod: Option<PodRef>,
    /// Its namespace.
    pub netns: NetnsId,
    /// A path that leads there.
    pub path: PathBuf,
    /// GPUs, rails and plan.
    pub attachment: Attachment,
    /// Why it is not certain; empty if it is.
    pub doubts: Vec<String>,
}

impl Rebuilt {
    /// Whose it is.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        &self.attachment.plan.sandbox
    }
}

/// What the node holds, as far as it can be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// By sandbox.
    pub bindings: Vec<Rebuilt>,
    /// Slots that were given out and belong to none of them.
    pub waiting: BTreeSet<SlotId>,
    /// What could not be known, or was left alone.
    pub findings: Vec<Finding>,
}

/// Rebuilds what is held. The same evidence gives the same, in whatever order it comes.
#[must_use]
pub fn reconstruct(evidence: &Evidence<'_>) -> Recovered {
    let mut work = Work {
        evidence,
        addresses: BTreeSet::new(),
        found: Recovered::default(),
    };
    for (sandbox, places) in work.by_sandbox() {
        work.sandbox(&sandbox, places);
    }
    work.slots();
    work.found.findings.sort();
    work.found
}

/// Children of one sandbox in one namespace.
type Place<'a> = (&'a SeenNetns, Vec<&'a Child>);

struct Work<'a> {
    evidence: &'a Evidence<'a>,
    /// Addresses that have a holder.
    addresses: BTreeSet<IpAddr>,
    found: Recovered,
}

impl<'a> Work<'a> {
    fn tell(&mut self, about: impl ToString, finding: impl Into<String>, hint: &str) {
        self.found.findings.push(Finding::new(about, finding, hint));
    }

    /// Children by owner; those without one are told.
    fn by_sandbox(&mut self) -> BTreeMap<SandboxId, Vec<Place<'a>>> {
        let mut owners = BTreeMap::<SandboxId, Vec<Place<'a>>>::new();
        let evidence: &'a Evidence<'a> = self.evidence;
        for netns in evidence.namespaces {
            for child in &netns.children {
                let Some(alias) = &child.alias else {
                    let what = format!("{} has no alias: an attach was killed", child.name);
                    self.tell(netns.path.display(), what, LEFT);
                    continue;
                };
                let places = owners.entry(alias.sandbox.clone()).or_default();
                match places.iter_mut().find(|(place, _)| place.id == netns.id) {
                    Some((_, children)) => children.push(child),
                    None => places.push((netns, vec![child])),
                }
            }
        }
        owners
    }

    fn sandbox(&mut self, sandbox: &SandboxId, mut places: Vec<Place<'a>>) {
        // Of several namespaces only one can be its own: that with most of its rails.
        places.sort_by_key(|(netns, children)| {
            (
                std::cmp::Reverse(children.len()),
                (netns.id.dev, netns.id.ino),
            )
        });
        let mut places = places.into_iter();
        let Some((netns, children)) = places.next() else {
            return;
        };
        let mut doubts = vec![];
        for (other, children) in places {
            let names: Vec<&str> = children.iter().map(|child| child.name.as_str()).collect();
            let path = other.path.display();
            let what = format!("it has rails in {path} too: {}", names.join(", "));
            doubts.push(what.clone());
            self.tell(sandbox, what, LEFT);
        }
        let mut rails = self.rails(sandbox, &children, &mut doubts);
        if rails.is_empty() {
            return;
        }
        let pod = self.slots_of(sandbox, &mut rails, &mut doubts);
        let gpus = self.gpus(sandbox, pod.as_ref(), &mut rails);
        self.bind(sandbox, (netns, pod, gpus), (rails, doubts));
    }

    fn bind(
        &mut self,
        sandbox: &SandboxId,
        (netns, pod, gpus): (&SeenNetns, Option<PodRef>, Vec<PciAddr>),
        (rails, doubts): (Vec<(HeldRail, RailAttachment)>, Vec<String>),
    ) {
        let (rails, attachments): (Vec<HeldRail>, Vec<RailAttachment>) = rails.into_iter().unzip();
        // Names of links in one namespace differ, so this cannot fail; and if it did, it is told.
        let plan = match AttachPlan::new(sandbox.clone(), attachments, None) {
            Ok(plan) => plan,
            Err(error) => return self.tell(sandbox, error.to_string(), LEFT),
        };
        for doubt in &doubts {
            self.tell(sandbox, doubt.clone(), PENDING);
        }
        self.found.bindings.push(Rebuilt {
            pod,
            netns: netns.id,
            path: netns.path.clone(),
            doubts,
            attachment: Attachment {
                gpus,
                rails,
                // Nobody can tell by now what else there was to choose from.
                exact: false,
                plan,
            },
        });
    }

    /// The rails of a sandbox in rail order, without slots and GPUs.
    fn rails(
        &mut self,
        sandbox: &SandboxId,
        children: &[&Child],
        doubts: &mut Vec<String>,
    ) -> Vec<(HeldRail, RailAttachment)> {
        let mut rails = BTreeMap::<RailIndex, (HeldRail, RailAttachment)>::new();
        for child in children {
            let place = self
                .place(child)
                .filter(|(index, ..)| !rails.contains_key(index));
            let Some((index, rail, netdev, name)) = place else {
                let addresses: Vec<_> = child.addresses.iter().map(ToString::to_string).collect();
                let what = format!(
                    "{} ({}) is on no rail of this node, or on one that it has twice",
                    child.name,
                    addresses.join(", ")
                );
                doubts.push(what.clone());
                self.tell(sandbox, what, LEFT);
                continue;
            };
            if rail.index != index {
                let what = format!("rail {index} is rail {} by now", rail.index);
                self.tell(sandbox, what, LATER);
            }
            let held = HeldRail {
                index,
                pci: rail.path.function,
                port: rail.port,
                netdev: netdev.clone(),
                rdma: rail.rdma.clone(),
                uverbs: rail.uverbs.clone(),
                interface: name.clone(),
                addresses: self.leases(child, doubts),
                gpu: None,
                distance: None,
                slot: None,
                containers: vec![],
            };
            let attachment = RailAttachment {
                rail: index,
                parent: netdev,
                child: name,
                mtu: child.mtu,
                addresses: held.addresses.clone(),
                gateways: child.gateways.clone(),
            };
            rails.insert(index, (held, attachment));
        }
        rails.into_values().collect()
    }

    /// The rail that a child hangs on. An index alone may be another interface's by now; a child
    /// has the Ethernet address of its parent.
    fn place(&self, child: &Child) -> Option<(RailIndex, &'a Rail, IfName, IfName)> {
        let evidence: &'a Evidence<'a> = self.evidence;
        let same = |rail: &&Rail| rail.ifindex == child.parent && rail.mac == child.mac;
        let rail = evidence.topology.rails.iter().find(same);
        let rail = rail.filter(|_| child.parent.is_some() && child.mac.is_some())?;
        let index = child.alias.as_ref()?.rail;
        let name = IfName::parse(&child.name).ok()?;
        Some((index, rail, rail.netdev.clone()?, name))
    }

    /// The addresses of a child that have no holder yet, one of each family.
    fn leases(&mut self, child: &Child, doubts: &mut Vec<String>) -> Vec<ipnet::IpNet> {
        let mut leases: Vec<ipnet::IpNet> = vec![];
        for net in &child.addresses {
            let second = leases
                .iter()
                .any(|lease| lease.addr().is_ipv4() == net.addr().is_ipv4());
            if second {
                doubts.push(format!("{} has a second address {net}", child.name));
            } else if !self.addresses.insert(net.addr()) {
                doubts.push(format!(
                    "{} has {net}, which another one has too",
                    child.name
                ));
            } else {
                leases.push(*net);
            }
        }
        if leases.is_empty() {
            doubts.push(format!("{} has no address", child.name));
        }
        leases
    }

    /// Gives the rails the slots that CDI files name, lowest first; the pod of those files.
    fn slots_of(
        &self,
        sandbox: &SandboxId,
        rails: &mut [(HeldRail, RailAttachment)],
        doubts: &mut Vec<String>,
    ) -> Option<PodRef> {
        let files = self.evidence.files.iter();
        let mut files: Vec<&Owner> = files.filter(|file| file.sandbox == *sandbox).collect();
        files.sort_by_key(|file| file.slot);
        for file in &files {
            let free = rails.iter_mut().map(|(held, _)| held);
            let mut free = free.filter(|held| held.slot.is_none());
            let device = |held: &HeldRail| held.uverbs.is_some() && held.uverbs == file.uverbs;
            match free.find(|held| device(held)) {
                Some(held) => held.slot = Some(file.slot),
                None => doubts.push(format!("{} is of none of its rails", file.slot)),
            }
        }
        files.iter().find_map(|file| file.pod.clone())
    }

    /// GPUs and containers, as the kubelet has them: each rail serves the nearest GPU of its
    /// container, those that serve few first.
    fn gpus(
        &mut self,
        sandbox: &SandboxId,
        pod: Option<&PodRef>,
        rails: &mut [(HeldRail, RailAttachment)],
    ) -> Vec<PciAddr> {
        let parts = pod.and_then(|pod| self.evidence.kubelet.parts.get(&pod.uid));
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
            let what = "which GPUs it has cannot be known";
            self.tell(sandbox, what, LATER);
            return vec![];
        };
        let mut served = BTreeMap::<usize, usize>::new();
        for (held, _) in rails.iter_mut() {
            let has = |part: &&Part| held.slot.is_some_and(|slot| has_slot(part, slot));
            if let Some(part) = parts.iter().find(has) {
                held.containers = part.containers_of(held.slot);
                self.serve(part, held, &mut served);
            }
        }
        let gpus: BTreeSet<usize> = parts.iter().flat_map(|part| part.gpus.clone()).collect();
        gpus.into_iter().filter_map(|gpu| self.gpu(gpu)).collect()
    }

    fn serve(&self, part: &Part, held: &mut HeldRail, served: &mut BTreeMap<usize, usize>) {
        let topology = self.evidence.topology;
        let same = |rail: &&Rail| rail.path.function == held.pci && rail.port == held.port;
        let Some(rail) = topology.rails.iter().find(same) else {
            return;
        };
        let level = |gpu: usize| {
            let gpu = topology.gpus.get(gpu)?;
            Some(topology.distance(&gpu.path, &rail.path).level)
        };
        let levels = part
            .gpus
            .iter()
            .filter_map(|gpu| Some((level(*gpu)?, *gpu)));
        let load = |gpu: usize| served.get(&gpu).copied().unwrap_or(0);
        let nearest = levels.min_by_key(|(level, gpu)| (*level, load(*gpu), *gpu));
        if let Some((level, gpu)) = nearest {
            *served.entry(gpu).or_default() += 1;
            held.gpu = self.gpu(gpu);
            held.distance = Some(level);
        }
    }

    fn gpu(&self, position: usize) -> Option<PciAddr> {
        let gpu = self.evidence.topology.gpus.get(position);
        gpu.map(|gpu| gpu.path.function)
    }

    /// What was given out and is bound to nobody waits; files of nobody are told.
    fn slots(&mut self) {
        let bindings = self.found.bindings.iter();
        let rails = bindings.flat_map(|binding| &binding.attachment.rails);
        let bound: BTreeSet<SlotId> = rails.filter_map(|rail| rail.slot).collect();
        let given = self.evidence.marked.union(&self.evidence.kubelet.allocated);
        self.found.waiting = given
            .filter(|slot| !bound.contains(slot))
            .copied()
            .collect();
        let known: BTreeSet<SandboxId> = self
            .found
            .bindings
            .iter()
            .map(|binding| binding.sandbox().clone())
            .collect();
        for file in self.evidence.files {
            if !known.contains(&file.sandbox) {
                let what = format!(
                    "its CDI file names sandbox {}, which has no rails",
                    file.sandbox
                );
                self.tell(
                    file.slot,
                    what,
                    "the agent takes it away when the slot is given out anew",
                );
            }
        }
    }
}

fn has_slot(part: &Part, slot: SlotId) -> bool {
    part.slots.contains(&slot) || part.lent.contains_key(&slot)
}
