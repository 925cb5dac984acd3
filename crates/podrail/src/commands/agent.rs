//! `podrail agent` and `podrail uninstall`: arguments for the agent's library.

use crate::cli::{AgentArgs, ChainArgs, UninstallArgs};
use crate::failure::Failure;
use crate::output::print;
use podrail_agent::Options;
use podrail_agent::install::{Installer, Left, PLUGIN, Program};
use podrail_node::Places;
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

/// Runs until SIGTERM.
pub(super) fn run(args: &AgentArgs) -> Result<(), Failure> {
    let wanted = EnvFilter::try_from_env("PODRAIL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(wanted)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    Ok(podrail_agent::run(options(args))?)
}

fn options(args: &AgentArgs) -> Options {
    Options {
        root: args.node.root.clone(),
        config: args.node.config.clone(),
        node_addresses: args.node.node_addresses.clone(),
        device_plugins: args.device_plugins.clone(),
        paths: Places {
            state: args.state.state.clone(),
            pod_resources: args.pod_resources.clone(),
            checkpoint: args.device_plugins.join("kubelet_internal_checkpoint"),
            cdi: args.cdi.clone(),
        },
        plugin: plugin(args),
        cni_bin: args.chain.cni_bin.clone(),
        cni_conf: args.chain.cni_conf.clone(),
        listen: args.listen,
    }
}

/// The plugin as it was delivered: the one named, or the one beside this program.
fn plugin(args: &AgentArgs) -> Option<PathBuf> {
    if args.no_install {
        return None;
    }
    let beside = || {
        let me = std::env::current_exe().ok()?;
        Some(me.parent()?.join(PLUGIN))
    };
    args.plugin.clone().or_else(beside)
}

/// Takes the chain off the node.
pub(super) fn uninstall(args: &UninstallArgs) -> Result<(), Failure> {
    let program = if args.drained {
        Program::Remove
    } else {
        Program::Keep
    };
    let left = installer(&args.chain).uninstall(program)?;
    print(&said(&left, &args.chain.cni_bin))
}

fn installer(chain: &ChainArgs) -> Installer {
    Installer {
        source: PathBuf::new(),
        bin_dir: chain.cni_bin.clone(),
        conf_dir: chain.cni_conf.clone(),
        places: Places::default(),
    }
}

fn said(left: &Left, bin: &Path) -> String {
    let mut text = "the chained CNI configuration is gone\n".to_owned();
    if let Some(name) = &left.copy_for_multus {
        text.push_str(&format!(
            "{name} stays, without Podrail in it: Multus names it as its own\n"
        ));
    }
    let program = bin.join(PLUGIN);
    let program = program.display();
    text.push_str(&if left.program {
        format!(
            "{program} stays, for pods that still run: 'podrail uninstall --drained' removes it\n"
        )
    } else {
        format!("{program} is gone\n")
    });
    text
}
