//! Why the kubelet did not tell which devices its pods have, and what to do about it.

use super::LARGEST_ANSWER;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::{Code, Status};

/// The kubelet did not tell.
#[derive(Debug, thiserror::Error)]
pub enum PodResourcesError {
    /// No socket stands at the path.
    #[error("the kubelet's PodResources socket {socket:?} does not exist")]
    Missing {
        /// The path.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket stands, and nobody listens.
    #[error("nobody answers at the kubelet's PodResources socket {socket:?}")]
    Refused {
        /// The path.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket cannot be used.
    #[error("cannot connect to the kubelet's PodResources socket {socket:?}")]
    Connect {
        /// The path.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No answer in time.
    #[error("no answer from the kubelet at {socket:?} after {} ms", waited.as_millis())]
    Deadline {
        /// The path.
        socket: PathBuf,
        /// How long it was tried.
        waited: Duration,
        /// How the last try before the end went, if one ended.
        source: Option<Box<PodResourcesError>>,
    },
    /// More callers than the kubelet answers.
    #[error("the kubelet refuses the call for its rate limit: {words:?}")]
    RateLimited {
        /// What the kubelet said.
        words: String,
    },
    /// The answer is larger than [`LARGEST_ANSWER`].
    #[error("the kubelet's answer is larger than {} MiB: {words:?}", LARGEST_ANSWER >> 20)]
    TooLarge {
        /// Size and limit, as the codec said.
        words: String,
    },
    /// The connection ended before the answer was complete.
    #[error("the connection to the kubelet at {socket:?} broke")]
    Broken {
        /// The path.
        socket: PathBuf,
        /// Why.
        source: Box<Status>,
    },
    /// The kubelet answered with an error, or with something that is no answer.
    #[error("the kubelet answered {code:?}: {words:?}")]
    Answer {
        /// gRPC status code.
        code: Code,
        /// The words that came with it, cut to 300 characters.
        words: String,
    },
    /// The machinery of the call cannot start.
    #[error("cannot start an async runtime")]
    Runtime {
        /// Why.
        source: io::Error,
    },
}

impl PodResourcesError {
    pub(super) fn of_connect(socket: &Path, source: io::Error) -> Self {
        let socket = socket.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { socket, source },
            // WouldBlock: the queue of a unix socket is full.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => {
                Self::Refused { socket, source }
            }
            _ => Self::Connect { socket, source },
        }
    }

    /// A status with a cause was made on our side, from what the connection did; one without came
    /// from the kubelet or from decoding its answer.
    pub(super) fn of_status(socket: &Path, status: Status) -> Self {
        let words = || status.message().chars().take(300).collect();
        if std::error::Error::source(&status).is_some() {
            let socket = socket.to_owned();
            let source = Box::new(status);
            return Self::Broken { socket, source };
        }
        match status.code() {
            // tonic's decoder, for a message above its limit.
            Code::OutOfRange => Self::TooLarge { words: words() },
            // The server's side of the same limit has the rate limit's code (grpc-go).
            Code::ResourceExhausted if status.message().contains("larger than max") => {
                Self::TooLarge { words: words() }
            }
            Code::ResourceExhausted => Self::RateLimited { words: words() },
            code => Self::Answer {
                code,
                words: words(),
            },
        }
    }

    /// Whether the same call may succeed later without anyone changing anything.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::TooLarge { .. } => false,
            Self::Answer { code, .. } => {
                ![Code::Unimplemented, Code::PermissionDenied].contains(code)
            }
            _ => true,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "is the kubelet running, and its root directory /var/lib/kubelet? With another one, \
                 give the socket in the configuration"
            }
            Self::Refused { .. } | Self::Broken { .. } => {
                "the kubelet is stopped or restarting: `systemctl status kubelet`"
            }
            Self::Connect { .. } => "run as root on the node, where the kubelet's socket is",
            Self::Deadline { source, .. } => source.as_ref().map_or(
                "the kubelet is slow or hangs: look at its log and at the load of the node",
                |last| last.hint(),
            ),
            Self::RateLimited { .. } => {
                "another program on the node asks the kubelet's PodResources too often (100 calls \
                 a second for all): find it among the monitoring agents"
            }
            Self::TooLarge { .. } => {
                "the node has more pods and devices than fit into one answer: lower maxPods or the \
                 number of devices that are shared in parts"
            }
            Self::Answer { .. } => {
                "the kubelet's log has more; PodResources v1 needs Kubernetes 1.20 or newer"
            }
            Self::Runtime { .. } => "the process has too few file descriptors: raise `ulimit -n`",
        }
    }
}
