//! containerd on a node: started, restarted, killed; its log.

use std::time::Duration;

use super::{Lab, TAIL_LINES, command, last_lines};
use crate::error::LabError;

/// Under emulation and load containerd and two imports take half a minute.
const LIMIT: Duration = Duration::from_secs(180);
const SCRIPT: &str = include_str!("containerd.sh");
const LOG: &str = "/var/log/containerd.log";

/// containerd on a node that was booted with [`Builder::containerd`](super::Builder::containerd).
///
/// It runs by itself: dropping this stops nothing, and another one is the same containerd.
#[derive(Debug, Clone, Copy)]
pub struct Containerd<'a> {
    lab: &'a Lab,
}

impl Containerd<'_> {
    /// Where it serves its own API and the CRI, in the guest.
    pub const SOCKET: &'static str = "/run/containerd/containerd.sock";
    /// The pods' image: bash, busybox, iproute2, ping, the tools of libibverbs, `ib_write_bw`,
    /// setpriv; users root, user (1000) and nobody.
    pub const IMAGE: &'static str = "localhost/rdma:1";

    /// Starts it and waits until the CRI answers and the images are there. What the node of a cluster
    /// has is set up before: cgroups, and with the first start the images.
    ///
    /// # Guarantees
    /// Running already is fine. Pods of a containerd before this one are found again.
    ///
    /// # Errors
    /// The node was booted without containerd; it ends, or is not ready in time: its last lines.
    pub fn start(self) -> Result<(), LabError> {
        self.run("start")
    }

    /// Ends it (`SIGTERM`) and starts it again. Pods run on.
    ///
    /// # Errors
    /// As [`start`](Self::start), or it does not end.
    pub fn restart(self) -> Result<(), LabError> {
        self.run("stop TERM; start")
    }

    /// Kills it (`SIGKILL`) and sees it end. Pods run on.
    ///
    /// # Errors
    /// The node is gone.
    pub fn kill(self) -> Result<(), LabError> {
        self.run("stop KILL")
    }

    /// All it has logged, over restarts.
    ///
    /// # Errors
    /// It was never started, or the node is gone.
    pub fn log(self) -> Result<String, LabError> {
        let log = self.lab.read_file(LOG)?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    fn run(self, what: &str) -> Result<(), LabError> {
        let text = format!("LOG={LOG} SOCKET={}\n{SCRIPT}\n{what}", Self::SOCKET);
        let command = self.lab.cmd(command::script(&text)).timeout(LIMIT);
        let output = command.run()?;
        if output.status.success() {
            return Ok(());
        }
        Err(LabError::Command {
            command: format!("containerd: {what}"),
            status: output.status,
            stderr: last_lines(&output.stderr_text(), TAIL_LINES + 1),
        })
    }
}

impl Lab {
    /// containerd on this node, started or not.
    pub fn containerd(&self) -> Containerd<'_> {
        Containerd { lab: self }
    }
}
