//! Commands in the guest: one at a time, in the background, in a network namespace.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::Lab;
use super::client::{ClientFault, Conversation};
use crate::error::LabError;
use crate::wire::{Op, Start, Status, What, Window};

/// How long a command may take unless it says otherwise.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// `SIGKILL`.
const KILL: i32 = 9;

/// A command, not yet started.
#[derive(Debug, Clone)]
#[must_use = "a command does nothing until it is run or spawned"]
pub struct Cmd<'a> {
    lab: &'a Lab,
    start: Start,
    input: Vec<u8>,
    limit: Duration,
}

/// How a command ended and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: Status,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Where a command printed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Rows and columns for a command with a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// The commands of a [`Lab`], inside a network namespace or in the node's own.
#[derive(Debug, Clone, Copy)]
pub struct InNetns<'a> {
    lab: &'a Lab,
    netns: Option<&'a str>,
}

/// A command that runs in the background. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process<'a> {
    lab: &'a Lab,
    command: String,
    conversation: Conversation,
    limit: Duration,
    pid: i32,
    printed: Output,
    ended: bool,
}

/// The argument vector of a script: it stops at the first failing command, of a pipe too.
pub(super) fn script(text: &str) -> Vec<String> {
    ["bash", "-euo", "pipefail", "-c", text]
        .map(String::from)
        .into()
}

impl<'a> Cmd<'a> {
    fn new(lab: &'a Lab, argv: Vec<String>) -> Self {
        let start = Start {
            argv,
            ..Start::default()
        };
        Self {
            lab,
            start,
            input: Vec::new(),
            limit: LIMIT,
        }
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.start.env.push((key.into(), value.into()));
        self
    }

    /// Runs in this directory instead of `/root`.
    pub fn cwd(mut self, dir: &str) -> Self {
        self.start.cwd = Some(dir.into());
        self
    }

    /// Runs in a network namespace: a name of `ip netns`, or a path. `/sys` shows that namespace.
    pub fn netns(mut self, netns: &str) -> Self {
        self.start.netns = Some(netns.into());
        self
    }

    /// Gives it this standard input; otherwise it is empty.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Allows it this long.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Gives it a terminal instead of pipes; standard error then comes with standard output.
    pub fn terminal(mut self, size: TerminalSize) -> Self {
        self.start.terminal = Some(Window {
            rows: size.rows,
            columns: size.columns,
        });
        self
    }

    /// Keeps standard input open for [`Process::send`].
    pub fn keep_stdin(mut self) -> Self {
        self.start.keep_stdin = true;
        self
    }

    /// Runs it to its end; a failing one is an output, not an error.
    ///
    /// # Errors
    /// It cannot be started, does not end in time (it is killed then), or the node is gone.
    pub fn run(self) -> Result<Output, LabError> {
        self.spawn()?.wait()
    }

    /// Runs it; it must exit with 0.
    ///
    /// # Errors
    /// As [`run`](Self::run), and any other exit.
    pub fn run_ok(self) -> Result<Output, LabError> {
        let command = self.start.argv.join(" ");
        let output = self.run()?;
        if output.status.success() {
            return Ok(output);
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(LabError::Command {
            command,
            status: output.status,
            stderr,
        })
    }

    /// Starts it and returns once it runs.
    ///
    /// # Errors
    /// It cannot be started, or the node is gone.
    pub fn spawn(self) -> Result<Process<'a>, LabError> {
        let Self {
            lab,
            start,
            input,
            limit,
        } = self;
        let command = start.argv.join(" ");
        let explain = |fault| lab.explain(fault, &command);
        let conversation = lab
            .running
            .client
            .open(Op::Start(start), &input)
            .map_err(explain)?;
        let pid = match conversation
            .next(Instant::now() + LIMIT, LIMIT)
            .map_err(explain)?
        {
            (What::Started { pid }, _) => pid,
            (What::Failed { message }, _) => return Err(explain(ClientFault::Refused(message))),
            (other, _) => return Err(explain(ClientFault::Refused(format!("said {other:?}")))),
        };
        let printed = Output {
            status: Status::Signal(0),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        Ok(Process {
            lab,
            command,
            conversation,
            limit,
            pid,
            printed,
            ended: false,
        })
    }
}

impl<'a> InNetns<'a> {
    pub(super) fn new(lab: &'a Lab, netns: Option<&'a str>) -> Self {
        Self { lab, netns }
    }

