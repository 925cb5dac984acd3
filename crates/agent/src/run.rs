//! Wires the parts: one thread, and a few for blocking work.

use crate::allocator::Slots;
use crate::board::{Board, REGISTERED};
use crate::chain;
use crate::changes::Changes;
use crate::context::Context;
use crate::garbage::Collector;
use crate::http;
use crate::options::Options;
use crate::say::{tell, words};
use crate::survey::{Look, look, remembered};
use podrail_core::ids::ResourceName;
use podrail_kubelet::plugin::{self, Config, Slot, State, Status};
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// At least so often the node is looked at, whatever the kernel says, and garbage is collected.
const OFTEN: Duration = Duration::from_secs(60);
/// Between two tries of something that failed and that nothing tells of.
const AGAIN: Duration = Duration::from_secs(5);
/// How long blocking work may take to end at shutdown.
const FAREWELL: Duration = Duration::from_secs(10);

/// The agent cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no runtime or no signal handler to be had.
    #[error("cannot start the agent")]
    Start {
        /// Why.
        source: io::Error,
    },
}

impl AgentError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        "raise the limits of open files and processes"
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Guarantees
/// Whatever is missing (kubelet, directories, state file, configuration) is waited for and told at
/// `/readyz`. The kubelet is never sent an empty list. Running pods are not touched.
/// Twice at once: the newer agent serves the kubelet, the older one's files and state stay valid.
///
/// # Errors
/// [`AgentError`].
pub fn run(options: Options) -> Result<(), AgentError> {
    let start = |source| AgentError::Start { source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(start)?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let ended = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        serve(options, ended).await;
        Ok(())
    });
    runtime.shutdown_timeout(FAREWELL);
    outcome.map_err(start)
}

/// Runs until `ended` completes.
pub async fn serve(options: Options, ended: impl Future<Output = ()>) {
    let context = Context::new(options);
    context
        .board
        .update(|values| values.version = env!("CARGO_PKG_VERSION"));
    let (looks, seen) = watch::channel(None);
    let (ending, end) = watch::channel(false);
    let mut parts = JoinSet::new();
    parts.spawn(tell_the_world(context.clone()));
    parts.spawn(keep_looking(context.clone(), looks));
    parts.spawn(chain::follow(context.clone()));
    parts.spawn(keep_collecting(context.clone(), seen.clone()));
    let offering = tokio::spawn(keep_offering(context, seen, end));
    ended.await;
    tracing::info!("ending; slots, pods and files stay as they are");
    ending.send_replace(true);
    if let Err(error) = offering.await {
        tracing::error!("the device plugin ended early: {error}");
    }
    parts.shutdown().await;
}

