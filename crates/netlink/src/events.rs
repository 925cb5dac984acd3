//! What the kernel tells unasked: links that change, devices that come and go.
//!
//! A descriptor to wait on, and what is queued there. Nothing here waits.

mod uevent;

pub use uevent::{Action, Uevent};

use crate::error::NetlinkError;
use crate::rtnl::Link;
use crate::wire;
use netlink_sys::protocols::{NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc::{MSG_DONTWAIT, MSG_TRUNC, RTM_DELLINK, RTM_NEWLINK};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// `RTNLGRP_LINK` as a bit.
const LINK_GROUP: u32 = 1;
/// Group of the kernel's own uevents; 2 is udev's.
const KERNEL_GROUP: u32 = 1;
/// A link with all of its attributes is about 2 KiB, a uevent at most 2 KiB and its header
/// (`UEVENT_BUFFER_SIZE`). A larger datagram counts as lost.
const RECEIVE_BUFFER: usize = 32 * 1024;
/// Events of one reading; with more of them, everything has to be looked at anyway.
const MOST_EVENTS: usize = 1024;

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A link is new or has changed.
    Link(Box<Link>),
    /// A link is gone.
    LinkGone(Box<Link>),
    /// A device was added, removed, renamed or bound to a driver.
    Device(Uevent),
    /// The kernel could not queue everything (`ENOBUFS`), or said what could not be read: look at
    /// everything again.
    Lost,
}

/// A multicast socket of one network namespace.
///
/// Wait until the descriptor is readable, then [`read`](Self::read).
#[derive(Debug)]
pub struct Events {
    socket: Socket,
    source: Source,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Links,
    Devices,
}

impl Events {
    /// Links of the calling thread's network namespace. Needs no privilege.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn links() -> Result<Self, NetlinkError> {
        Self::open(Source::Links).map_err(|source| NetlinkError::Open {
            family: "route",
            source,
        })
    }

    /// Devices of the subsystems that a rail is made of. The kernel tells a network namespace only
    /// of its own network interfaces, and of all other devices. Needs no privilege
    /// (`NL_CFG_F_NONROOT_RECV`).
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn devices() -> Result<Self, NetlinkError> {
        Self::open(Source::Devices).map_err(|source| NetlinkError::Open {
            family: "uevent",
            source,
        })
    }

    fn open(source: Source) -> io::Result<Self> {
        let (protocol, group) = match source {
            Source::Links => (NETLINK_ROUTE, LINK_GROUP),
            Source::Devices => (NETLINK_KOBJECT_UEVENT, KERNEL_GROUP),
        };
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, group))?;
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            source,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
        })
    }

    /// All that is queued; empty if nothing is.
    ///
    /// # Guarantees
    /// Never waits. A lost or unreadable message is an [`Event::Lost`], never silence, and so are
    /// more events than are kept at a time. Messages that did not come from the kernel are ignored.
    ///
    /// # Errors
    /// [`NetlinkError::Receive`]: the socket is of no use any more.
    pub fn read(&mut self) -> Result<Vec<Event>, NetlinkError> {
        let mut found = Vec::new();
        while let Some(events) = self.receive()? {
            found.extend(events);
            if found.len() > MOST_EVENTS {
                found = vec![Event::Lost];
            }
        }
        Ok(found)
    }

    /// The events of one datagram; none if nothing is queued.
    fn receive(&mut self) -> Result<Option<Vec<Event>>, NetlinkError> {
        self.buffer.clear();
        let flags = MSG_DONTWAIT | MSG_TRUNC;
        match self.socket.recv_from(&mut self.buffer, flags) {
            Ok((_, sender)) if sender.port_number() != 0 => Ok(Some(vec![])),
            Ok((length, _)) if length > self.buffer.len() => Ok(Some(vec![Event::Lost])),
            Ok(_) => Ok(Some(parse(self.source, &self.buffer))),
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EAGAIN) => Ok(None),
                Some(Errno::EINTR) => Ok(Some(vec![])),
                Some(Errno::ENOBUFS) => Ok(Some(vec![Event::Lost])),
                _ => Err(receiving(self.source, error)),
            },
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn receiving(source: Source, error: io::Error) -> NetlinkError {
    let what = match source {
        Source::Links => "tell of links",
        Source::Devices => "tell of devices",
    };
    NetlinkError::Receive {
        request: what.to_owned(),
        source: error,
    }
}

/// The events of one datagram.
fn parse(source: Source, datagram: &[u8]) -> Vec<Event> {
    match source {
        Source::Links => links(datagram),
        Source::Devices => Uevent::parse(datagram)
            .map(Event::Device)
            .into_iter()
            .collect(),
    }
}

fn links(datagram: &[u8]) -> Vec<Event> {
    let Ok(messages) = wire::replies(datagram) else {
        return vec![Event::Lost];
    };
    let event = |message: &wire::Reply<'_>| {
        let made: fn(Box<Link>) -> Event = match message.kind {
            RTM_NEWLINK => Event::Link,
            RTM_DELLINK => Event::LinkGone,
            wire::OVERRUN => return Some(Event::Lost),
            _ => return None,
        };
        match Link::parse(message.body) {
            Ok(link) => link.map(|link| made(Box::new(link))),
            Err(_) => Some(Event::Lost),
        }
    };
    messages.iter().filter_map(event).collect()
}

#[cfg(test)]
mod tests;
