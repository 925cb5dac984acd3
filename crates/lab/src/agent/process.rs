//! Runs one process for the host: namespace, pipes or terminal, exit.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::pty::{Winsize, openpty};
use nix::sched::{CloneFlags, setns, unshare};

use super::Trouble;
use super::serve::Port;
use crate::wire::{Start, Status, What, Window};

/// How long output is waited for after the process ended: something it left running may hold the
/// pipe open for ever.
const GRACE: Duration = Duration::from_millis(500);

/// Runs it to its end on the calling thread, which must be its own: entering a namespace cannot be
/// taken back. `input` carries standard input until its sender is dropped.
pub(super) fn run(
    port: &Port,
    id: u64,
    start: &Start,
    input: Receiver<Vec<u8>>,
) -> Result<Status, Trouble> {
    if let Some(netns) = &start.netns {
        enter(netns).map_err(Trouble::at(format!("enter network namespace {netns}")))?;
    }
    let mut command = command(start)?;
    let (done, all_done) = channel();
    let way = Way {
        port: port.clone(),
        id,
        done,
    };
    let (mut child, pumps) = match start.terminal {
        Some(window) => on_terminal(command, window, &way, input)?,
        None => {
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let child = command
                .process_group(0)
                .spawn()
                .map_err(spawn_trouble(start))?;
            on_pipes(child, &way, input)
        }
    };
    drop(way);
    port.started(id, child.id());
    let status = child.wait().map_err(Trouble::at("wait"))?;
    let deadline = Instant::now() + GRACE;
    for _ in 0..pumps {
        let left = deadline.saturating_duration_since(Instant::now());
        if all_done.recv_timeout(left).is_err() {
            break;
        }
    }
    Ok(status_of(status))
}

fn command(start: &Start) -> Result<Command, Trouble> {
    let (program, arguments) = start
        .argv
        .split_first()
        .ok_or_else(|| Trouble("an empty command".into()))?;
    // A session leader with the terminal as its own: std has no safe call for it.
    let mut command = match start.terminal {
        Some(_) => {
            let mut setsid = Command::new("setsid");
            setsid.args(["--ctty", program]);
            setsid
        }
        None => Command::new(program),
    };
    command
        .args(arguments)
        .envs(start.env.iter().map(|(key, value)| (key, value)));
    command.current_dir(start.cwd.as_deref().unwrap_or("/root"));
    Ok(command)
}

fn spawn_trouble(start: &Start) -> impl FnOnce(io::Error) -> Trouble {
    Trouble::at(format!(
        "start {}",
        start.argv.first().map_or("", String::as_str)
    ))
}

fn on_pipes(mut child: Child, way: &Way, input: Receiver<Vec<u8>>) -> (Child, usize) {
    if let Some(stdin) = child.stdin.take() {
        feed(stdin, input);
    }
    let mut pumps = 0;
    if let Some(stdout) = child.stdout.take() {
        way.pump(stdout, What::Stdout);
        pumps += 1;
    }
    if let Some(stderr) = child.stderr.take() {
        way.pump(stderr, What::Stderr);
        pumps += 1;
    }
    (child, pumps)
}

fn on_terminal(
    mut command: Command,
    window: Window,
    way: &Way,
    input: Receiver<Vec<u8>>,
) -> Result<(Child, usize), Trouble> {
    let size = Winsize {
        ws_row: window.rows,
        ws_col: window.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pair = openpty(&size, None).map_err(Trouble::at("open a terminal"))?;
    let end = |fd: &OwnedFd| fd.try_clone().map_err(Trouble::at("open a terminal"));
    command
        .stdin(end(&pair.slave)?)
        .stdout(end(&pair.slave)?)
        .stderr(pair.slave);
    let child = command.spawn().map_err(Trouble::at("start setsid"))?;
    // The command holds copies of the terminal; the last one must go for the reader to see an end.
    drop(command);
    feed(File::from(end(&pair.master)?), input);
    way.pump(File::from(pair.master), What::Stdout);
    Ok((child, 1))
}

/// Copies standard input until the host closes it or the process does.
fn feed(mut to: impl Write + Send + 'static, input: Receiver<Vec<u8>>) {
    thread::spawn(move || {
        while let Ok(bytes) = input.recv() {
            if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
                break;
            }
        }
    });
}

/// Where a process's output goes, and who is told when it ends.
struct Way {
    port: Port,
    id: u64,
    done: Sender<()>,
}

impl Way {
    /// Copies output to the host until it ends; a terminal ends with an error (EIO).
    fn pump(&self, mut from: impl Read + Send + 'static, what: What) {
        let (port, id, done) = (self.port.clone(), self.id, self.done.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        port.send(id, what.clone(), buffer.get(..count).unwrap_or_default());
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = done.send(());
        });
    }
}

fn status_of(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, signal) => Status::Signal(signal.unwrap_or(0)),
    }
}

/// As `ip netns exec` does it: `/sys` shows the network of the namespace it was mounted in, so it is
/// mounted again in a mount namespace of its own.
fn enter(netns: &str) -> io::Result<()> {
    let path = if netns.contains('/') {
        netns.to_owned()
    } else {
        format!("/run/netns/{netns}")
    };
    setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
    umount2("/sys", MntFlags::MNT_DETACH)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
    Ok(())
}
