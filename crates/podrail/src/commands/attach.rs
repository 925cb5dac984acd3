//! `podrail attach`: rails for given GPUs, into a network namespace.

use crate::cli::{AttachArgs, Format};
use crate::failure::Failure;
use crate::node;
use crate::output::{note, print, print_json};
use crate::sandbox::{Lock, Shown, attachment, held, is_ready, open_state};
use crate::settings::Settings;
use crate::view;
use podrail_attach::{differences, faults, read_sysctl};
use podrail_core::attachment::{Attachment, DecideError, Means, Wish, decide};
use podrail_core::gpus::{self, GpuRef};
use podrail_core::ids::SandboxId;
use podrail_core::ipam::Pool;
use podrail_host::Discovery;
use podrail_netlink::NetNs;
use podrail_store::{
    Binding, BoundRail, Decision, Lease, NetnsId, Request, Reserved, Snapshot, Store,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything that was checked before the first effect.
struct Job<'a> {
    settings: &'a Settings,
    pool: &'a Pool,
    node: Discovery,
    netns: NetNs,
    wish: Wish,
    request: Request,
}

/// Runs the command.
///
/// # Guarantees
/// All rails or none. Twice with the same arguments: the same rails. Killed anywhere: the next
/// attach or detach of the same id finishes what was begun.
pub(super) fn run(args: &AttachArgs) -> Result<(), Failure> {
    let sandbox = SandboxId::parse(&args.id)?;
    let wanted: Vec<GpuRef> = args
        .gpus
        .iter()
        .map(|g| GpuRef::parse(g))
        .collect::<Result<_, _>>()?;
    let settings = Settings::load(&args.node)?;
    let pool = settings.pool()?;
    let netns = open_netns(args)?;
    let node = node::discover(&args.node, &settings)?;
    node::require_ready(&node.node)?;
    let positions = gpus::resolve(&node.topology, &wanted)?;
    let previous_rp_filter = read_sysctl(&netns, "net/ipv4/conf/all/rp_filter")?;
    let wish = Wish {
        sandbox,
        gpus: positions,
        rails: args.rails,
        previous_rp_filter,
    };
    let request = request(args, &wish, &node, &netns);
    let job = Job {
        settings: &settings,
        pool,
        node,
        netns,
        wish,
        request,
    };
    let shown = Shown::of(&carry_out(args, &job)?)?;
    match args.output.output {
        Format::Json => print_json(&shown),
        Format::Text => print(&text(&shown)),
    }
}

fn open_netns(args: &AttachArgs) -> Result<NetNs, Failure> {
    let netns = NetNs::open(&args.netns)?;
    if netns.id() == NetNs::current()?.id() {
        return Err(Failure::HostNamespace {
            path: args.netns.clone(),
        });
    }
    Ok(netns)
}

fn request(args: &AttachArgs, wish: &Wish, node: &Discovery, netns: &NetNs) -> Request {
    let gpus: Vec<_> = wish
        .gpus
        .iter()
        .filter_map(|gpu| node.topology.gpus.get(*gpu))
        .map(|gpu| gpu.path.function)
        .collect();
    let path = args.netns.to_string_lossy().into_owned();
    let id = netns.id();
    Request {
        sandbox: wish.sandbox.clone(),
        fingerprint: json!({ "netns": path, "gpus": gpus, "rails": wish.rails }).to_string(),
        netns: path,
        netns_id: Some(NetnsId {
            dev: id.device,
            ino: id.inode,
        }),
        gpus,
        at: now(),
    }
}

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Reserve, attach, mark ready; a fault on the way frees what was reserved.
fn carry_out(args: &AttachArgs, job: &Job<'_>) -> Result<Binding, Failure> {
    let sandbox = &job.wish.sandbox;
    let _lock = Lock::take(&args.state.state, sandbox)?;
    let mut store = open_state(&args.state.state)?;
    let reserved = store.reserve(&job.request, |snapshot| decision(job, snapshot))?;
    let binding = reserved.binding();
    let attachment = attachment(binding)?;
    if binding.request.netns_id != job.request.netns_id {
        let (path, sandbox) = (args.netns.clone(), sandbox.to_string());
        return Err(Failure::NetnsReplaced { path, sandbox });
    }
    faults::reach("reserved", 0).map_err(Failure::Injected)?;
    if is_ready(binding) && stands(&attachment, &job.netns)? {
        return Ok(binding.clone());
    }
    if let Err(error) = podrail_attach::attach(&attachment.plan, &job.netns) {
        give_back(&mut store, &reserved, &error)?;
        return Err(error.into());
    }
    faults::reach("attached", 0).map_err(Failure::Injected)?;
    store.mark_ready(sandbox)?;
    faults::reach("ready", 0).map_err(Failure::Injected)?;
    Ok(reserved.binding().clone()).map(ready)
}

