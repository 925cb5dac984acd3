//! Answers the host's requests, many at a time.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::modules::Loader;
use super::{Trouble, boot, process};
use crate::wire::{self, Event, Op, Request, Start, What};

/// The way back to the host, shared by all threads, and what runs.
#[derive(Clone)]
pub(super) struct Port {
    out: Arc<Mutex<File>>,
    running: Arc<Mutex<HashMap<u64, Running>>>,
}

/// A process of the host's: where its input goes and what its signals reach.
#[derive(Default)]
struct Running {
    input: Option<Sender<Vec<u8>>>,
    pid: Option<i32>,
}

impl Port {
    pub(super) fn send(&self, id: u64, what: What, body: &[u8]) {
        let event = Event { id, what };
        if let Err(error) = wire::send(&mut *lock(&self.out), &event, body) {
            eprintln!("podrail-lab-agent: send: {error}");
        }
    }

    pub(super) fn started(&self, id: u64, pid: u32) {
        let pid = i32::try_from(pid).unwrap_or(0);
        if let Some(running) = lock(&self.running).get_mut(&id) {
            running.pid = Some(pid);
        }
        self.send(id, What::Started { pid }, &[]);
    }

    fn start(&self, id: u64, start: Start, first_input: Vec<u8>) {
        let (input, fed) = channel();
        drop(input.send(first_input));
        let input = start.keep_stdin.then_some(input);
        lock(&self.running).insert(id, Running { input, pid: None });
        let port = self.clone();
        thread::spawn(move || {
            let outcome = process::run(&port, id, &start, fed);
            lock(&port.running).remove(&id);
            match outcome {
                Ok(status) => port.send(id, What::Exited(status), &[]),
                Err(Trouble(message)) => port.send(id, What::Failed { message }, &[]),
            }
        });
    }

    fn input(&self, id: u64, eof: bool, bytes: Vec<u8>) {
        if let Some(running) = lock(&self.running).get_mut(&id) {
            if let Some(input) = &running.input {
                drop(input.send(bytes));
            }
            if eof {
                running.input = None;
            }
        }
    }

    fn kill(&self, id: u64, signal: i32) -> Result<(), Trouble> {
        let signal = Signal::try_from(signal).map_err(Trouble::at("signal"))?;
        match lock(&self.running).get(&id).and_then(|running| running.pid) {
            Some(pid) => killpg(Pid::from_raw(pid), signal).map_err(Trouble::at("kill")),
            // It ended by itself, which is what was wanted.
            None => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the node up, says so, and serves until the host closes the port.
pub(super) fn serve() -> Result<(), Trouble> {
    let loader = Loader::open()?;
    let mut requests = boot::open_port(&loader)?;
    let out = requests.try_clone().map_err(Trouble::at("open the port"))?;
    let port = Port {
        out: Arc::new(Mutex::new(out)),
        running: Arc::default(),
    };
    match boot::set_up(&loader) {
        Ok(report) => port.send(0, What::Ready(report), &[]),
        Err(Trouble(message)) => {
            port.send(
                0,
                What::Failed {
                    message: message.clone(),
                },
                &[],
            );
            return Err(Trouble(message));
        }
    }
    while let Some((Request { id, op }, body)) =
        wire::receive(&mut requests).map_err(Trouble::at("receive"))?
    {
        answer(&port, &loader, id, op, body);
    }
    Ok(())
}

fn answer(port: &Port, loader: &Loader, id: u64, op: Op, body: Vec<u8>) {
    let outcome = match op {
        Op::Start(start) => return port.start(id, start, body),
        Op::Stdin { eof } => return port.input(id, eof, body),
        Op::Kill { signal } => return drop(port.kill(id, signal)),
        Op::Write { path, mode } => write_file(&path, mode, &body).map(|()| Vec::new()),
        Op::Read { path } => fs::read(&path).map_err(Trouble::at(format!("read {path}"))),
        Op::LoadModule { name } => loader.load(&name).map(|()| Vec::new()),
    };
    match outcome {
        Ok(body) => port.send(id, What::Done, &body),
        Err(Trouble(message)) => port.send(id, What::Failed { message }, &[]),
    }
}

fn write_file(path: &str, mode: u32, bytes: &[u8]) -> Result<(), Trouble> {
    let step = || Trouble::at(format!("write {path}"));
    if let Some(parent) = Path::new(path).parent() {
        fs::create_dir_all(parent).map_err(step())?;
    }
    fs::write(path, bytes).map_err(step())?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(step())
}
