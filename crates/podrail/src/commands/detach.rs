//! `podrail detach`: links first, then addresses and rails.

use crate::cli::{DetachArgs, Format};
use crate::failure::Failure;
use crate::output::{note, print, print_json};
use crate::sandbox::{Lock, attachment, netns_id, open_state};
use podrail_attach::{Target, detach, faults};
use podrail_core::ids::SandboxId;
use podrail_core::plan::Alias;
use podrail_netlink::{Link, NetNs, NetNsError, Rtnl};
use podrail_store::{Binding, Released};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Runs the command.
///
/// # Guarantees
/// Succeeds twice, without a binding, and when the namespace is gone. What cannot be taken away
/// stays reserved.
pub(super) fn run(args: &DetachArgs) -> Result<(), Failure> {
    let sandbox = SandboxId::parse(&args.id)?;
    let lock = Lock::take(&args.state.state, &sandbox)?;
    let mut store = open_state(&args.state.state)?;
    let binding = store.get(&sandbox)?;
    let links = match namespace(args, binding.as_ref())? {
        Some(netns) => {
            lock.with_namespace(netns_id(&netns))?;
            detach(&target(&sandbox, binding.as_ref()), &netns)?
        }
        None => 0,
    };
    faults::reach("detached", 0).map_err(Failure::Injected)?;
    let released = store.release(&sandbox)?;
    faults::reach("released", 0).map_err(Failure::Injected)?;
    say(args, &sandbox, links, &released)
}

/// The namespace to clean, by the given path or by the one that was attached; none if it is gone.
fn namespace(args: &DetachArgs, binding: Option<&Binding>) -> Result<Option<NetNs>, Failure> {
    let attached = binding.map(|binding| PathBuf::from(&binding.request.netns));
    for path in args.netns.iter().chain(&attached) {
        let Some(netns) = open(path)? else { continue };
        match binding.and_then(|binding| binding.request.netns_id) {
            // Even if it is the one this runs in: the caller may be in the pod's.
            Some(id) if id == netns_id(&netns) => return Ok(Some(netns)),
            // A path may be used again for another namespace, which is none of our business.
            Some(_) => note(&format!(
                "{} is not the namespace that {} was attached to: left alone",
                path.display(),
                args.id
            )),
            // No rail is ever attached to the host's own.
            None if netns.id() == NetNs::current()?.id() => {}
            None => return Ok(Some(netns)),
        }
    }
    Ok(binding.and_then(elsewhere))
}

/// The attached namespace by another path than the one that is gone: a process that is still in
/// it, or a name of `ip netns`. Its addresses are up, so they must not be freed before it is
/// cleaned. Inodes are used again, hence only a namespace that has a rail of this sandbox counts.
fn elsewhere(binding: &Binding) -> Option<NetNs> {
    let id = binding.request.netns_id?;
    let same = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.dev() == id.dev && file.ino() == id.ino)
    };
    let processes = entries("/proc").map(|process| process.join("ns/net"));
    let mut paths = processes.chain(entries("/run/netns")).filter(same);
    let netns = paths.find_map(|path| NetNs::open(path).ok())?;
    let links = Rtnl::open_in(&netns).and_then(|mut inside| inside.links());
    let ours = |link: &Link| {
        let alias = link
            .alias
            .as_deref()
            .and_then(|alias| Alias::parse(alias).ok());
        alias.is_some_and(|alias| alias.sandbox == binding.request.sandbox)
    };
    links
        .is_ok_and(|links| links.iter().any(ours))
        .then_some(netns)
}

fn entries(dir: &str) -> impl Iterator<Item = PathBuf> {
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    found.map(|entry| entry.path())
}

/// The namespace at a path; none if there is none any more: its children went with it.
fn open(path: &Path) -> Result<Option<NetNs>, Failure> {
    match NetNs::open(path) {
        Ok(netns) => Ok(Some(netns)),
        Err(NetNsError::Missing { .. } | NetNsError::NotANetNs { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn target(sandbox: &SandboxId, binding: Option<&Binding>) -> Target {
    let plan = binding.map(attachment).and_then(|read| match read {
        Ok(attachment) => Some(attachment.plan),
        Err(error) => {
            note(&format!("{error}: detaching by group and alias"));
            None
        }
    });
    match plan {
        Some(plan) => Target::of(&plan),
        None => Target::without_plan(sandbox.clone()),
    }
}

fn say(
    args: &DetachArgs,
    sandbox: &SandboxId,
    links: usize,
    released: &Released,
) -> Result<(), Failure> {
    let (rails, addresses) = match released {
        Released::Freed(binding) => (binding.rails.len(), binding.leases.len()),
        Released::Nothing => (0, 0),
    };
    match args.output.output {
        Format::Json => print_json(&json!({
            "sandbox": sandbox, "interfaces": links, "rails": rails, "addresses": addresses,
        })),
        Format::Text if rails == 0 && links == 0 => {
            print(&format!("{sandbox}: nothing was attached\n"))
        }
        Format::Text => print(&format!(
            "{sandbox}: removed {links} interfaces, freed {rails} rails and {addresses} addresses\n"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            },
            state: State::Ready,
            boot: BootId::parse("00000000-0000-4000-8000-000000000000").unwrap(),
            sequence: 1,
            rails: vec![],
            leases: vec![],
            plan: String::new(),
        }
    }

    fn args(netns: Option<&str>) -> DetachArgs {
        DetachArgs {
            state: crate::cli::StateArgs { state: "x".into() },
            id: "job1".into(),
            netns: netns.map(PathBuf::from),
            output: crate::cli::OutputArgs {
                output: Format::Text,
            },
        }
    }

    /// Run in the pod (`ip netns exec job1 podrail detach`), it must not free addresses that are up.
    #[test]
    fn the_attached_namespace_is_cleaned_even_from_inside() {
        // Opening a namespace enters it, which takes privileges.
        let Ok(Some(here)) = open(Path::new(HERE)) else {
            return;
        };
        let id = netns_id(&here);
        let found = namespace(&args(None), Some(&binding(id))).unwrap();
        assert_eq!(found.map(|netns| netns.id()), Some(here.id()));
        let other = NetnsId { ino: 1, ..id };
        let found = namespace(&args(None), Some(&binding(other))).unwrap();
        assert!(found.is_none(), "another namespace is left alone");
        let found = namespace(&args(Some(HERE)), None).unwrap();
        assert!(found.is_none(), "the host's own is left alone");
    }
}
