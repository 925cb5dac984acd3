//! `podrail detach`: links first, then addresses and rails.

use crate::cli::{DetachArgs, Format};
use crate::commands::tell;
use crate::failure::Failure;
use crate::output::{print, print_json};
use podrail_core::ids::SandboxId;
use podrail_node::{Deadline, Detached, Nothing, Session};
use podrail_store::Released;
use serde_json::json;

/// Runs the command; see [`Session::detach`].
pub(super) fn run(args: &DetachArgs) -> Result<(), Failure> {
    let sandbox = SandboxId::parse(&args.id)?;
    let mut session = Session::open(&args.state.state, &sandbox, Deadline::default())?;
    let done = session.detach(args.netns.as_deref(), &mut Nothing);
    tell(&mut session);
    say(args, &sandbox, &done?)
}

fn say(args: &DetachArgs, sandbox: &SandboxId, done: &Detached) -> Result<(), Failure> {
    let links = done.links;
    let (rails, addresses) = match &done.released {
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
