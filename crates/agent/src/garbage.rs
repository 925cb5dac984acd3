//! Takes away what nobody owns: bindings of namespaces that are gone, CDI files, marks. Only what is
//! certain.

use crate::context::Context;
use crate::metrics::GarbageCounts;
use crate::say::words;
use crate::stale::{Kubelet, Marks, SETTLED, Stale, stale, stuck};
use podrail_attach::cdi::CdiFileError;
use podrail_core::ids::{ResourceName, SlotId};
use podrail_kubelet::checkpoint::{self, CheckpointError};
use podrail_kubelet::podresources::{PodResources, PodResourcesError};
use podrail_node::{
    CdiFiles, Deadline, Markers, NodeError, Orphans, Sight, collect_garbage, forget_pod,
    forget_slots, now, open_state, remove_orphans, repair,
};
use podrail_store::{Store, StoreError, Waiting};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the kubelet may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the locks of a sandbox that is gone may be waited for.
const LOCKS: Duration = Duration::from_secs(5);

/// A step that has to be tried again later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GarbageError {
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Cdi(#[from] CdiFileError),
    #[error(transparent)]
    PodResources(#[from] PodResourcesError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl GarbageError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Node(error) => error.hint(),
            Self::Store(error) => Some(error.hint()),
            Self::Cdi(error) => error.hint().map(str::to_owned),
            Self::PodResources(error) => Some(error.hint().to_owned()),
            Self::Checkpoint(error) => Some(error.hint().to_owned()),
        }
    }
}

/// Collects, again and again.
#[derive(Debug)]
pub(crate) struct Collector {
    context: Context,
    sight: Sight,
    /// Rows may be of an earlier boot, whose pods are only coming back.
    started: Instant,
    /// Slots that wait for long, each with its row: told once.
    told: BTreeSet<(SlotId, Waiting)>,
    /// What went wrong the last time, to be logged once.
    failed: Option<String>,
}

impl Collector {
    pub(crate) fn new(context: Context) -> Self {
        Self {
            context,
            sight: Sight::find_out(),
            started: Instant::now(),
            told: BTreeSet::new(),
            failed: None,
        }
    }

    /// One round; whether all could be done. What cannot be done now is done in a later one.
    pub(crate) async fn collect(&mut self, resource: &ResourceName) -> bool {
        let outcome = match self.of_sandboxes().await {
            Ok(()) => self.of_marks(resource).await,
            failed => failed,
        };
        let failed = outcome
            .err()
            .map(|error| words(&error, error.hint().as_deref()));
        if let Some(text) = &failed
            && self.failed != failed
        {
            tracing::warn!("garbage is collected later: {text}");
        }
        self.failed = failed;
        self.failed.is_none()
    }

    /// Bindings of namespaces that are gone, and CDI files.
    async fn of_sandboxes(&self) -> Result<(), GarbageError> {
        let sight = self.sight.clone();
        let work = move |context: &Context| sandboxes(context, &sight);
        self.context.blocking(work).await.unwrap_or(Ok(()))
    }

    /// Marks of slots and pods: the marks are read first, then the kubelet is asked, then what is
    /// certain is taken away.
    async fn of_marks(&mut self, resource: &ResourceName) -> Result<(), GarbageError> {
        let read = self.context.blocking(marks).await;
        let marks = read.unwrap_or_else(|| Ok(Marks::default()))?;
        if marks == Marks::default() {
            return Ok(());
        }
        let kubelet = self.ask(resource).await?;
        self.tell_stuck(&marks, &kubelet);
        let found = stale(&marks, &kubelet, now());
        let work = move |context: &Context| forget(context, &found);
        self.context.blocking(work).await.unwrap_or(Ok(()))
    }

    async fn ask(&self, resource: &ResourceName) -> Result<Kubelet, GarbageError> {
        let paths = &self.context.options.paths;
        let client = PodResources::new(&paths.pod_resources);
        let listed = client.list(Instant::now() + PATIENCE).await?;
        let read = self
            .context
            .blocking(|context| checkpoint::read(&context.options.paths.checkpoint));
        let checkpoint = read.await.unwrap_or_else(|| Ok(vec![]))?;
        Ok(Kubelet::new(&listed, &checkpoint, resource))
    }

