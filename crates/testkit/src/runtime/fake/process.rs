//! The processes of a fake container: the host's programs, in the sandbox's network namespace.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// What is run.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) command: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) netns: Option<PathBuf>,
}

impl Program {
    /// Program and arguments, with the step into the namespace before.
    pub(super) fn line(&self) -> Vec<String> {
        let enter = self.netns.as_ref().map(|path| {
            [
                "nsenter".to_owned(),
                format!("--net={}", path.display()),
                "--".to_owned(),
            ]
        });
        enter
            .into_iter()
            .flatten()
            .chain(self.command.clone())
            .collect()
    }

    /// Starts it; its output goes to the log.
    pub(super) fn start(&self, log: &Path) -> std::io::Result<Child> {
        let mut line = self.line().into_iter();
        let mut child = Command::new(line.next().unwrap_or_default())
            .args(line)
            .env_clear()
            .envs(&self.env)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(output) = child.stdout.take() {
            copy(output, "stdout", log);
        }
        if let Some(output) = child.stderr.take() {
            copy(output, "stderr", log);
        }
        Ok(child)
    }
}

/// Lines as runtimes write them: `time stream tag text`.
fn copy(from: impl Read + Send + 'static, stream: &'static str, log: &Path) {
    let log = log.to_owned();
    std::thread::spawn(move || {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log);
        let Ok(mut file) = file else { return };
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // A full disk loses lines of a log, nothing else.
            let _ = writeln!(file, "{} {stream} F {line}", crate::state::seconds_now());
        }
    });
}

/// Sends a signal to a process and its children.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may have ended meanwhile.
        let _ = killpg(Pid::from_raw(pid), signal);
    }
}

/// As runtimes say it: 128 and the signal.
pub(super) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255)
}
