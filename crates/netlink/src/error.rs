//! What can go wrong between us and the kernel.

use crate::netns::NetNsError;
use crate::wire::Malformed;
use nix::errno::Errno;
use podrail_core::ids::BadId;
use std::io;

/// A read that failed, or a socket that could not be opened.
///
/// `request` is the wish in words that follow "to": `list links`, `look up interface net1`.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket could not be opened or set up.
    #[error("cannot open a {family} netlink socket")]
    Open {
        /// `route` or `RDMA`.
        family: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The kernel has no RDMA netlink: `ib_core` is not loaded and could not be loaded.
    #[error("the kernel has no RDMA netlink: ib_core is not loaded")]
    NoRdma,
    /// A socket inside a namespace could not be had, because the namespace could not be entered.
    #[error("cannot open a route netlink socket in another network namespace")]
    Namespace {
        /// What kept us out.
        #[source]
        source: NetNsError,
    },
    /// The request did not leave.
    #[error("netlink: cannot send the request to {request}")]
    Send {
        /// The wish.
        request: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The answer could not be received.
    #[error("netlink: cannot receive the answer to the request to {request}")]
    Receive {
        /// The wish.
        request: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer is missing.
    #[error("netlink: no answer to the request to {request}")]
    NoAnswer {
        /// The wish.
        request: String,
    },
    /// The kernel said no.
    #[error("netlink: the kernel refuses to {request}: {errno}{}", in_words(message.as_deref()))]
    Refused {
        /// The wish.
        request: String,
        /// Its error number.
        errno: Errno,
        /// Its own words, where it has any.
        message: Option<String>,
    },
    /// What was read kept changing, so that no consistent answer could be had.
    #[error("netlink: cannot {request}: the answer changed while it was read, {attempts} times")]
    Unsettled {
        /// The wish.
        request: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The answer does not have the form it should have.
    #[error("netlink: cannot understand the answer to the request to {request}")]
    Malformed {
        /// The wish.
        request: String,
        /// Which part is wrong.
        #[source]
        source: Malformed,
    },
    /// An RDMA device has a name that Podrail cannot use in paths.
    #[error("RDMA device number {index} has an unusable name")]
    DeviceName {
        /// Index of the device in the kernel.
        index: u32,
        /// What is wrong with the name.
        #[source]
        source: BadId,
    },
}

/// One request of a batch that was not, or perhaps not, carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The kernel said no; nothing of this request was done, with the exceptions noted at
    /// [`Request`](crate::Request).
    #[error("the kernel refuses to {request}: {errno}{}", in_words(message.as_deref()))]
    Kernel {
        /// The wish in words.
        request: String,
        /// Its error number.
        errno: Errno,
        /// Its own words, where it has any.
        message: Option<String>,
    },
    /// The request left and its acknowledgement was lost: **it may have been carried out.**
    #[error("no acknowledgement of the request to {request}: it may have been carried out")]
    Unanswered {
        /// The wish in words.
        request: String,
        /// Why the acknowledgement is missing; `EAGAIN`: there was none.
        #[source]
        source: Errno,
    },
    /// The request did not leave; nothing was done.
    #[error("cannot send the request to {request}")]
    NotSent {
        /// The wish in words.
        request: String,
        /// What the system said.
        #[source]
        source: Errno,
    },
}

impl Refusal {
    /// The kernel's error number, if it was the kernel that said no.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Unanswered { .. } | Self::NotSent { .. } => None,
        }
    }

    /// The thing to be made exists already. Whether it is *the same* thing must be read back:
    /// the kernel compares the key only (name, address, or table and destination).
    #[must_use]
    pub fn is_already_there(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// The thing to be deleted is gone: `ENODEV` (link, group), `ENOENT` (rule), `ESRCH` (route),
    /// `EADDRNOTAVAIL` (address). Means success only for requests that delete.
    #[must_use]
    pub fn is_already_gone(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL)
        )
    }
}

/// The kernel's words as the end of a sentence.
fn in_words(message: Option<&str>) -> String {
    message
        .map(|words| format!(" ({})", words.trim_end_matches('.')))
        .unwrap_or_default()
}