    fn tell_stuck(&mut self, marks: &Marks, kubelet: &Kubelet) {
        if self.started.elapsed() < SETTLED {
            return;
        }
        let stuck = stuck(marks, kubelet, now());
        let still = |(slot, row): &(SlotId, Waiting)| marks.waiting.get(slot) == Some(row);
        self.told.retain(still);
        for (slot, row, pod) in stuck {
            if self.told.insert((slot, row)) {
                tracing::warn!(
                    "{slot} of pod {pod} has waited for a minute to be bound, so its container \
                     cannot start: a pod with hostNetwork has no CNI ADD and gets no rails; else \
                     see whether /readyz says 'chained' and what the pod's events say"
                );
            }
        }
    }
}

fn sandboxes(context: &Context, sight: &Sight) -> Result<(), GarbageError> {
    let paths = &context.options.paths;
    let mut files = CdiFiles::of_others(&paths.cdi);
    let until = Deadline::within(LOCKS);
    let found = collect_garbage(&paths.state, sight, &mut files, until)?;
    found.notes.iter().for_each(|note| tracing::info!("{note}"));
    for binding in &found.released {
        let sandbox = &binding.request.sandbox;
        tracing::info!("{sandbox}: its network namespace is gone: rails and addresses are free");
    }
    let orphans = remove_orphans(&paths.cdi, || {
        Ok::<_, GarbageError>(Store::open_read_only(&paths.state)?.list().to_vec())
    })?;
    let bindings = found.released.len().try_into().unwrap_or(u64::MAX);
    context.count(GarbageCounts {
        bindings,
        cdi: tell_orphans(&orphans),
        markers: 0,
    });
    match found.failed.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// How many files there were.
fn tell_orphans(orphans: &Orphans) -> u64 {
    for slot in &orphans.slots {
        tracing::info!("{slot}: removed its CDI file, which nobody owned");
    }
    let count = orphans.slots.len().saturating_add(orphans.temporary);
    count.try_into().unwrap_or(u64::MAX)
}

/// What the state file and the markers say; they are brought in line on the way, while no slot is
/// being allocated.
fn marks(context: &Context) -> Result<Marks, GarbageError> {
    let path = &context.options.paths.state;
    let markers = Markers::beside(path)?;
    let marked_pods = markers.pods()?;
    let state = open_state(path)?;
    {
        let _alone = context.allocating();
        repair(&state.store, &markers)?;
    }
    let mut pods: std::collections::BTreeMap<_, _> =
        marked_pods.into_iter().map(|uid| (uid, 0)).collect();
    let known = state.store.pods()?.into_iter();
    pods.extend(known.map(|known| (known.pod.uid, known.since)));
    let bindings = state.store.list()?.into_iter();
    let holding = bindings.filter_map(|binding| Some(binding.request.pod?.uid));
    Ok(Marks {
        waiting: state.store.waiting()?,
        pods,
        holding: holding.collect(),
    })
}

fn forget(context: &Context, found: &Stale) -> Result<(), GarbageError> {
    if *found == Stale::default() {
        return Ok(());
    }
    let path = &context.options.paths.state;
    let markers = Markers::beside(path)?;
    let mut state = open_state(path)?;
    let _alone = context.allocating();
    let slots = forget_slots(&mut state.store, &markers, &found.slots)?;
    for slot in &slots {
        tracing::info!("{slot}: no pod has it any more: it waits no longer");
    }
    let mut count = slots.len();
    for (uid, since) in &found.pods {
        // Bound since: the kubelet did not know it any more, but its ADD was under way.
        if forget_pod(&mut state.store, &markers, uid, *since)? {
            tracing::info!("pod {uid}: the kubelet does not know it any more: forgotten");
            count = count.saturating_add(1);
        }
    }
    context.count(GarbageCounts {
        markers: count.try_into().unwrap_or(u64::MAX),
        ..GarbageCounts::default()
    });
    Ok(())
}

impl Context {
    fn count(&self, more: GarbageCounts) {
        if more == GarbageCounts::default() {
            return;
        }
        self.board.update(|values| {
            values.garbage.bindings += more.bindings;
            values.garbage.cdi += more.cdi;
            values.garbage.markers += more.markers;
        });
        self.look_again.notify_one();
    }
}
