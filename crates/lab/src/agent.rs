//! The program in the guest: PID 1, the agent behind the virtio-serial port, and `modprobe`.
//!
//! PID 1 mounts, starts the agent and reaps orphans; the agent sets the node up as the plan says
//! and then serves requests. One binary, so one file to put into the initramfs.

mod boot;
mod disk;
mod modules;
mod mounts;
mod process;
mod serve;

use std::io;
use std::process::{Command, ExitCode};

use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

/// Where the agent lies in the guest.
pub(crate) const AGENT_PATH: &str = "usr/sbin/podrail-lab-agent";
/// What the kernel runs to load a module by name or alias.
pub(crate) const MODPROBE_PATH: &str = "usr/sbin/modprobe";

/// A step of the agent that failed, for the console and the host.
#[derive(Debug)]
struct Trouble(String);

impl Trouble {
    /// Names the step in front of the system's answer.
    fn at<E: std::fmt::Display>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |error| Self(format!("{step}: {error}"))
    }
}

/// The program's entry: what it does follows from its name and process id.
pub fn main() -> ExitCode {
    let mut words = std::env::args();
    let name = words.next().unwrap_or_default();
    let outcome = if name.ends_with("modprobe") {
        // The kernel calls `modprobe -q -- NAME`; a person may leave the flags out.
        let names: Vec<String> = words.filter(|word| !word.starts_with('-')).collect();
        modprobe(&names)
    } else if getpid() == Pid::from_raw(1) {
        first_process()
    } else {
        serve::serve()
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble(message)) => {
            eprintln!("podrail-lab-agent: {message}");
            ExitCode::FAILURE
        }
    }
}

fn modprobe(names: &[String]) -> Result<(), Trouble> {
    let loader = modules::Loader::open()?;
    names.iter().try_for_each(|name| loader.load(name))
}

/// Starts the agent and reaps whatever is left to PID 1; the node ends with the agent.
fn first_process() -> Result<(), Trouble> {
    mounts::mount_all()?;
    let agent = Command::new(format!("/{AGENT_PATH}"))
        .env_clear()
        .envs([
            ("PATH", "/usr/sbin:/usr/bin"),
            ("HOME", "/root"),
            ("TERM", "linux"),
        ])
        .spawn()
        .map_err(Trouble::at("start the agent"))?;
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _))
                if u32::try_from(pid.as_raw()) == Ok(agent.id()) =>
            {
                eprintln!("podrail-lab-agent: the agent ended, powering off");
                break;
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(Trouble(format!("wait: {error}"))),
        }
    }
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(error) => Err(Trouble(format!("power off: {error}"))),
    }
}

/// Milliseconds since the guest's kernel started.
fn uptime_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0);
    std::time::Duration::try_from_secs_f64(seconds).map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The error of a system call, kept as text for the host.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}
