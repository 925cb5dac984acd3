//! What a node is booted with.

use std::path::PathBuf;
use std::time::Duration;

use super::Lab;
use super::boot::Boot;
use crate::error::LabError;
use crate::shape::Shape;

/// A boot that takes longer is not going to end.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// One retry: under load a boot under emulation stalls now and then.
const ATTEMPTS: u32 = 2;
/// For the programs and images in the root, the images unpacked, and a few dozen processes.
const CONTAINERD_MIB: u32 = 2560;

/// What a node is booted with.
#[derive(Debug, Clone)]
pub struct Builder {
    pub(super) shape: Shape,
    pub(super) agent: Option<PathBuf>,
    pub(super) programs: Vec<(String, PathBuf)>,
    pub(super) kernel_arguments: Vec<String>,
    pub(super) withheld: Vec<String>,
    pub(super) containerd: bool,
    pub(super) disk: bool,
    pub(super) boot_limit: Duration,
    pub(super) attempts: u32,
}

impl Builder {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            agent: None,
            programs: Vec::new(),
            kernel_arguments: Vec::new(),
            withheld: Vec::new(),
            containerd: false,
            disk: false,
            boot_limit: BOOT_LIMIT,
            attempts: ATTEMPTS,
        }
    }

    /// Packs a program of the host as `/usr/bin/NAME`, stripped.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.push((name.into(), path.into()));
        self
    }

    /// The agent's binary, when the caller has it already; otherwise cargo builds it.
    #[must_use]
    pub fn agent(mut self, path: impl Into<PathBuf>) -> Self {
        self.agent = Some(path.into());
        self
    }

    /// Adds a word to the kernel's command line. `module.parameter=value` reaches the module.
    #[must_use]
    pub fn kernel_arg(mut self, word: &str) -> Self {
        self.kernel_arguments.push(word.into());
        self
    }

    /// RDMA devices belong to one network namespace each (`ib_core.netns_mode=0`).
    #[must_use]
    pub fn rdma_exclusive(self) -> Self {
        self.kernel_arg("ib_core.netns_mode=0")
    }

    /// Leaves a kernel module out, as if the kernel had been built without it.
    #[must_use]
    pub fn without_module(mut self, name: &str) -> Self {
        self.withheld.push(name.into());
        self
    }

    /// Gives up on a boot sooner or later than usual, after this many attempts.
    #[must_use]
    pub fn boot_limit(mut self, limit: Duration, attempts: u32) -> Self {
        self.boot_limit = limit;
        self.attempts = attempts.max(1);
        self
    }

    /// Adds containerd, runc and the pods' images, and the memory that they need.
    /// [`Lab::containerd`] starts it.
    #[must_use]
    pub fn containerd(mut self) -> Self {
        let needed = CONTAINERD_MIB.div_ceil(self.shape.numa_nodes);
        let memory = &mut self.shape.memory_mib_per_numa_node;
        *memory = needed.max(*memory);
        self.containerd = true;
        self
    }

    /// Adds a disk that keeps `/etc`, `/opt` and `/var` over [`Lab::power_cut_and_boot`]. It is empty
    /// at first, gets what the guest has in these folders, and goes with the node's folder.
    #[must_use]
    pub fn disk(mut self) -> Self {
        self.disk = true;
        self
    }

    /// Boots the node and waits until its agent says that it is set up.
    ///
    /// # Errors
    /// No assets, or no boot in the time allowed; the console is kept then.
    pub fn boot(self) -> Result<Lab, LabError> {
        Boot::of(self)?.first()
    }
}
