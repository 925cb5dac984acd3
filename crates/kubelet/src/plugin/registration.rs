//! Registers the plugin with the kubelet.

use super::Config;
use super::directory::KUBELET_SOCKET;
use super::service::{Streams, options};
use crate::client::Connection;
use crate::proto::deviceplugin as proto;
use proto::registration_client::RegistrationClient;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Code;

/// Version of the protocol.
const VERSION: &str = "v1beta1";

/// The kubelet connects to the plugin before it answers, and allows ten seconds for it
/// (`plugin/v1beta1/client.go`).
const ANSWER_TIME: Duration = Duration::from_secs(15);

/// Time for the kubelet to open the stream of lists, which it does right after its answer.
const STREAM_TIME: Duration = Duration::from_secs(10);

/// Why the plugin is not registered. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The directory or the kubelet's socket in it does not exist.
    #[error("{path:?} does not exist: waiting for the kubelet")]
    KubeletAbsent {
        /// The path.
        path: PathBuf,
    },
    /// The kubelet does not answer at its socket.
    #[error("cannot speak with the kubelet at {socket:?}")]
    Unreachable {
        /// The path.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kubelet said no.
    #[error("the kubelet refused resource {resource}, protocol {VERSION}: {code:?} {words:?}")]
    Refused {
        /// The resource.
        resource: String,
        /// gRPC status code.
        code: Code,
        /// The kubelet's words, cut to 300 characters.
        words: String,
    },
    /// The kubelet took the connection and did not answer.
    #[error("the kubelet did not answer the registration within {} s", ANSWER_TIME.as_secs())]
    NoAnswer,
    /// The plugin's own socket cannot be made.
    #[error("cannot listen at {socket:?}")]
    Listen {
        /// The path.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another plugin made its socket at the same path.
    #[error("another plugin took over {socket:?}")]
    Replaced {
        /// The path.
        socket: PathBuf,
    },
    /// The kubelet registered the plugin and does not ask for its slots.
    #[error("the kubelet did not ask for the slots within {} s", STREAM_TIME.as_secs())]
    NotWatched,
    /// The kubelet stopped reading the slots.
    #[error("the kubelet ended the stream of slots")]
    StreamEnded,
}

impl RegisterError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::KubeletAbsent { .. } => {
                "start the kubelet; if its root directory is not /var/lib/kubelet, give the \
                 directory in the configuration; in a container mount its parent"
            }
            Self::Unreachable { .. } | Self::StreamEnded => {
                "the kubelet is stopped or restarting: `systemctl status kubelet`"
            }
            Self::Refused { .. } => {
                "the kubelet must know device plugins v1beta1, and the resource must be \
                 `domain/name` outside kubernetes.io; the kubelet's log has more"
            }
            Self::NoAnswer | Self::NotWatched => {
                "the kubelet is overloaded, or cannot open the plugin's socket: see its log"
            }
            Self::Listen { .. } => "run as root, with the kubelet's directory writable",
            Self::Replaced { .. } => {
                "a second agent runs on this node: one of them should end (this one waits)"
            }
        }
    }
}

/// Registers, and waits until the kubelet reads the list.
pub(super) async fn register(
    directory: PathBuf,
    request: proto::RegisterRequest,
    mut streams: watch::Receiver<Streams>,
) -> Result<(), RegisterError> {
    let opened_before = streams.borrow().opened;
    let socket = directory.join(KUBELET_SOCKET);
    timeout(ANSWER_TIME, call(&socket, request))
        .await
        .unwrap_or(Err(RegisterError::NoAnswer))?;
    let opened = streams.wait_for(|streams| streams.opened > opened_before);
    match timeout(STREAM_TIME, opened).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(RegisterError::NotWatched),
    }
}

/// What the kubelet is told.
pub(super) fn request(config: &Config) -> proto::RegisterRequest {
    proto::RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: config.endpoint(),
        resource_name: config.resource.to_string(),
        options: Some(options()),
    }
}

async fn call(socket: &Path, request: proto::RegisterRequest) -> Result<(), RegisterError> {
    let unreachable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => RegisterError::KubeletAbsent {
            path: socket.to_owned(),
        },
        _ => RegisterError::Unreachable {
            socket: socket.to_owned(),
            source,
        },
    };
    let connection = Connection::open(socket).await.map_err(unreachable)?;
    let resource = request.resource_name.clone();
    let mut client = RegistrationClient::with_origin(connection, Connection::origin());
    let answer = client.register(request).await;
    answer.map(|_empty| ()).map_err(|status| {
        // A status with a cause was made by the connection, not by the kubelet.
        if std::error::Error::source(&status).is_some() {
            return unreachable(io::Error::other(status));
        }
        RegisterError::Refused {
            resource,
            code: status.code(),
            words: status.message().chars().take(300).collect(),
        }
    })
}
