//! The command line: every option with the words that `--help` prints.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

mod state;
pub use state::{EvidenceArgs, StateCheckArgs, StateCommand, StateRebuildArgs};

/// The end of `podrail --help`; `docs/exit-codes.md` has the same list with next steps.
const EXIT_CODES: &str = "\
Exit codes:
  0  done, or the check passed
  1  'podrail check' or 'podrail state check' found something wrong
  2  the command line is not understood
  3  the configuration or an input file is wrong
  4  not enough free rails or addresses
  5  in conflict with what is there (same id, other arguments; a taken name; a sound state file)
  6  the node is not ready for rails (RDMA mode, IPvlan, a rail that is down or in use)
  7  the network namespace is missing, is none, or may not be entered
  8  the state file cannot be used
  9  the kernel refused a step: an attach was undone, what a detach left is listed";

/// Gives a pod or a job the RDMA rails next to its GPUs, over IPvlan.
#[derive(Debug, Parser)]
#[command(name = "podrail", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the node: roots, GPUs, rails, and who holds what
    #[command(after_help = "Examples:\n  \
        podrail topo\n  \
        podrail topo -o svg > node.svg\n  \
        podrail topo --from nccl-topo.xml      # NCCL_TOPO_DUMP_FILE, or lstopo --of xml")]
    Topo(TopoArgs),
    /// Attach the rails next to the given GPUs to a network namespace
    #[command(after_help = "Examples:\n  \
        podrail attach --netns /run/netns/job1 --id job1 --gpus 0,1,6,7 --rails 8\n  \
        podrail attach --netns /proc/4711/ns/net --id slurm-17 --gpus GPU-5a8b... --rails 2 -o json\n\n\
        Twice with the same arguments gives the same rails. Either all rails are attached or none.")]
    Attach(AttachArgs),
    /// Take all rails of a sandbox away and free its addresses
    #[command(after_help = "Examples:\n  \
        podrail detach --id job1\n\n\
        Succeeds when there is nothing to detach, and when the namespace is gone.")]
    Detach(DetachArgs),
    /// List who holds which rails and addresses
    #[command(
        after_help = "Examples:\n  podrail status\n  podrail status -o json | jq '.[].rails'"
    )]
    Status(StatusArgs),
    /// Print the RDMA device and GID index of each rail interface (run it in the pod)
    #[command(after_help = "Examples:\n  \
        podrail map\n  \
        podrail map --netns /run/netns/job1\n\n\
        Columns: interface, address, RDMA device, GID index; 'none' where there is none.")]
    Map(MapArgs),
    /// Check that RDMA works on the rails of this pod: PASS, or what is wrong (run it in the pod)
    #[command(after_help = "Examples:\n  \
        podrail check\n  \
        podrail check --netns /run/netns/job1 --rails 8\n\n\
        The number of rails is taken from --rails, or from the PCIDEVICE_* environment.")]
    Check(CheckArgs),
    /// Explain why a pod gets the bandwidth that it gets: GPUs, rails, distances, ceiling
    #[command(after_help = "Examples:\n  \
        podrail explain --pod default/job-0\n  \
        podrail explain --id slurm-17 -o json\n\n\
        The ceiling is what the links next to the GPUs carry in one direction. With n GPUs on two\n\
        nodes, the busbw of an all-reduce may exceed it up to 2(n-1)/n times (trees).")]
    Explain(ExplainArgs),
    /// Check the state file, or build it anew from what is in the kernel
    #[command(
        subcommand_required = true,
        after_help = "Examples:\n  podrail state check\n  podrail state rebuild --dry-run"
    )]
    State {
        /// What to do.
        #[command(subcommand)]
        command: StateCommand,
    },
    /// Run the node agent: slots for the kubelet, CNI chain, health, garbage, metrics
    #[command(after_help = "Examples:\n  \
        podrail agent\n  \
        podrail agent --config /etc/podrail/config.yaml --plugin /usr/libexec/podrail-cni\n\n\
        Ends cleanly on SIGTERM; running pods, slots and files stay. No pod waits for it.\n\
        'podrail uninstall' takes the CNI chain off the node.")]
    Agent(AgentArgs),
    /// Take the CNI chain (and on a drained node the plugin) off this node
    #[command(after_help = "Examples:\n  \
        podrail uninstall\n  \
        podrail uninstall --drained     # the plugin too: no pod with rails is left\n\n\
        Stop the agent first: it would put the chain back.")]
    Uninstall(UninstallArgs),
}