    /// As [`Lab::cmd`].
    pub fn cmd<I: IntoIterator<Item = S>, S: Into<String>>(&self, argv: I) -> Cmd<'a> {
        let cmd = Cmd::new(self.lab, argv.into_iter().map(Into::into).collect());
        match self.netns {
            Some(netns) => cmd.netns(netns),
            None => cmd,
        }
    }

    /// As [`Lab::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run<I: IntoIterator<Item = S>, S: Into<String>>(
        &self,
        argv: I,
    ) -> Result<Output, LabError> {
        self.cmd(argv).run()
    }

    /// As [`Lab::run_ok`].
    ///
    /// # Errors
    /// As there.
    pub fn run_ok<I: IntoIterator<Item = S>, S: Into<String>>(
        &self,
        argv: I,
    ) -> Result<Output, LabError> {
        self.cmd(argv).run_ok()
    }

    /// As [`Lab::sh`].
    ///
    /// # Errors
    /// As there.
    pub fn sh(&self, text: &str) -> Result<Output, LabError> {
        self.cmd(script(text)).run_ok()
    }
}

impl Output {
    /// Standard output as text, without the space around it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }

    /// Standard output as JSON, for `ip -j` and `rdma -j`.
    ///
    /// # Errors
    /// It is not, or not of that type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, LabError> {
        serde_json::from_slice(&self.stdout).map_err(LabError::Json)
    }
}

impl Process<'_> {
    /// Its process id in the guest, also that of its process group.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its id in the conversation with the agent, for `Lab::send_input`.
    pub(crate) fn id(&self) -> u64 {
        self.conversation.id
    }

    /// Sends standard input (with [`Cmd::keep_stdin`]).
    ///
    /// # Errors
    /// The node is gone.
    pub fn send(&self, bytes: &[u8]) -> Result<(), LabError> {
        self.lab.send_input(self.id(), bytes, false)
    }

    /// Sends a signal to its process group.
    ///
    /// # Errors
    /// The node is gone.
    pub fn signal(&self, signal: i32) -> Result<(), LabError> {
        let said = self
            .lab
            .running
            .client
            .say(self.conversation.id, Op::Kill { signal }, &[]);
        said.map_err(|fault| self.lab.explain(fault, &self.command))
    }

    /// Waits until its standard output contains a text: a server's "listening".
    ///
    /// # Errors
    /// It ends first, or the limit passes.
    pub fn wait_for_output(&mut self, text: &str) -> Result<(), LabError> {
        let deadline = Instant::now() + self.limit;
        loop {
            if self.printed.text().contains(text) {
                return Ok(());
            }
            if let Some(output) = self.step(deadline, &mut |_, _| {})? {
                let (command, stderr) = (self.command.clone(), output.stderr_text());
                return Err(LabError::Command {
                    command,
                    status: output.status,
                    stderr,
                });
            }
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in time, or the node is gone.
    pub fn wait(self) -> Result<Output, LabError> {
        self.wait_seeing(&mut |_, _| {})
    }

    /// Waits for its end and hands over its output as it comes.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_seeing(mut self, see: &mut dyn FnMut(Stream, &[u8])) -> Result<Output, LabError> {
        let deadline = Instant::now() + self.limit;
        loop {
            if let Some(output) = self.step(deadline, see)? {
                return Ok(output);
            }
        }
    }

    /// Takes in one event; the whole output when it was the last.
    fn step(
        &mut self,
        deadline: Instant,
        see: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Option<Output>, LabError> {
        let event = self.conversation.next(deadline, self.limit);
        let (what, body) = event.map_err(|fault| self.lab.explain(fault, &self.command))?;
        let printed = &mut self.printed;
        match what {
            What::Stdout => {
                see(Stream::Stdout, &body);
                printed.stdout.extend(body);
            }
            What::Stderr => {
                see(Stream::Stderr, &body);
                printed.stderr.extend(body);
            }
            What::Exited(status) => {
                self.ended = true;
                printed.status = status;
                return Ok(Some(printed.clone()));
            }
            What::Failed { message } => {
                self.ended = true;
                return Err(self
                    .lab
                    .explain(ClientFault::Refused(message), &self.command));
            }
            What::Started { .. } | What::Ready(_) | What::Done => {}
        }
        Ok(None)
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.signal(KILL));
        }
        self.lab.running.client.close(self.conversation.id);
    }
}

impl Lab {
    /// More standard input for a process, from any thread.
    pub(crate) fn send_input(&self, id: u64, bytes: &[u8], eof: bool) -> Result<(), LabError> {
        let said = self.running.client.say(id, Op::Stdin { eof }, bytes);
        said.map_err(|fault| self.explain(fault, "standard input"))
    }
}
