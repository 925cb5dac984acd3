//! Waits for something to happen to the devices of the node, or to what pods hold of them.

use inotify::{EventStream, Inotify, WatchMask};
use podrail_netlink::{Event, Events, Link, NetlinkError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_stream::StreamExt;

/// How long nothing must happen until it is looked at. A NIC that comes makes dozens of events.
const QUIET: Duration = Duration::from_millis(200);
/// A node on which something happens all the time is looked at so often all the same.
const LONGEST: Duration = Duration::from_secs(2);

/// Holds one event and the longest file name.
type Written = EventStream<[u8; 1024]>;

/// The kernel's two sources, and writes to the state file, which plugins make. One that fails is
/// opened again at the next wait; until then the clock is all there is.
#[derive(Debug)]
pub(crate) struct Changes {
    state: PathBuf,
    written: Option<Written>,
    links: Option<AsyncFd<Events>>,
    devices: Option<AsyncFd<Events>>,
    failed: bool,
}

impl Changes {
    /// Nothing is listened to yet.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            written: None,
            links: None,
            devices: None,
            failed: false,
        }
    }

    /// Opens what is not open. To be done before looking, so that nothing is missed.
    pub(crate) fn listen(&mut self) {
        let before = self.failed;
        self.failed = false;
        if self.written.is_none() {
            // Before the first look there may be no directory.
            self.written = writes(&self.state).ok();
        }
        for (place, open) in [
            (
                &mut self.links,
                Events::links as fn() -> Result<Events, NetlinkError>,
            ),
            (&mut self.devices, Events::devices),
        ] {
            if place.is_none() {
                match open().map(watched) {
                    Ok(Ok(events)) => *place = Some(events),
                    failed => {
                        self.failed = true;
                        if !before {
                            tracing::warn!("events of the kernel cannot be had: {failed:?}");
                        }
                    }
                }
            }
        }
    }

    /// Returns once something has changed and it has been quiet for a moment. Dropped half-way,
    /// events may be lost: look again then.
    pub(crate) async fn wait(&mut self) {
        self.one().await;
        let end = Instant::now() + LONGEST;
        while Instant::now() < end {
            let quiet = (Instant::now() + QUIET).min(end);
            if timeout_at(quiet, self.one()).await.is_err() {
                return;
            }
        }
    }

    async fn one(&mut self) {
        loop {
            let changed = tokio::select! {
                changed = next(&mut self.links) => changed,
                changed = next(&mut self.devices) => changed,
                changed = next_write(&mut self.written, &self.state) => changed,
            };
            if changed {
                return;
            }
        }
    }
}

/// Reading the state file modifies nothing, nor does a transaction that changes nothing.
fn writes(state: &Path) -> io::Result<Written> {
    let inotify = Inotify::init()?;
    let parent = state.parent().unwrap_or(Path::new("/"));
    inotify.watches().add(parent, WatchMask::MODIFY)?;
    inotify.into_event_stream([0; 1024])
}

/// Whether what was written is the state file: it or its log, `state.db-wal`.
async fn next_write(source: &mut Option<Written>, state: &Path) -> bool {
    let Some(written) = source else {
        return std::future::pending().await;
    };
    let Some(Ok(event)) = written.next().await else {
        *source = None;
        return true;
    };
    let (Some(name), Some(file)) = (event.name, state.file_name()) else {
        return false;
    };
    let (name, file) = (name.into_encoded_bytes(), file.as_encoded_bytes());
    name.starts_with(file)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types that may close their descriptor early; this one \
              keeps it until it is dropped"
)]
fn watched(events: Events) -> io::Result<AsyncFd<Events>> {
    AsyncFd::new(events)
}

/// Whether what was read matters.
async fn next(source: &mut Option<AsyncFd<Events>>) -> bool {
    let Some(events) = source else {
        return std::future::pending().await;
    };
    let read = match events.readable_mut().await {
        Ok(mut ready) => {
            let read = ready.get_inner_mut().read();
            ready.clear_ready();
            read.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    match read {
        Ok(found) => found.iter().any(matters),
        Err(error) => {
            tracing::warn!("events of the kernel have ended: {error}");
            *source = None;
            // Nothing was heard meanwhile; and not at once again.
            sleep(QUIET).await;
            true
        }
    }
}

/// On a busy node most links are ends of veth pairs. What matters is a device, or something that
/// hangs on one in this namespace: a macvlan, a VLAN.
fn matters(event: &Event) -> bool {
    let of_device = |link: &Link| {
        let parent = link.parent.filter(|parent| parent.netnsid.is_none());
        link.kind.is_none() || (parent.is_some() && link.kind.as_deref() != Some("veth"))
    };
    match event {
        Event::Link(link) | Event::LinkGone(link) => of_device(link),
        Event::Device(device) => !device.path.starts_with("/devices/virtual/net/"),
        Event::Lost => true,
    }
}
