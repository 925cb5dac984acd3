//! `podrail attach`: rails for given GPUs, into a network namespace.

use crate::cli::{AttachArgs, Format};
use crate::commands::tell;
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::settings::Settings;
use crate::view;
use podrail_core::attachment::{DecideError, Means, Wish, decide};
use podrail_core::gpus::{self, GpuRef};
use podrail_core::ids::SandboxId;
use podrail_core::ipam::Pool;
use podrail_host::Discovery;
use podrail_netlink::NetNs;
use podrail_node::{
    Deadline, Nothing, Session, Shown, discover, fingerprint, foreign_netns, held, kept, netns_id,
    now, previous_rp_filter, require_ready, seen_topology,
};
use podrail_store::{Binding, Decision, Request, Snapshot, Store};
use std::collections::BTreeMap;
use std::path::Path;

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

/// Runs the command; see [`Session::attach`].
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
    let netns = foreign_netns(&args.netns)?;
    // What is wrong with the state file is said when the session opens it.
    let state = Store::open_read_only(&args.state.state).ok();
    let seen = state.and_then(|state| seen_topology(&state, &args.node.root));
    let node = discover(&args.node.root, &settings.node, seen.as_ref())?;
    require_ready(&node.node)?;
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
    let resource = &job.settings.node.config.resource;
    let shown = Shown::of(&carry_out(args, &job)?, resource)?;
    match args.output.output {
        Format::Json => print_json(&shown),
        Format::Text => print(&text(&shown)),
    }
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
        fingerprint: fingerprint::of_job(&path, &gpus, usize::from(args.rails)),
        netns: path,
        netns_id: Some(netns_id(netns)),
        gpus,
        pod: None,
        at: now(),
        seen: BTreeMap::new(),
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

fn carry_out(args: &AttachArgs, job: &Job<'_>) -> Result<Binding, Failure> {
    let sandbox = &job.request.sandbox;
    let mut session = Session::open(&args.state.state, sandbox, Deadline::default())?;
    let decide = |snapshot: &Snapshot| decision(job, snapshot);
    let bound = session.attach(&job.request, &job.netns, decide, &mut Nothing);
    tell(&mut session);
    Ok(bound?)
}

fn decision(job: &Job<'_>, snapshot: &Snapshot) -> Result<Decision, DecideError> {
    let topology = &job.node.topology;
    let means = Means {
        topology,
        settings: &job.settings.node.config.rails,
        pool: job.pool,
    };
    let pool = job.pool.name();
    let wish = Wish {
        sandbox: job.request.sandbox.clone(),
        gpus: job.gpus.clone(),
        rails: job.rails,
        previous_rp_filter: previous_rp_filter(&job.netns, snapshot),
    };
    let decided = decide(&means, &held(snapshot, topology, pool), &wish)?;
    Ok(kept(&decided, snapshot, pool))
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
