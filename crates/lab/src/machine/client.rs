//! The host's end of the agent's port: requests out, events to whoever waits for them.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::emulator::Emulator;
use crate::error::LabError;
use crate::wire::{self, BootReport, Event, Op, Request, What};

/// How often a wait for QEMU's connection looks whether QEMU has ended.
const LOOK: u16 = 50;

type Waiting = Mutex<HashMap<u64, Sender<(What, Vec<u8>)>>>;

/// A connection to one node's agent.
#[derive(Debug)]
pub(super) struct Client {
    out: Mutex<UnixStream>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    ready: Mutex<Receiver<(What, Vec<u8>)>>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum ClientFault {
    /// The agent could not carry it out.
    Refused(String),
    /// No answer in time.
    Late(Duration),
    /// The node is gone.
    Gone,
}

/// Why a node did not come up.
#[derive(Debug)]
pub(super) enum BootFault {
    /// It would happen again.
    Broken(String),
    /// Emulation stalls or the guest panics now and then under load.
    Stalled(String),
}

impl BootFault {
    fn broken(reason: impl std::fmt::Display) -> Self {
        Self::Broken(reason.to_string())
    }
}

/// Events of one request, until it is dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) id: u64,
    events: Receiver<(What, Vec<u8>)>,
}

/// The socket that QEMU will connect to.
pub(super) fn listen(path: &Path) -> Result<UnixListener, LabError> {
    let listener = UnixListener::bind(path).map_err(LabError::io("listen on", path))?;
    listener
        .set_nonblocking(true)
        .map_err(LabError::io("listen on", path))?;
    Ok(listener)
}

impl Client {
    /// Waits for QEMU to connect.
    pub(super) fn accept(
        listener: &UnixListener,
        emulator: &Emulator,
        deadline: Instant,
    ) -> Result<Self, BootFault> {
        loop {
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(LOOK));
            match listener.accept() {
                Ok((stream, _)) => return Self::over(stream).map_err(BootFault::broken),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(BootFault::broken(error)),
            }
            if emulator.has_ended() {
                return Err(BootFault::broken("QEMU ended at once"));
            }
            if Instant::now() >= deadline {
                return Err(BootFault::Stalled("QEMU did not connect".into()));
            }
        }
    }

    fn over(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(false)?;
        let mut input = stream.try_clone()?;
        let (ready_to, ready) = channel();
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(HashMap::from([(0, ready_to)])));
        let listeners = Arc::clone(&waiting);
        thread::spawn(move || {
            while let Ok(Some((Event { id, what }, body))) = wire::receive(&mut input) {
                if let Some(listener) = lock(&listeners).get(&id) {
                    // Whoever asked may have given up.
                    drop(listener.send((what, body)));
                }
            }
            // Everybody still waiting learns that no answer will come.
            lock(&listeners).clear();
        });
        Ok(Self {
            out: Mutex::new(stream),
            waiting,
            next: AtomicU64::new(1),
            ready: Mutex::new(ready),
        })
    }

    /// Waits for the agent's first word.
    pub(super) fn wait_ready(&self, deadline: Instant) -> Result<BootReport, BootFault> {
        let left = deadline.saturating_duration_since(Instant::now());
        match lock(&self.ready).recv_timeout(left) {
            Ok((What::Ready(report), _)) => Ok(report),
            Ok((What::Failed { message }, _)) => Err(BootFault::Broken(message)),
            Ok((other, _)) => Err(BootFault::Broken(format!("the agent began with {other:?}"))),
            Err(error) => Err(BootFault::Stalled(match error {
                RecvTimeoutError::Timeout => "it was not ready in time".into(),
                RecvTimeoutError::Disconnected => "QEMU ended while it booted".into(),
            })),
        }
    }

    /// Opens a conversation with a request.
    pub(super) fn open(&self, op: Op, body: &[u8]) -> Result<Conversation, ClientFault> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = channel();
        lock(&self.waiting).insert(id, sender);
        self.say(id, op, body)?;
        Ok(Conversation { id, events })
    }

    /// Says more under an open conversation's id.
    pub(super) fn say(&self, id: u64, op: Op, body: &[u8]) -> Result<(), ClientFault> {
        wire::send(&mut *lock(&self.out), &Request { id, op }, body).map_err(|_| ClientFault::Gone)
    }

    /// Forgets a conversation.
    pub(super) fn close(&self, id: u64) {
        lock(&self.waiting).remove(&id);
    }

    /// A request with one answer.
    pub(super) fn ask(&self, op: Op, body: &[u8], limit: Duration) -> Result<Vec<u8>, ClientFault> {
        let conversation = self.open(op, body)?;
        let answer = conversation.next(Instant::now() + limit, limit);
        self.close(conversation.id);
        match answer? {
            (What::Failed { message }, _) => Err(ClientFault::Refused(message)),
            (_, body) => Ok(body),
        }
    }
}

impl Conversation {
    /// The next event; `limit` is what the error says.
    pub(super) fn next(
        &self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(What, Vec<u8>), ClientFault> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => ClientFault::Late(limit),
            RecvTimeoutError::Disconnected => ClientFault::Gone,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