/// Metrics and health.
async fn tell_the_world(context: Context) {
    let mut said = false;
    loop {
        let served = match http::listen(context.options.listen).await {
            Ok(listener) => http::serve(listener, context.board.clone()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served
            && !std::mem::replace(&mut said, true)
        {
            let why = words(&error, Some(error.hint()));
            tracing::warn!("no metrics for now: {why}");
        }
        sleep(AGAIN).await;
    }
}

/// Looks at the node whenever something happens to it, and every minute.
async fn keep_looking(context: Context, looks: watch::Sender<Option<Look>>) {
    let mut changes = Changes::new(&context.options.paths.state);
    let first = context.blocking(remembered).await.flatten();
    let mut publish = |look: Look| {
        looks.send_if_modified(|before| {
            let is_new = before.as_ref() != Some(&look);
            *before = Some(look);
            is_new
        });
    };
    first.into_iter().for_each(&mut publish);
    loop {
        context.board.beat("watch", 4 * OFTEN);
        changes.listen();
        let looked = context.blocking(look).await.flatten();
        let pause = if looked.is_some() { OFTEN } else { AGAIN };
        looked.into_iter().for_each(&mut publish);
        tokio::select! {
            () = changes.wait() => {}
            () = context.look_again.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// Collects garbage at start and every minute, and sooner if something was in the way.
async fn keep_collecting(context: Context, mut looks: watch::Receiver<Option<Look>>) {
    let mut collector = Collector::new(context.clone());
    loop {
        context.board.beat("garbage", 4 * OFTEN);
        let resource = timeout(OFTEN, next_resource(&mut looks)).await;
        let done = match resource {
            Ok(Some(resource)) => collector.collect(&resource).await,
            Ok(None) => return,
            Err(_) => continue,
        };
        sleep(if done { OFTEN } else { AGAIN }).await;
    }
}

/// Offers the slots to the kubelet, under the name that the configuration gives them.
async fn keep_offering(
    context: Context,
    mut looks: watch::Receiver<Option<Look>>,
    end: watch::Receiver<bool>,
) {
    let ended = |mut end: watch::Receiver<bool>| async move {
        let _sender_gone = end.wait_for(|ended| *ended).await;
    };
    while !*end.borrow() {
        let resource = tokio::select! {
            resource = next_resource(&mut looks) => resource,
            () = ended(end.clone()) => return,
        };
        let Some(resource) = resource else {
            return;
        };
        let renamed = renamed(looks.clone(), resource.clone());
        let stop = async {
            tokio::select! {
                () = ended(end.clone()) => {}
                () = renamed => {}
            }
        };
        offer(&context, resource, looks.clone(), stop).await;
    }
}

async fn next_resource(looks: &mut watch::Receiver<Option<Look>>) -> Option<ResourceName> {
    let look = looks.wait_for(Option::is_some).await.ok()?;
    look.as_ref().map(|look| look.resource.clone())
}

/// Until the configuration names another resource.
async fn renamed(mut looks: watch::Receiver<Option<Look>>, resource: ResourceName) {
    let other = |look: &Option<Look>| look.as_ref().is_some_and(|l| l.resource != resource);
    if looks.wait_for(other).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// One run of the device plugin; after a fault a pause.
async fn offer(
    context: &Context,
    resource: ResourceName,
    looks: watch::Receiver<Option<Look>>,
    stop: impl Future<Output = ()>,
) {
    let config = Config {
        directory: context.options.device_plugins.clone(),
        resource,
    };
    let (slots, offered) = watch::channel(slots_of(&looks));
    let (status, statuses) = Status::channel();
    let forward = forward(looks, slots);
    let report = report(context.board.clone(), config.resource.clone(), statuses);
    let served = plugin::run(config, Slots(context.clone()), offered, status, stop);
    tokio::select! {
        outcome = served => {
            if let Err(error) = outcome {
                tell(&context.board, REGISTERED, false, &words(&error, Some(error.hint())));
                sleep(AGAIN).await;
            }
        }
        () = forward => {}
        () = report => {}
    }
}

fn slots_of(looks: &watch::Receiver<Option<Look>>) -> Vec<Slot> {
    let look = looks.borrow();
    look.as_ref()
        .map(|look| look.slots.clone())
        .unwrap_or_default()
}

/// Passes lists on; an empty one stands for "nobody knows".
async fn forward(mut looks: watch::Receiver<Option<Look>>, slots: watch::Sender<Vec<Slot>>) {
    while looks.changed().await.is_ok() {
        let new = slots_of(&looks);
        slots.send_if_modified(|old| {
            let differs = !new.is_empty() && *old != new;
            if differs {
                *old = new;
            }
            differs
        });
    }
    std::future::pending::<()>().await;
}

/// Tells how the plugin stands with the kubelet.
async fn report(board: Board, resource: ResourceName, mut statuses: watch::Receiver<Status>) {
    let mut before = State::WaitingForSlots;
    loop {
        let status = statuses.borrow_and_update().clone();
        if status.state == State::Registered && before != State::Registered {
            board.update(|values| values.registrations += 1);
        }
        before = status.state;
        let error = status.last_error.as_deref().map(|error| words(error, None));
        let reason = match (status.state, error) {
            (State::Registered, _) => format!("the kubelet counts {resource}"),
            (_, Some(error)) => error,
            (State::WaitingForSlots, None) => "there are no slots to offer".into(),
            (State::Registering, None) => format!("registering {resource}"),
            (State::Stopped, None) => "stopped".into(),
        };
        tell(&board, REGISTERED, status.registered(), &reason);
        if statuses.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