/// Options about the node, shared by the commands that look at it.
#[derive(Debug, Args, Clone)]
pub struct NodeArgs {
    /// Configuration file; without it /etc/podrail/config.yaml is read if it exists
    #[arg(
        long,
        value_name = "FILE",
        env = "PODRAIL_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Read sysfs and /proc below this directory
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        env = "PODRAIL_ROOT",
        hide_env_values = true
    )]
    pub root: PathBuf,
    /// Addresses of this node: an interface that has one is a front-end NIC, not a rail
    #[arg(
        long = "node-address",
        value_name = "IP",
        env = "PODRAIL_NODE_ADDRESS",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub node_addresses: Vec<IpAddr>,
}

/// Where the state is kept.
#[derive(Debug, Args, Clone)]
pub struct StateArgs {
    /// State file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/podrail/state.db",
        env = "PODRAIL_STATE",
        hide_env_values = true
    )]
    pub state: PathBuf,
}

/// Table or JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For eyes.
    Text,
    /// For scripts.
    Json,
}

/// How to print.
#[derive(Debug, Args, Clone, Copy)]
pub struct OutputArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Formats of `topo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopoFormat {
    /// A tree.
    Text,
    /// For scripts.
    Json,
    /// A picture.
    Svg,
}

/// Options of `topo`.
#[derive(Debug, Args)]
pub struct TopoArgs {
    /// Options about the node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// Look at another machine: an NCCL topology dump or an hwloc XML
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = TopoFormat::Text)]
    pub output: TopoFormat,
}

/// Options of `attach`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Options about the node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// Network namespace of the pod or job
    #[arg(long, value_name = "PATH")]
    pub netns: PathBuf,
    /// Name of the pod sandbox or job; detach takes the same one
    #[arg(long, value_name = "ID")]
    pub id: String,
    /// Its GPUs: indexes as nvidia-smi counts (PCI order), UUIDs or PCI addresses
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    pub gpus: Vec<String>,
    /// How many rails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rails: u16,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of `detach`.
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// Name that was given to attach
    #[arg(long, value_name = "ID")]
    pub id: String,
    /// Network namespace; without it the one that was given to attach
    #[arg(long, value_name = "PATH")]
    pub netns: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of `map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Look into this network namespace instead of the current one
    #[arg(long, value_name = "PATH")]
    pub netns: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Look into this network namespace instead of the current one
    #[arg(long, value_name = "PATH")]
    pub netns: Option<PathBuf>,
    /// How many rails there must be
    #[arg(long, value_name = "N")]
    pub rails: Option<usize>,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Options about the node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// The pod
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        required_unless_present = "id",
        conflicts_with = "id"
    )]
    pub pod: Option<String>,
    /// The sandbox or job, as 'podrail status' lists it
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where the CNI plugin and its chained configuration go.
#[derive(Debug, Args)]
pub struct ChainArgs {
    /// The runtime's directory of CNI programs
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub cni_bin: PathBuf,
    /// The runtime's directory of CNI configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub cni_conf: PathBuf,
}

/// Options of `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Options about the node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where the state is kept.
    #[command(flatten)]
    pub state: StateArgs,
    /// Where the plugin goes.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The podrail-cni to install; without it the one beside this program
    #[arg(long, value_name = "FILE")]
    pub plugin: Option<PathBuf>,
    /// Leave the CNI plugin and its configuration to somebody else
    #[arg(long, conflicts_with = "plugin")]
    pub no_install: bool,
    /// The kubelet's directory for device plugins
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/kubelet/device-plugins"
    )]
    pub device_plugins: PathBuf,
    /// Socket of the kubelet's PodResources
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/var/lib/kubelet/pod-resources/kubelet.sock"
    )]
    pub pod_resources: PathBuf,
    /// Where the container runtime looks for CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,
    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS", default_value_t = podrail_agent::http::DEFAULT_LISTEN)]
    pub listen: SocketAddr,
}

/// Options of `uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Where the plugin is.
    #[command(flatten)]
    pub chain: ChainArgs,
    /// No pod with rails is left on this node: remove the plugin too
    #[arg(long)]
    pub drained: bool,
}
