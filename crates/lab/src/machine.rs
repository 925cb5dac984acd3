//! A running node: boot, use, end.
//!
//! The node lives as long as its [`Lab`]. Everything of it is in one folder, which is deleted at the
//! end and kept when something failed.

mod boot;
mod builder;
mod client;
mod command;
mod containerd;
mod emulator;
mod initrd;
mod turn;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

pub use self::builder::Builder;
pub use self::command::{Cmd, InNetns, Output, Process, Stream, TerminalSize};
pub use self::containerd::Containerd;

use self::boot::{Boot, Running};
use crate::error::LabError;
use crate::shape::Shape;
use crate::wire::{BootReport, Op};

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
    running: Running,
    boot: Boot,
    dir: Option<TempDir>,
    keep: AtomicBool,
}

impl Lab {
    /// A node of this shape, to be booted.
    pub fn builder(shape: Shape) -> Builder {
        Builder::new(shape)
    }

    /// The node's shape: what a test expects to find.
    pub fn shape(&self) -> &Shape {
        &self.boot.builder.shape
    }

    /// What the guest said when it was up.
    pub fn report(&self) -> &BootReport {
        &self.running.report
    }

    /// From the start of QEMU to the first command being possible.
    pub fn boot_time(&self) -> Duration {
        self.running.boot_time
    }

    /// A command, to be refined and run. The first word is the program.
    pub fn cmd<I: IntoIterator<Item = S>, S: Into<String>>(&self, argv: I) -> Cmd<'_> {
        self.host().cmd(argv)
    }

    /// Runs a command to its end; a failing one is an output, not an error.
    ///
    /// # Errors
    /// The program cannot be started, does not end in time, or the node is gone.
    pub fn run<I: IntoIterator<Item = S>, S: Into<String>>(
        &self,
        argv: I,
    ) -> Result<Output, LabError> {
        self.host().run(argv)
    }

    /// Runs a command that must exit with 0.
    ///
    /// # Errors
    /// As [`run`](Self::run), and any other exit.
    pub fn run_ok<I: IntoIterator<Item = S>, S: Into<String>>(
        &self,
        argv: I,
    ) -> Result<Output, LabError> {
        self.host().run_ok(argv)
    }

    /// Runs a bash script that must exit with 0; it stops at the first failing command.
    ///
    /// # Errors
    /// As [`run_ok`](Self::run_ok).
    pub fn sh(&self, script: &str) -> Result<Output, LabError> {
        self.host().sh(script)
    }

    /// The same commands inside a network namespace: a name of `ip netns`, or a path.
    pub fn in_netns<'a>(&'a self, netns: &'a str) -> InNetns<'a> {
        InNetns::new(self, Some(netns))
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
        self.running.emulator.console().to_owned()
    }

    /// Cuts the power, which no program on the node notices, and boots again. With
    /// [`Builder::disk`] its folders hold what was flushed; without, the node is as new.
    ///
    /// # Errors
    /// As [`Builder::boot`]; the node is gone then.
    pub fn power_cut_and_boot(&mut self) -> Result<(), LabError> {
        self.running.emulator.stop();
        let Some(dir) = &self.dir else { return Ok(()) };
        match self.boot.again(dir.path()) {
            Ok(running) => self.running = running,
            Err(error) => {
                self.keep_console();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Keeps the node's folder, console included, beyond the node's life.
    pub fn keep_console(&self) -> PathBuf {
        self.keep.store(true, Ordering::Relaxed);
        self.console_path()
    }

    /// The commands of the node's own namespace.
    fn host(&self) -> InNetns<'_> {
        InNetns::new(self, None)
    }

    fn request(&self, op: Op, body: &[u8]) -> Result<Vec<u8>, LabError> {
        self.running
            .client
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
        self.running.emulator.stop();
        let failed = std::thread::panicking() || self.keep.load(Ordering::Relaxed);
        if let (true, Some(dir)) = (failed, self.dir.take()) {
            eprintln!(
                "lab {}: console kept in {}",
                self.shape().name,
                dir.keep().display()
            );
        }
    }
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
