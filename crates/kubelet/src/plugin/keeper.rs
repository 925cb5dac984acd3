//! Keeps the plugin listening and registered, whatever the kubelet does to its directory.

use super::directory::{Change, DirectoryWatch};
use super::endpoint::{Endpoint, Standing};
use super::registration::{register, request};
use super::service::Streams;
use super::{Config, RegisterError, Slot, State, Status, pace};
use crate::proto::deviceplugin::RegisterRequest;
use std::future::{Future, pending};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep};

/// A stream that lived this long was no accident: failures are counted anew after it.
const GOOD_LIFE: Duration = Duration::from_secs(10);

/// All that is known of the registration.
pub(super) struct Keeper {
    directory: PathBuf,
    socket: PathBuf,
    request: RegisterRequest,
    watch: DirectoryWatch,
    connections: mpsc::Sender<io::Result<UnixStream>>,
    streams: watch::Receiver<Streams>,
    status: watch::Sender<Status>,
    endpoint: Option<Endpoint>,
    stage: Stage,
    failures: u32,
}

/// What is under way.
enum Stage {
    /// Nothing: until the directory or a stream changes.
    Idle,
    /// Registered since; the kubelet reads our list.
    Registered(Instant),
    /// A pause before the next try.
    Pausing(Pin<Box<Sleep>>),
    /// A try.
    Calling(Call),
}

type Call = Pin<Box<dyn Future<Output = Result<(), RegisterError>> + Send>>;

/// What a stage came to.
enum Step {
    Try,
    Done(Result<(), RegisterError>),
}

impl Stage {
    async fn step(&mut self) -> Step {
        match self {
            Self::Idle | Self::Registered(_) => pending().await,
            Self::Pausing(sleep) => {
                sleep.await;
                Step::Try
            }
            Self::Calling(call) => Step::Done(call.await),
        }
    }
}

impl Keeper {
    pub(super) fn new(
        config: &Config,
        watch: DirectoryWatch,
        connections: mpsc::Sender<io::Result<UnixStream>>,
        streams: watch::Receiver<Streams>,
        status: watch::Sender<Status>,
    ) -> Self {
        Self {
            directory: config.directory.clone(),
            socket: config.socket(),
            request: request(config),
            watch,
            connections,
            streams,
            status,
            endpoint: None,
            stage: Stage::Idle,
            failures: 0,
        }
    }

    /// Works until the directory cannot be watched any more.
    pub(super) async fn run(&mut self, mut slots: watch::Receiver<Vec<Slot>>) -> io::Error {
        if slots.wait_for(|slots| !slots.is_empty()).await.is_err() {
            // Nothing to register, and never will be.
            return pending().await;
        }
        self.status
            .send_modify(|status| status.enter(State::Registering));
        self.attempt();
        loop {
            if let Err(error) = self.next().await {
                return error;
            }
        }
    }

    async fn next(&mut self) -> io::Result<()> {
        tokio::select! {
            change = self.watch.next() => self.on_change(change?),
            step = self.stage.step() => match step {
                Step::Try => self.attempt(),
                Step::Done(Ok(())) => self.on_registered(),
                Step::Done(Err(error)) => self.on_failure(error),
            },
            () = no_stream(&mut self.streams), if self.registered() => self.on_stream_end(),
        }
        if !self.registered()
            && let Some(change) = self.watch.refresh()?
        {
            self.on_change(change);
        }
        Ok(())
    }

    /// Gives up the socket. Streams end by the server.
    pub(super) fn close(self) {
        if let Some(endpoint) = self.endpoint {
            endpoint.close();
        }
        self.status
            .send_modify(|status| status.enter(State::Stopped));
    }

    fn registered(&self) -> bool {
        matches!(self.stage, Stage::Registered(_))
    }

    /// Begins a try now, in place of what is under way.
    fn attempt(&mut self) {
        self.stage = match self.listen() {
            Ok(()) => Stage::Calling(Box::pin(register(
                self.directory.clone(),
                self.request.clone(),
                self.streams.clone(),
            ))),
            Err(error) => return self.on_failure(error),
        };
    }

    /// Makes sure that our socket stands, unless a newer plugin has its own there.
    fn listen(&mut self) -> Result<(), RegisterError> {
        match self.endpoint.as_ref().map(Endpoint::standing) {
            Some(Standing::Ours) => return Ok(()),
            Some(Standing::Replaced) => {
                let socket = self.socket.clone();
                return Err(RegisterError::Replaced { socket });
            }
            Some(Standing::Gone) | None => self.endpoint = None,
        }
        let endpoint = Endpoint::listen(&self.socket, self.connections.clone());
        self.endpoint = Some(endpoint.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => RegisterError::KubeletAbsent {
                path: self.directory.clone(),
            },
            _ => RegisterError::Listen {
                socket: self.socket.clone(),
                source,
            },
        })?);
        Ok(())
    }

    fn on_change(&mut self, change: Change) {
        if change.kubelet_came {
            self.failures = 0;
        }
        if change.kubelet_came || self.socket_is_due() {
            self.note_unregistered();
            self.attempt();
        }
    }

    /// Whether our socket should be made now. What went wrong with it waits for its pause: our own
    /// tries change the directory too.
    fn socket_is_due(&self) -> bool {
        let idle = matches!(self.stage, Stage::Idle);
        match self.endpoint.as_ref().map(Endpoint::standing) {
            Some(Standing::Ours) => false,
            Some(Standing::Gone) => true,
            Some(Standing::Replaced) => !idle,
            None => idle,
        }
    }

    fn on_registered(&mut self) {
        self.stage = Stage::Registered(Instant::now());
        self.status.send_modify(|status| {
            status.enter(State::Registered);
            status.last_error = None;
        });
    }

    fn on_stream_end(&mut self) {
        if let Stage::Registered(since) = self.stage
            && since.elapsed() >= GOOD_LIFE
        {
            self.failures = 0;
        }
        self.on_failure(RegisterError::StreamEnded);
    }

    fn on_failure(&mut self, error: RegisterError) {
        self.failures = self.failures.saturating_add(1);
        self.stage = match pace::pause(&error, self.failures) {
            Some(pause) => Stage::Pausing(Box::pin(sleep(pause))),
            None => Stage::Idle,
        };
        self.note_unregistered();
        let error = Some(Arc::new(error));
        self.status.send_modify(|status| status.last_error = error);
    }

    fn note_unregistered(&self) {
        self.status
            .send_modify(|status| status.enter(State::Registering));
    }
}

/// Waits until no stream is open.
async fn no_stream(streams: &mut watch::Receiver<Streams>) {
    if streams.wait_for(|streams| streams.open == 0).await.is_err() {
        pending().await
    }
}
