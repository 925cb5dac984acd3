//! Waits for something to happen to the devices of the node.

use podrail_netlink::{Event, Events, Link, NetlinkError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout_at};

/// How long nothing must happen until it is looked at. A NIC that comes makes dozens of events.
const QUIET: Duration = Duration::from_millis(200);
/// A node on which something happens all the time is looked at so often all the same.
const LONGEST: Duration = Duration::from_secs(2);

/// The kernel's two sources. One that fails is opened again at the next wait; until then the clock
/// is all there is.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    links: Option<AsyncFd<Events>>,
    devices: Option<AsyncFd<Events>>,
    failed: bool,
}

impl Changes {
    /// Opens what is not open. To be done before looking, so that nothing is missed.
    pub(crate) fn listen(&mut self) {
        let before = self.failed;
        self.failed = false;
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
            };
            if changed {
                return;
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types that may close their descriptor early; this one \
              keeps it until it is dropped"
)]
fn watched(events: Events) -> std::io::Result<AsyncFd<Events>> {
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
