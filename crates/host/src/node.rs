//! Facts of a node besides its topology: the kernel, its modules, NUMA nodes, limits.

use crate::HostError;
use crate::tree::{Tree, read_text};
use podrail_core::topology::NumaNode;
use std::path::Path;

/// Largest `modules.dep`, in bytes; a distribution kernel's has about 1 MiB.
const MODULES_LIMIT: u64 = 16 * 1024 * 1024;
/// Largest /proc file, in bytes.
const PROC_LIMIT: u64 = 64 * 1024;

/// Facts of a node that the preconditions of rails need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Mode of the RDMA subsystem.
    pub netns_mode: NetnsMode,
    /// Where the kernel has IPvlan.
    pub ipvlan: KernelModule,
    /// `uname -r`.
    pub kernel_release: Option<String>,
    /// Changes with every boot.
    pub boot_id: Option<String>,
    /// Out-of-tree RDMA stack (`mlx5_core 24.10-1.1.4`): a DOCA-OFED or MLNX_OFED module has a
    /// version file, an in-tree one of a current kernel has none.
    pub ofed: Option<String>,
}

/// Whether network namespaces share the RDMA devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetnsMode {
    /// Every namespace sees them: what Podrail needs.
    Shared,
    /// A device is in one namespace only (`rdma system set netns exclusive`).
    Exclusive,
    /// `ib_core` is not loaded.
    NoRdma,
    /// The parameter reads as something else.
    Unknown,
}

/// Where the kernel has a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelModule {
    /// In memory.
    Loaded,
    /// Part of the kernel.
    BuiltIn,
    /// In the module folder of the running kernel.
    Loadable,
    /// Neither of these.
    Absent,
    /// The module folder of the running kernel cannot be seen.
    Unknown,
}

/// Limit of locked memory of a process (`RLIMIT_MEMLOCK`), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memlock {
    /// What holds now; `None` is unlimited.
    pub soft: Option<u64>,
    /// What the process may raise it to; `None` is unlimited.
    pub hard: Option<u64>,
}

pub(crate) fn facts(tree: &Tree) -> NodeFacts {
    let release = tree.word("proc/sys/kernel/osrelease");
    NodeFacts {
        netns_mode: netns_mode(tree),
        ipvlan: module(tree, "ipvlan", release.as_deref()),
        boot_id: tree.word("proc/sys/kernel/random/boot_id"),
        ofed: ["mlx5_core", "ib_core"].iter().find_map(|name| {
            let version = tree.word(&format!("sys/module/{name}/version"))?;
            Some(format!("{name} {version}"))
        }),
        kernel_release: release,
    }
}

/// `Y` is shared (`drivers/infiniband/core/device.c`); a kernel before 5.2 has no such parameter
/// and always shares.
fn netns_mode(tree: &Tree) -> NetnsMode {
    let path = "sys/module/ib_core/parameters/netns_mode";
    match tree.text(path).as_deref() {
        Some("Y") => NetnsMode::Shared,
        Some("N") => NetnsMode::Exclusive,
        None if !tree.exists("sys/module/ib_core") => NetnsMode::NoRdma,
        None if !tree.exists(path) => NetnsMode::Shared,
        _ => {
            tree.note(path, "neither Y nor N");
            NetnsMode::Unknown
        }
    }
}

fn module(tree: &Tree, name: &str, release: Option<&str>) -> KernelModule {
    if tree.exists(&format!("sys/module/{name}")) {
        return KernelModule::Loaded;
    }
    let release = release.filter(|text| !text.contains('/') && !text.starts_with('.'));
    let Some(release) = release else {
        return KernelModule::Unknown;
    };
    let list = |file: &str| {
        let read = |dir: &str| {
            let path = tree.path(&format!("{dir}/modules/{release}/{file}"));
            read_text(&path, MODULES_LIMIT).ok()
        };
        read("lib").or_else(|| read("usr/lib"))
    };
    let has = |text: &str| text.lines().any(|line| is_module(line, name));
    match (list("modules.builtin"), list("modules.dep")) {
        (Some(builtin), _) if has(&builtin) => KernelModule::BuiltIn,
        (_, Some(dep)) if has(&dep) => KernelModule::Loadable,
        (None, None) => KernelModule::Unknown,
        _ => KernelModule::Absent,
    }
}

/// Whether a line of modules.dep or modules.builtin is about the module:
/// `kernel/drivers/net/ipvlan/ipvlan.ko.xz: ...`.
fn is_module(line: &str, name: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_prefix(name)
        .is_some_and(|rest| rest == ".ko" || rest.starts_with(".ko."))
}

/// NUMA nodes and the socket of their first CPU.
pub(crate) fn numa_nodes(tree: &Tree) -> Vec<NumaNode> {
    let names = tree.names("sys/devices/system/node");
    let ids = names
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok());
    let mut nodes: Vec<NumaNode> = ids
        .map(|id| NumaNode {
            id,
            socket: socket(tree, id),
        })
        .collect();
    nodes.sort_unstable_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    nodes
}

/// A node without CPUs has an empty list; a package id of -1 is not known.
fn socket(tree: &Tree, node: u32) -> Option<u32> {
    let list = tree.text(&format!("sys/devices/system/node/node{node}/cpulist"))?;
    let first: u32 = list.split([',', '-']).next()?.trim().parse().ok()?;
    let path = format!("sys/devices/system/cpu/cpu{first}/topology/physical_package_id");
    let package = tree.value(&path, "a package id", |text| text.parse::<i32>().ok())?;
    u32::try_from(package).ok()
}

/// Limit of locked memory of a process; RDMA programs lock what they register.
///
/// # Errors
/// [`HostError::Read`] if the process is gone, [`HostError::NoLine`] if /proc has no such limit.
pub fn memlock(root: &Path, pid: u32) -> Result<Memlock, HostError> {
    let path = root.join(format!("proc/{pid}/limits"));
    let text = read_text(&path, PROC_LIMIT)?;
    let line = "Max locked memory";
    let limit = |text: &str| match text {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    let found = text
        .lines()
        .find_map(|l| l.strip_prefix(line))
        .and_then(|rest| {
            let mut words = rest.split_whitespace();
            Some(Memlock {
                soft: limit(words.next()?)?,
                hard: limit(words.next()?)?,
            })
        });
    found.ok_or(HostError::NoLine { path, line })
}
