//! A running node: boot, use, end.
//!
//! The node lives as long as its [`Lab`]. Everything of it is in one folder, which is deleted at the
//! end and kept when something failed.

mod client;
mod command;
mod emulator;
mod initrd;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use self::command::{Cmd, InNetns, Output, Process, Stream, TerminalSize};

use self::client::Client;
use self::emulator::Emulator;
use crate::assets::Assets;
use crate::error::LabError;
use crate::qemu::{Accel, Launch, arguments};
use crate::shape::Shape;
use crate::wire::{BootReport, Op};

/// A boot that takes longer is not going to end.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// KVM that works is up by then; KVM that hangs must not cost a minute.
const KVM_LIMIT: Duration = Duration::from_secs(20);
/// One retry: under load a boot under emulation stalls now and then.
const ATTEMPTS: u32 = 2;
/// How much of the console an error shows.
const TAIL_LINES: usize = 15;

/// A virtual node, up and running.
///
/// ```no_run
/// use podrail_lab::{Lab, Shape};
/// let lab = Lab::builder(Shape::named("B4.8")?).boot()?;
/// assert!(lab.sh("rdma link show mlx5_5/1")?.text().contains("rdma0"));
/// # Ok::<(), podrail_lab::LabError>(())
/// ```
#[derive(Debug)]
pub struct Lab {
    client: Client,
    // After the client: its threads end when QEMU's side of the socket does.
    emulator: Emulator,
    shape: Shape,
    report: BootReport,
    boot_time: Duration,
    dir: Option<TempDir>,
    keep: AtomicBool,
}

/// What a node is booted with.
#[derive(Debug, Clone)]
pub struct Builder {
    shape: Shape,
    agent: Option<PathBuf>,
    programs: Vec<(String, PathBuf)>,
    kernel_arguments: Vec<String>,
    withheld: Vec<String>,
    boot_limit: Duration,
    attempts: u32,
}

impl Lab {
    /// A node of this shape, to be booted.
    pub fn builder(shape: Shape) -> Builder {
        Builder {
            shape,
            agent: None,
            programs: Vec::new(),
            kernel_arguments: Vec::new(),
            withheld: Vec::new(),
            boot_limit: BOOT_LIMIT,
            attempts: ATTEMPTS,
        }
    }

    /// The node's shape: what a test expects to find.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What the guest said when it was up.
    pub fn report(&self) -> &BootReport {
        &self.report
    }

    /// From the start of QEMU to the first command being possible.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// A command, to be refined and run. The first word is the program.
    pub fn cmd<I: IntoIterator<Item = S>, S: Into<String>>(&self, argv: I) -> Cmd<'_> {
        Cmd::new(self, argv.into_iter().map(Into::into).collect())
    }

    /// Runs a command to its end; a failing one is an output, not an error.
    ///
    /// # Errors
    /// The program cannot be started, does not end in time, or the node is gone.
    pub fn run<I: IntoIterator<Item = S>, S: Into<String>>(
        &self,
        argv: I,
    ) -> Result<Output, LabError> {
        self.cmd(argv).run()
    }

    /// Runs a command that must exit with 0.
    ///
    /// # Errors
    /// As [`run`](Self::run), and any other exit.
    pub fn run_ok<I: IntoIterator<Item = S>, S: Into<String>>(
        &self,
        argv: I,
    ) -> Result<Output, LabError> {
        self.cmd(argv).run_ok()
    }

    /// Runs a bash script that must exit with 0; it stops at the first failing command.
    ///
    /// # Errors
    /// As [`run_ok`](Self::run_ok).
    pub fn sh(&self, script: &str) -> Result<Output, LabError> {
        self.cmd(command::script(script)).run_ok()
    }

    /// The same commands inside a network namespace: a name of `ip netns`, or a path.
    pub fn in_netns<'a>(&'a self, netns: &'a str) -> InNetns<'a> {
        InNetns::new(self, netns)
    }

    /// Writes a file of the guest, with its parent directories.
    ///
    /// # Errors
    /// The guest's file system, by its own words, or a node that is gone.
    pub fn write_file(&self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), LabError> {
        self.request(
            Op::Write {
                path: path.into(),
                mode,
            },
            bytes,
        )
        .map(drop)
    }

    /// Reads a file of the guest.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file).
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>, LabError> {
        self.request(Op::Read { path: path.into() }, &[])
    }

    /// Loads a kernel module. The kernel also loads them itself, by alias, as on a real node.
    ///
    /// # Errors
    /// The node has no such module, or the kernel refuses it.
    pub fn load_module(&self, name: &str) -> Result<(), LabError> {
        self.request(Op::LoadModule { name: name.into() }, &[])
            .map(drop)
    }

    /// What the guest's kernel and agent printed so far.
    pub fn console(&self) -> String {
        read_console(&self.console_path())
    }

    /// The console's file.
    pub fn console_path(&self) -> PathBuf {
        self.emulator.console().to_owned()
    }

    /// Keeps the node's folder, console included, beyond the node's life.
    pub fn keep_console(&self) -> PathBuf {
        self.keep.store(true, Ordering::Relaxed);
        self.console_path()
    }

    fn request(&self, op: Op, body: &[u8]) -> Result<Vec<u8>, LabError> {
        self.client
            .ask(op, body, command::LIMIT)
            .map_err(|fault| self.explain(fault, "request"))
    }

    /// An error with the console behind it, which is kept from now on.
    fn explain(&self, fault: client::ClientFault, command: &str) -> LabError {
        let refused = matches!(fault, client::ClientFault::Refused(_));
        let console = if refused {
            self.console_path()
        } else {
            self.keep_console()
        };
        let tail = last_lines(&read_console(&console), TAIL_LINES);
        let command = command.to_owned();
        match fault {
            client::ClientFault::Refused(message) => LabError::Agent { message },
            client::ClientFault::Gone => LabError::Gone { console, tail },
            client::ClientFault::Late(limit) => LabError::Timeout {
                command,
                seconds: limit.as_secs(),
                console,
                tail,
            },
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.emulator.stop();
        let failed = std::thread::panicking() || self.keep.load(Ordering::Relaxed);
        if let (true, Some(dir)) = (failed, self.dir.take()) {
            // The initramfs is large and tells nothing.
            drop(fs::remove_file(dir.path().join(initrd::FILE)));
            eprintln!(
                "lab {}: console kept in {}",
                self.shape.name,
                dir.keep().display()
            );
        }
    }
}

impl Builder {
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
                Err(error @ LabError::Boot { .. }) if attempt < self.attempts => {
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
            Err(reason) => Err(failed_boot(emulator, dir, reason)),
        }
    }
}

fn failed_boot(emulator: Emulator, dir: TempDir, reason: String) -> LabError {
    let complaint = emulator.complaint();
    drop(emulator);
    drop(fs::remove_file(dir.path().join(initrd::FILE)));
    let console = dir.keep().join("console");
    let text = format!("{}{complaint}", read_console(&console));
    LabError::Boot {
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

fn read_console(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "")
}

/// The end of a text, for error messages.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(count)..)
        .unwrap_or_default()
        .join("\n")
}
