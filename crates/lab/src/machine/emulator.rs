//! The QEMU process: started so that it cannot outlive the test, ended with its group.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::LabError;

/// SIGKILL needs no longer.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A running QEMU.
#[derive(Debug)]
pub(super) struct Emulator {
    group: Pid,
    ended: Arc<Ended>,
    console: PathBuf,
    log: PathBuf,
}

#[derive(Debug, Default)]
struct Ended {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl Emulator {
    /// Starts QEMU in a process group of its own.
    ///
    /// The kernel's parent-death signal goes out when the *thread* that forked ends, and test
    /// threads are short: a thread of its own forks, then waits for QEMU. `setpriv` sets the
    /// signal, since std offers no safe way between fork and exec.
    pub(super) fn start(
        arguments: Vec<String>,
        dir: &Path,
        console: &Path,
    ) -> Result<Self, LabError> {
        let log = dir.join("qemu.log");
        let log_file = File::create(&log).map_err(LabError::io("create", &log))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file)
            .process_group(0);
        let ended = Arc::new(Ended::default());
        let (tell, told) = channel();
        let keeper = Arc::clone(&ended);
        thread::spawn(move || {
            let child = command.spawn();
            let pid = child.as_ref().map(std::process::Child::id);
            drop(tell.send(pid.map_err(|error| std::io::Error::from(error.kind()))));
            if let Ok(mut child) = child {
                drop(child.wait());
            }
            keeper.set();
        });
        let pid = told
            .recv()
            .unwrap_or_else(|gone| Err(std::io::Error::other(gone)));
        let pid = pid.map_err(LabError::io("run", "setpriv"))?;
        let group = Pid::from_raw(i32::try_from(pid).unwrap_or_default());
        Ok(Self {
            group,
            ended,
            console: console.into(),
            log,
        })
    }

    pub(super) fn console(&self) -> &Path {
        &self.console
    }

    /// Whether QEMU has ended.
    pub(super) fn has_ended(&self) -> bool {
        *self
            .ended
            .flag
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What QEMU itself had to say, without its remark on NICs that have no wire.
    pub(super) fn complaint(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines()
            .filter(|line| !line.contains("has no peer"))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Kills the group and sees it end.
    pub(super) fn stop(&self) {
        if self.group.as_raw() > 1 && !self.has_ended() {
            let _ = killpg(self.group, Signal::SIGKILL);
            self.ended.wait(END_LIMIT);
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Ended {
    fn set(&self) {
        *self.flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self, limit: Duration) {
        let flag = self.flag.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.changed
                .wait_timeout_while(flag, limit, |ended| !*ended),
        );
    }
}
