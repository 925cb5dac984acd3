//! `podrail attach`: rails for given GPUs, into a network namespace.

use crate::cli::{AttachArgs, Format};
use crate::failure::{Failure, in_words};
use crate::node;
use crate::output::{note, print, print_json};
use crate::sandbox::{Lock, Shown, attachment, held, is_ready, netns_id, open_state};
use crate::settings::Settings;
use crate::view;
use podrail_attach::{Target, detach, differences, faults, read_sysctl};
use podrail_core::attachment::{Attachment, DecideError, Means, Wish, decide};
use podrail_core::gpus::{self, GpuRef};
use podrail_core::ids::SandboxId;
use podrail_core::ipam::Pool;
use podrail_host::Discovery;
use podrail_netlink::NetNs;
use podrail_store::{Binding, BoundRail, Decision, Lease, Request, Snapshot, State, Store};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The setting of a whole namespace that an attachment changes.
const RP_FILTER: &str = "net/ipv4/conf/all/rp_filter";

/// Everything that was checked before the first effect.
struct Job<'a> {
    settings: &'a Settings,
    pool: &'a Pool,
    node: Discovery,
    netns: NetNs,
    /// Positions among the node's GPUs.
    gpus: Vec<usize>,
    rails: u16,
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
        .collect::<Result<_, _>>()
        .map_err(Failure::GpuName)?;
    let settings = Settings::load(&args.node)?;
    let pool = settings.pool()?;
    let netns = open_netns(args)?;
    let node = node::discover(&args.node, &settings)?;
    node::require_ready(&node.node)?;
    let gpus = gpus::resolve(&node.topology, &wanted)?;
    let request = request(args, sandbox, &gpus, (&node, &netns))?;
    let job = Job {
        settings: &settings,
        pool,
        node,
        netns,
        gpus,
        rails: args.rails,
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

fn request(
    args: &AttachArgs,
    sandbox: SandboxId,
    gpus: &[usize],
    (node, netns): (&Discovery, &NetNs),
) -> Result<Request, Failure> {
    let gpus: Vec<_> = gpus
        .iter()
        .filter_map(|gpu| node.topology.gpus.get(*gpu))
        .map(|gpu| gpu.path.function)
        .collect();
    let path = kept_path(&args.netns)?;
    Ok(Request {
        sandbox,
        fingerprint: json!({ "netns": path, "gpus": gpus, "rails": args.rails }).to_string(),
        netns: path,
        netns_id: Some(netns_id(netns)),
        gpus,
        pod: None,
        at: now(),
    })
}

/// The path as detach will need it, from whatever directory: one that leads elsewhere by then
/// would look like a namespace that is gone, and its addresses would be given away.
fn kept_path(netns: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(netns).ok();
    let text = absolute.and_then(|path| path.to_str().map(str::to_owned));
    text.ok_or_else(|| Failure::NetnsPath {
        path: netns.to_owned(),
    })
}

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Reserve, then attach; a fault on the way takes all back.
fn carry_out(args: &AttachArgs, job: &Job<'_>) -> Result<Binding, Failure> {
    let sandbox = &job.request.sandbox;
    let lock = Lock::take(&args.state.state, sandbox)?;
    let mut store = open_state(&args.state.state)?;
    lock.with_namespace(netns_id(&job.netns))?;
    let reserved = store.reserve(&job.request, |snapshot| decision(job, snapshot))?;
    let mut binding = reserved.binding().clone();
    let attachment = attachment(&binding)?;
    if binding.request.netns_id != job.request.netns_id {
        let (path, sandbox) = (args.netns.clone(), sandbox.to_string());
        return Err(Failure::NetnsReplaced { path, sandbox });
    }
    if is_ready(&binding) && stands(&attachment, &job.netns)? {
        return Ok(binding);
    }
    if let Err(failure) = establish(&mut store, &attachment, job) {
        give_back(&mut store, &attachment, job, &failure);
        return Err(failure);
    }
    faults::reach("ready", 0).map_err(Failure::Injected)?;
    binding.state = State::Ready;
    Ok(binding)
}

/// Attach, mark ready.
fn establish(store: &mut Store, attachment: &Attachment, job: &Job<'_>) -> Result<(), Failure> {
    faults::reach("reserved", 0).map_err(Failure::Injected)?;
    podrail_attach::attach(&attachment.plan, &job.netns)?;
    faults::reach("attached", 0).map_err(Failure::Injected)?;
    Ok(store.mark_ready(&job.request.sandbox)?)
}

/// Whether what was attached earlier is still whole; says what is not.
fn stands(attachment: &Attachment, netns: &NetNs) -> Result<bool, Failure> {
    let differences = differences(&attachment.plan, netns)?;
    for difference in &differences {
        note(&format!("{difference}: attaching again"));
    }
    Ok(differences.is_empty())
}

/// Takes back what is in the kernel, then the reservation. What could not be undone stays reserved,
/// so that no other sandbox gets an address that is still up. A second failure is said here: the
/// first one is the command's.
fn give_back(store: &mut Store, attachment: &Attachment, job: &Job<'_>, failure: &Failure) {
    let undone = match failure {
        // It has undone what it did, or says what it could not.
        Failure::Attach(error) => !error.left_something(),
        _ => match detach(&Target::of(&attachment.plan), &job.netns) {
            Ok(_) => true,
            Err(error) => {
                note(&in_words(&error.into()));
                false
            }
        },
    };
    if !undone {
        note("the rails stay reserved: run 'podrail detach' for this id");
        return;
    }
    if let Err(error) = store.release(&job.request.sandbox) {
        note(&in_words(&error.into()));
    }
}

/// `net.ipv4.conf.all.rp_filter` before any rail came into the namespace: what it says now, unless
/// it is another sandbox there that has set it. To be asked while no sandbox can come or go.
fn previous_rp_filter(job: &Job<'_>, snapshot: &Snapshot) -> Option<String> {
    // The namespace has been entered before; should it fail now, so will the attachment.
    let now = read_sysctl(&job.netns, RP_FILTER).ok().flatten();
    let here = snapshot
        .holdings
        .iter()
        .filter(|holding| holding.netns_id == job.request.netns_id);
    let settings = here
        .filter_map(|holding| serde_json::from_str::<Attachment>(&holding.plan).ok())
        .flat_map(|attachment| attachment.plan.namespace_sysctls);
    settings
        .filter(|sysctl| sysctl.path == RP_FILTER && now.as_ref() == Some(&sysctl.value))
        .find_map(|sysctl| sysctl.previous)
        .or(now)
}

fn decision(job: &Job<'_>, snapshot: &Snapshot) -> Result<Decision, DecideError> {
    let topology = &job.node.topology;
    let means = Means {
        topology,
        settings: &job.settings.config.rails,
        pool: job.pool,
    };
    let held = held(snapshot, topology, job.pool.name());
    let wish = Wish {
        sandbox: job.request.sandbox.clone(),
        gpus: job.gpus.clone(),
        rails: job.rails,
        previous_rp_filter: previous_rp_filter(job, snapshot),
    };
    let decided = decide(&means, &held, &wish)?;
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
            slot: None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_path_of_a_namespace_is_kept_for_other_directories() {
        let here = std::env::current_dir().unwrap();
        let kept = kept_path(Path::new("netns/job1")).unwrap();
        assert_eq!(Path::new(&kept), here.join("netns/job1"));
        assert_eq!(
            kept_path(Path::new("/run/netns/a")).unwrap(),
            "/run/netns/a"
        );
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/run/\xff"));
        let error = kept_path(odd).unwrap_err();
        assert_eq!(error.exit(), crate::failure::Exit::Usage);
    }
}
