//! Watches the kubelet's directory by inotify, also while it does not exist.

use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio_stream::StreamExt;

/// Name of the kubelet's own socket in the directory.
pub(super) const KUBELET_SOCKET: &str = "kubelet.sock";

/// Something happened in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The kubelet's socket was made, or may have been.
    pub(super) kubelet_came: bool,
}

/// The directory, or the nearest of its parents that exists.
pub(super) struct DirectoryWatch {
    directory: PathBuf,
    events: EventStream<[u8; 4096]>,
    current: Option<Watched>,
    on_directory: bool,
}

/// A directory that is watched: which one, and by which path it was found.
struct Watched {
    descriptor: WatchDescriptor,
    place: PathBuf,
    identity: Option<(u64, u64)>,
}

impl DirectoryWatch {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let mut watch = Self {
            directory: directory.to_owned(),
            events: Inotify::init()?.into_event_stream([0; 4096])?,
            current: None,
            on_directory: false,
        };
        watch.arm()?;
        Ok(watch)
    }

    /// Watches anew if another directory stands at the path now, and tells if it is the one wanted:
    /// what was made in it before has no event. Events tell of the directory itself, not of a parent
    /// that was moved away with it.
    pub(super) fn refresh(&mut self) -> io::Result<Option<Change>> {
        match &self.current {
            Some(watched) if watched.identity == identity(&watched.place) => Ok(None),
            _ => {
                self.arm()?;
                Ok(self.on_directory.then_some(Change { kubelet_came: true }))
            }
        }
    }

    /// Waits for the next change. May be dropped and called again without losing one.
    pub(super) async fn next(&mut self) -> io::Result<Change> {
        loop {
            let event = self.events.next().await;
            let event = event.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
            if let Some(change) = self.change(&event)? {
                return Ok(change);
            }
        }
    }

    fn change(&mut self, event: &EventOwned) -> io::Result<Option<Change>> {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.arm()?;
            return Ok(Some(Change { kubelet_came: true }));
        }
        let current = self.current.as_ref().map(|watched| &watched.descriptor);
        if current != Some(&event.wd) {
            // Of a watch that was given up.
            return Ok(None);
        }
        if !self.on_directory || event.mask.intersects(lost()) {
            let had_it = self.on_directory;
            self.arm()?;
            let kubelet_came = self.on_directory;
            return Ok((had_it || kubelet_came).then_some(Change { kubelet_came }));
        }
        let kubelets = event.name.as_deref() == Some(OsStr::new(KUBELET_SOCKET));
        let made = event
            .mask
            .intersects(EventMask::CREATE | EventMask::MOVED_TO);
        Ok(Some(Change {
            kubelet_came: kubelets && made,
        }))
    }

    /// Watches the directory, or else the nearest parent, where its way would begin.
    fn arm(&mut self) -> io::Result<()> {
        loop {
            if let Some(old) = self.current.take() {
                // It may be gone with its directory.
                let _gone = self.events.watches().remove(old.descriptor);
            }
            let (watched, missing) = self.watch_nearest()?;
            self.on_directory = missing.is_none();
            self.current = Some(watched);
            // Made between the look and the watch: no event will tell.
            if !missing.is_some_and(|path| path.exists()) {
                return Ok(());
            }
        }
    }

    /// The watch, and the part of the way that is missing below it.
    fn watch_nearest(&mut self) -> io::Result<(Watched, Option<PathBuf>)> {
        let mut missing = None;
        let mask = WatchMask::CREATE
            | WatchMask::MOVED_TO
            | WatchMask::DELETE
            | WatchMask::MOVED_FROM
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        for place in self.directory.ancestors() {
            match self.events.watches().add(place, mask) {
                Ok(descriptor) => {
                    let watched = Watched {
                        descriptor,
                        place: place.to_owned(),
                        identity: identity(place),
                    };
                    return Ok((watched, missing));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing = Some(place.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

fn identity(place: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(place).ok()?;
    Some((found.dev(), found.ino()))
}

/// The watched directory itself is no longer at its path.
fn lost() -> EventMask {
    EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT | EventMask::IGNORED
}
