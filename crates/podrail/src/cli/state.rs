//! Options of `podrail state`.

use super::{NodeArgs, OutputArgs, StateArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with the state file.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Check the state file, and compare it with what is in the kernel
    #[command(after_help = "Examples:\n  \
        podrail state check\n  \
        podrail state check -o json | jq '.findings'\n\n\
        Changes nothing. Exit codes: 0 all is well, 1 something was found, 8 the file cannot be used.")]
    Check(StateCheckArgs),
    /// Build a state file that is damaged or gone anew, from what is in the kernel
    #[command(after_help = "Examples:\n  \
        podrail state rebuild --dry-run     # what would be written\n  \
        podrail state rebuild               # then restart the agent\n\n\
        Stop the agent first. Pods and jobs run on: nothing is attached, detached or removed. The old\n\
        file is moved aside, never deleted. What cannot be known is listed, and left as it is.\n\
        Exit codes: 0 done, 5 the file is sound (see --force), 8 the file cannot be replaced.")]
    Rebuild(StateRebuildArgs),
}

/// Where else there is something to read about what pods hold.
#[derive(Debug, Args, Clone)]
pub struct EvidenceArgs {
    /// Where the container runtime looks for CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,
    /// Socket of the kubelet's PodResources; not asked if it is not there
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pub pod_resources: PathBuf,
    /// Checkpoint of the kubelet's device manager; not read if it is not there
    #[arg(
        long,
        value_name = "FILE",
        default_value = podrail_kubelet::checkpoint::DEFAULT_PATH
    )]
    pub checkpoint: PathBuf,
}

/// Options of `state check`.
#[derive(Debug, Args)]
pub struct StateCheckArgs {
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// What it is compared with.
    #[command(flatten)]
    pub evidence: EvidenceArgs,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of `state rebuild`.
#[derive(Debug, Args)]
pub struct StateRebuildArgs {
    /// Options about the node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// What it is built from.
    #[command(flatten)]
    pub evidence: EvidenceArgs,
    /// Only show what would be written
    #[arg(long)]
    pub dry_run: bool,
    /// Even if the file is sound, of a newer Podrail or of another program; it is moved aside all
    /// the same
    #[arg(long)]
    pub force: bool,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}
