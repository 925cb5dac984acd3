//! Boots a node, the first time and again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::{self, BootFault, Client};
use super::emulator::Emulator;
use super::turn::Turn;
use super::{Builder, Lab, TAIL_LINES, initrd, last_lines, read_console};
use crate::assets::Assets;
use crate::error::LabError;
use crate::qemu::{Accel, Launch, arguments};
use crate::wire::BootReport;

/// KVM that works is up by then; KVM that hangs must not cost a minute.
const KVM_LIMIT: Duration = Duration::from_secs(20);
/// The disk's size; the file is sparse.
const DISK_BYTES: u64 = 2 << 30;

/// A node as it can be booted any number of times.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) builder: Builder,
    assets: Assets,
    own_files: Vec<u8>,
    _turn: Turn,
}

/// A node that is up.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) client: Client,
    // After the client: its threads end when QEMU's side of the socket does.
    pub(super) emulator: Emulator,
    pub(super) report: BootReport,
    pub(super) boot_time: Duration,
}

impl Boot {
    /// Finds the assets and packs the node's own files.
    pub(super) fn of(builder: Builder) -> Result<Self, LabError> {
        let assets = Assets::find()?;
        let agent = match &builder.agent {
            Some(path) => path.clone(),
            None => crate::testing::cargo_binary("podrail-lab", "podrail-lab-agent")?,
        };
        let own_files = initrd::own_files(&assets, &agent, &builder)?;
        Ok(Self {
            builder,
            assets,
            own_files,
            _turn: Turn::wait()?,
        })
    }

    /// Boots in a folder of its own, a new one for each attempt.
    pub(super) fn first(self) -> Result<Lab, LabError> {
        let (running, dir) = self.attempts(&|accel, limit| {
            let dir = tempfile::Builder::new()
                .prefix("podrail-lab-")
                .tempdir()
                .map_err(LabError::io("create a folder in", std::env::temp_dir()))?;
            match self.start(dir.path(), accel, limit) {
                Ok(running) => Ok((running, dir)),
                Err(error) => Err(kept(error, dir)),
            }
        })?;
        Ok(Lab {
            running,
            boot: self,
            dir: Some(dir),
            keep: AtomicBool::new(false),
        })
    }

    /// Boots in a folder where it was up before, with the disk as it is.
    pub(super) fn again(&self, dir: &Path) -> Result<Running, LabError> {
        self.attempts(&|accel, limit| self.start(dir, accel, limit))
    }

    fn attempts<T>(
        &self,
        attempt: &dyn Fn(Accel, Duration) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        if kvm_wanted() {
            match attempt(Accel::Kvm, KVM_LIMIT) {
                Ok(up) => return Ok(up),
                // Asked for and not there: said once, then never tried again by this process.
                Err(error) => forget_kvm(&error),
            }
        }
        let (name, limit) = (&self.builder.shape.name, self.builder.boot_limit);
        let (mut count, attempts) = (1, self.builder.attempts);
        loop {
            match attempt(Accel::Tcg, limit) {
                Err(error @ LabError::Boot { stalled: true, .. }) if count < attempts => {
                    eprintln!("lab {name}: attempt {count} of {attempts}: {error}");
                    count += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn start(&self, dir: &Path, accel: Accel, limit: Duration) -> Result<Running, LabError> {
        let started = Instant::now();
        let initrd = initrd::write(dir, &self.parts(), &self.own_files)?;
        let (console, socket) = (dir.join("console"), dir.join("agent"));
        // Of the boot before: QEMU would write over the one and cannot listen on the other.
        drop(fs::rename(&console, dir.join("console.before")));
        drop(fs::remove_file(&socket));
        let disk = self.builder.disk.then(|| dir.join("disk"));
        if let Some(path) = &disk {
            make_disk(path)?;
        }
        let launch = Launch {
            accel,
            vmlinux: &self.assets.vmlinux(),
            initrd: &initrd,
            console: &console,
            agent_socket: &socket,
            disk: disk.as_deref(),
            kernel_arguments: &self.builder.kernel_arguments,
        };
        let listener = client::listen(&socket)?;
        let emulator = Emulator::start(arguments(&self.builder.shape, &launch), dir, &console)?;
        let deadline = started + limit;
        let connected = Client::accept(&listener, &emulator, deadline)
            .and_then(|client| client.wait_ready(deadline).map(|report| (client, report)));
        // QEMU read it when it started. It is large, tells nothing, and would stay behind if the
        // test process were killed.
        drop(fs::remove_file(&initrd));
        match connected {
            Ok((client, report)) => Ok(Running {
                client,
                emulator,
                report,
                boot_time: started.elapsed(),
            }),
            Err(fault) => Err(failed(&emulator, fault)),
        }
    }

    /// The cached archives that the node's own files go on top of.
    fn parts(&self) -> Vec<PathBuf> {
        let containers = self.builder.containerd.then(|| self.assets.containers());
        let base = std::iter::once(self.assets.base_initrd());
        base.chain(containers).collect()
    }
}

/// An empty disk, unless there is one.
fn make_disk(path: &Path) -> Result<(), LabError> {
    let opened = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path);
    opened
        .and_then(|file| file.set_len(DISK_BYTES))
        .map_err(LabError::io("create", path))
}

/// A failed boot's folder stays, for its console.
fn kept(error: LabError, dir: TempDir) -> LabError {
    if matches!(error, LabError::Boot { .. }) {
        drop(dir.keep());
    }
    error
}

fn failed(emulator: &Emulator, fault: BootFault) -> LabError {
    let (stalled, reason) = match fault {
        BootFault::Stalled(reason) => (true, reason),
        BootFault::Broken(reason) => (false, reason),
    };
    emulator.stop();
    let console = emulator.console().to_owned();
    let text = format!("{}{}", read_console(&console), emulator.complaint());
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