fn ready(mut binding: Binding) -> Binding {
    binding.state = podrail_store::State::Ready;
    binding
}

/// Whether what was attached earlier is still whole; says what is not.
fn stands(attachment: &Attachment, netns: &NetNs) -> Result<bool, Failure> {
    let differences = differences(&attachment.plan, netns)?;
    for difference in &differences {
        note(&format!("{difference}: attaching again"));
    }
    Ok(differences.is_empty())
}

/// Frees the reservation if nothing of it can be in the kernel any more. What could not be undone
/// stays reserved, so that no other sandbox gets an address that is still up.
fn give_back(
    store: &mut Store,
    reserved: &Reserved,
    error: &podrail_attach::AttachError,
) -> Result<(), Failure> {
    if error.left_something() {
        note("the rails stay reserved: run 'podrail detach' for this id");
        return Ok(());
    }
    store.release(&reserved.binding().request.sandbox)?;
    Ok(())
}

fn decision(job: &Job<'_>, snapshot: &Snapshot) -> Result<Decision, DecideError> {
    let topology = &job.node.topology;
    let means = Means {
        topology,
        settings: &job.settings.config.rails,
        pool: job.pool,
    };
    let held = held(snapshot, topology, job.pool.name());
    let decided = decide(&means, &held, &job.wish)?;
    let attachment = &decided.attachment;
    let leases = attachment.rails.iter().flat_map(|rail| {
        rail.addresses.iter().map(|net| Lease {
            address: net.addr(),
            pool: job.pool.name().clone(),
            rail: rail.index,
        })
    });
    Ok(Decision {
        rails: bound_rails(attachment, snapshot),
        leases: leases.collect(),
        cursors: BTreeMap::from([(job.pool.name().clone(), decided.cursors)]),
        // Plain values with text keys: this always serialises.
        plan: serde_json::to_string(attachment).unwrap_or_default(),
    })
}

/// The lowest free share of each chosen rail.
fn bound_rails(attachment: &Attachment, snapshot: &Snapshot) -> Vec<BoundRail> {
    let taken = |pci, port, share| {
        snapshot
            .holdings
            .iter()
            .flat_map(|holding| &holding.rails)
            .any(|held| held.pci == pci && held.port == port && held.share == share)
    };
    let share = |pci, port| {
        (0..u16::MAX)
            .find(|share| !taken(pci, port, *share))
            .unwrap_or(0)
    };
    attachment
        .rails
        .iter()
        .map(|rail| BoundRail {
            index: rail.index,
            pci: rail.pci,
            port: rail.port,
            netdev: rail.netdev.clone(),
            share: share(rail.pci, rail.port),
        })
        .collect()
}

fn text(shown: &Shown) -> String {
    let rows: Vec<Vec<String>> = shown
        .attachment
        .rails
        .iter()
        .map(|rail| {
            let addresses: Vec<String> = rail.addresses.iter().map(ToString::to_string).collect();
            vec![
                rail.index.to_string(),
                rail.interface.to_string(),
                addresses.join(","),
                rail.netdev.to_string(),
                rail.rdma
                    .as_ref()
                    .map_or_else(|| "none".into(), ToString::to_string),
                rail.gpu.map_or_else(|| "-".into(), |gpu| gpu.to_string()),
                rail.distance
                    .map_or_else(|| "-".into(), |level| level.to_string()),
            ]
        })
        .collect();
    let headers = [
        "RAIL",
        "INTERFACE",
        "ADDRESS",
        "NETDEV",
        "RDMA",
        "GPU",
        "DISTANCE",
    ];
    format!(
        "{}: {}\n{}",
        shown.sandbox,
        shown.summary(),
        view::table(&headers, &rows)
    )
}
