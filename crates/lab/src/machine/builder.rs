//! What a node is booted with, and the boot.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::{self, BootFault, Client};
use super::emulator::Emulator;
use super::{Lab, TAIL_LINES, initrd, last_lines, read_console};
use crate::assets::Assets;
use crate::error::LabError;
use crate::qemu::{Accel, Launch, arguments};
use crate::shape::Shape;

/// A boot that takes longer is not going to end.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// KVM that works is up by then; KVM that hangs must not cost a minute.
const KVM_LIMIT: Duration = Duration::from_secs(20);
/// One retry: under load a boot under emulation stalls now and then.
const ATTEMPTS: u32 = 2;
/// What a node is booted with.
#[derive(Debug, Clone)]
pub struct Builder {
    pub(super) shape: Shape,
    agent: Option<PathBuf>,
    pub(super) programs: Vec<(String, PathBuf)>,
    kernel_arguments: Vec<String>,
    pub(super) withheld: Vec<String>,
    boot_limit: Duration,
    attempts: u32,
}

impl Builder {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            agent: None,
            programs: Vec::new(),
            kernel_arguments: Vec::new(),
            withheld: Vec::new(),
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

    /// Boots the node and waits until its agent says that it is set up.
    ///
    /// # Errors
    /// No assets, or no boot in the time allowed; the console is kept then.
    pub fn boot(self) -> Result<Lab, LabError> {
        let assets = Assets::find()?;
        let agent = match &self.agent {
            Some(path) => path.clone(),
            None => crate::testing::cargo_binary("podrail-lab", "podrail-lab-agent")?,
        };
        let initrd = initrd::own_files(&assets, &agent, &self)?;
        if kvm_wanted() {
            match self.attempt(&assets, &initrd, Accel::Kvm, KVM_LIMIT) {
                Ok(lab) => return Ok(lab),
                // Asked for and not there: said once, then never tried again by this process.
                Err(error) => forget_kvm(&error),
            }
        }
        let mut attempt = 1;
        loop {
            match self.attempt(&assets, &initrd, Accel::Tcg, self.boot_limit) {
                Err(error @ LabError::Boot { stalled: true, .. }) if attempt < self.attempts => {
                    eprintln!(
                        "lab {}: attempt {attempt} of {}: {error}",
                        self.shape.name, self.attempts
                    );
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn attempt(
        &self,
        assets: &Assets,
        own_files: &[u8],
        accel: Accel,
        limit: Duration,
    ) -> Result<Lab, LabError> {
        let started = Instant::now();
        let dir = tempfile::Builder::new()
            .prefix("podrail-lab-")
            .tempdir()
            .map_err(LabError::io("create a folder in", std::env::temp_dir()))?;
        let initrd = initrd::write(dir.path(), assets, own_files)?;
        let (console, socket) = (dir.path().join("console"), dir.path().join("agent"));
        let launch = Launch {
            accel,
            vmlinux: &assets.vmlinux(),
            initrd: &initrd,
            console: &console,
            agent_socket: &socket,
            kernel_arguments: &self.kernel_arguments,
        };
        let listener = client::listen(&socket)?;
        let emulator = Emulator::start(arguments(&self.shape, &launch), dir.path(), &console)?;
        let deadline = started + limit;
        let connected = Client::accept(&listener, &emulator, deadline)
            .and_then(|client| client.wait_ready(deadline).map(|report| (client, report)));
        // QEMU read it when it started. It is large, tells nothing, and would stay behind if the
        // test process were killed.
        drop(fs::remove_file(&initrd));
        match connected {
            Ok((client, report)) => Ok(Lab {
                client,
                emulator,
                shape: self.shape.clone(),
                report,
                boot_time: started.elapsed(),
                dir: Some(dir),
                keep: AtomicBool::new(false),
            }),
            Err(fault) => Err(failed_boot(emulator, dir, fault)),
        }
    }
}

fn failed_boot(emulator: Emulator, dir: TempDir, fault: BootFault) -> LabError {
    let (stalled, reason) = match fault {
        BootFault::Stalled(reason) => (true, reason),
        BootFault::Broken(reason) => (false, reason),
    };
    let complaint = emulator.complaint();
    drop(emulator);
    let console = dir.keep().join("console");
    let text = format!("{}{complaint}", read_console(&console));
    LabError::Boot {
        stalled,
        reason,
        tail: last_lines(&text, TAIL_LINES),
        console,
    }
}

static KVM_REFUSED: AtomicBool = AtomicBool::new(false);

fn kvm_wanted() -> bool {
    let asked = std::env::var_os("PODRAIL_LAB_ACCEL").is_some_and(|accel| accel == "kvm");
    asked && !KVM_REFUSED.load(Ordering::Relaxed)
}

fn forget_kvm(error: &LabError) {
    KVM_REFUSED.store(true, Ordering::Relaxed);
    eprintln!("lab: KVM does not boot here, using emulation: {error}");
}
