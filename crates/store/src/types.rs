//! What the store holds, as values.

use podrail_core::ids::{BadId, IfName, PciAddr, RailIndex, SandboxId, SlotId};
use podrail_core::ipam::{Cursors, History, PoolName};
use podrail_core::pods::PodRef;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Which boot of the kernel: `/proc/sys/kernel/random/boot_id`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(String);

impl BootId {
    /// Checks the text: a UUID as the kernel prints it; a line end after it is cut off.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let id = text.trim_end();
        if is_uuid(id) {
            return Ok(Self(id.to_owned()));
        }
        Err(BadId {
            kind: "boot id",
            given: text.chars().take(80).collect(),
            allowed: "a UUID in lower case, as in /proc/sys/kernel/random/boot_id",
        })
    }

    /// The checked text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for BootId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::parse(text)
    }
}

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match b {
            b'-' => dashes.contains(&at),
            b'0'..=b'9' | b'a'..=b'f' => !dashes.contains(&at),
            _ => false,
        })
}

/// A network namespace, whatever path it is reached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetnsId {
    /// Device of its file.
    pub dev: u64,
    /// Inode of its file.
    pub ino: u64,
}

/// Who asks for rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The arguments in canonical form: the same text means the same request.
    pub fingerprint: String,
    /// Path of the network namespace.
    pub netns: String,
    /// The namespace itself, where it could be looked at.
    pub netns_id: Option<NetnsId>,
    /// GPUs of the sandbox.
    pub gpus: Vec<PciAddr>,
    /// Its pod; none for a job without Kubernetes.
    pub pod: Option<PodRef>,
    /// Time of the request, in seconds since 1970.
    pub at: i64,
    /// Slots that waited **before** the kubelet was asked whose they are, each with the number of
    /// its allocation. Not kept: a binding's request has none.
    pub seen: BTreeMap<SlotId, i64>,
}

/// A slot that is allocated and not yet bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// When it was allocated, in seconds since 1970.
    pub since: i64,
    /// Number of its allocation among all that the file ever had: a newer one has a larger. 0 if
    /// no allocation made it wait, but a new boot that found it bound.
    pub number: i64,
}

/// One share of one rail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundRail {
    /// The rail.
    pub index: RailIndex,
    /// PCI function that carries the port.
    pub pci: PciAddr,
    /// Port of the RDMA device, from 1.
    pub port: u32,
    /// Network interface of the rail in the host's namespace.
    pub netdev: IfName,
    /// Which of the rail's shares, from 0.
    pub share: u16,
    /// The kubelet's slot that it was bound to; none without Kubernetes.
    pub slot: Option<SlotId>,
}

/// An address and the rail that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// The pool that it came from.
    pub pool: PoolName,
    /// The rail, one of the same sandbox.
    pub rail: RailIndex,
}

/// What a request gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Shares of rails, each rail once.
    pub rails: Vec<BoundRail>,
    /// Addresses, at most one of each family for a rail.
    pub leases: Vec<Lease>,
    /// Where the pools' first rounds stand afterwards; pools left out keep theirs.
    pub cursors: BTreeMap<PoolName, Cursors>,
    /// All that is needed to attach and to undo, as text (JSON); the store does not look into it.
    pub plan: String,
}

/// How far a binding has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Decided; the attachment may be missing, half there or complete.
    Pending,
    /// Attached.
    Ready,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a sandbox holds, and all that was said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The request as it came.
    pub request: Request,
    /// How far it has come.
    pub state: State,
    /// The boot in which it was decided.
    pub boot: BootId,
    /// Its number among all bindings that the file ever had: a newer one has a larger.
    pub sequence: i64,
    /// Its shares of rails, by rail index.
    pub rails: Vec<BoundRail>,
    /// Its addresses: by rail, IPv4 first.
    pub leases: Vec<Lease>,
    /// The plan as it was decided.
    pub plan: String,
}

/// What a sandbox holds, in as few words as a choice needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Its network namespace, where it could be looked at.
    pub netns_id: Option<NetnsId>,
    /// Its pod; none for a job without Kubernetes.
    pub pod: Option<PodRef>,
    /// How far it has come.
    pub state: State,
    /// As [`Binding::sequence`].
    pub sequence: i64,
    /// Its GPUs.
    pub gpus: Vec<PciAddr>,
    /// Its shares of rails.
    pub rails: Vec<BoundRail>,
    /// The plan as it was decided.
    pub plan: String,
}

/// Everything that a choice has to respect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Who holds what, by sandbox.
    pub holdings: Vec<Holding>,
    /// Every leased address, of all pools.
    pub used: BTreeSet<IpAddr>,
    /// Every address that was leased and is free, of all pools: the oldest release first. Of each
    /// pool and family the newest 4096 releases are remembered.
    pub freed: Vec<IpAddr>,
    /// Where each pool's first round stands.
    pub cursors: BTreeMap<PoolName, Cursors>,
}

impl Snapshot {
    pub(crate) fn new(
        bindings: &[Binding],
        freed: Vec<IpAddr>,
        cursors: BTreeMap<PoolName, Cursors>,
    ) -> Self {
        let leases = bindings.iter().flat_map(|binding| &binding.leases);
        Self {
            used: leases.map(|lease| lease.address).collect(),
            holdings: bindings.iter().map(Holding::of).collect(),
            freed,
            cursors,
        }
    }

    /// Where the first round of a pool stands.
    #[must_use]
    pub fn cursors(&self, pool: &PoolName) -> Cursors {
        self.cursors.get(pool).copied().unwrap_or_default()
    }

    /// What became of addresses so far, as a choice from this pool needs it.
    #[must_use]
    pub fn history(&self, pool: &PoolName) -> History<'_> {
        History {
            used: &self.used,
            freed: &self.freed,
            cursors: self.cursors(pool),
        }
    }
}

impl Holding {
    fn of(binding: &Binding) -> Self {
        Self {
            sandbox: binding.request.sandbox.clone(),
            netns_id: binding.request.netns_id,
            pod: binding.request.pod.clone(),
            state: binding.state,
            sequence: binding.sequence,
            gpus: binding.request.gpus.clone(),
            rails: binding.rails.clone(),
            plan: binding.plan.clone(),
        }
    }
}

/// A pod that had slots bound on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPod {
    /// The pod.
    pub pod: PodRef,
    /// When its first sandbox was bound, in seconds since 1970.
    pub since: i64,
}

/// What the node is set up as: the configuration, and what is needed to make sense of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The checked configuration document, as JSON text; the store does not look into it.
    pub document: String,
    /// Directory below which sysfs and /proc are read.
    pub root: String,
    /// Addresses of the node.
    pub node_addresses: Vec<IpAddr>,
}

/// GPUs and rails as they were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTopology {
    /// The boot in which they were seen.
    pub boot: BootId,
    /// As JSON text; the store does not look into it.
    pub text: String,
}

/// Outcome of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// Decided now, and pending.
    New(Binding),
    /// Decided by an earlier, equal request; its plan is the one to carry out.
    Existing(Binding),
}

impl Reserved {
    /// The binding, new or not.
    #[must_use]
    pub fn binding(&self) -> &Binding {
        match self {
            Self::New(binding) | Self::Existing(binding) => binding,
        }
    }
}

/// Outcome of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// This is no longer held.
    Freed(Box<Binding>),
    /// The sandbox held nothing.
    Nothing,
}
