//! Device plugin, v1beta1: offers the slots of this node to the kubelet and stays registered.
//!
//! One [`run`] does all: serves the plugin's socket, registers, watches the kubelet's directory and
//! registers again whenever the kubelet comes back. While registered it does nothing by the clock.
//!
//! The kubelet at its start deletes every file in the directory, ours too, then makes its own
//! socket (`pkg/kubelet/cm/devicemanager`). The directory is therefore watched itself, by its path:
//! in a container the *parent* must be mounted, or a directory made anew is never seen.

mod directory;
mod endpoint;
mod keeper;
mod pace;
mod registration;
mod service;
mod status;

pub use registration::RegisterError;
pub use service::{AllocateError, Allocator, Slot};
pub use status::{State, Status};

use crate::proto::deviceplugin::device_plugin_server::DevicePluginServer;
use directory::DirectoryWatch;
use keeper::Keeper;
use podrail_core::ids::ResourceName;
use service::{Service, Streams};
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

/// Where a kubelet with its usual root directory keeps the sockets of device plugins.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/kubelet/device-plugins";

/// `sockaddr_un.sun_path` has 108 bytes, the last a zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// How long calls that are under way may take to end at shutdown.
const FAREWELL: Duration = Duration::from_secs(5);

/// Where and as what to register.
#[derive(Debug, Clone)]
pub struct Config {
    /// The kubelet's directory for device plugins. It need not exist yet.
    pub directory: PathBuf,
    /// Resource under which the slots are counted.
    pub resource: ResourceName,
}

impl Config {
    /// Name of our socket in the directory: `podrail.io_rail.sock`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("{}.sock", self.resource.as_str().replace('/', "_"))
    }

    fn socket(&self) -> PathBuf {
        self.directory.join(self.endpoint())
    }

    fn check(&self) -> Result<(), PluginError> {
        let socket = self.socket();
        let longest = endpoint::draft_of(&socket);
        if longest.as_os_str().as_bytes().len() > LONGEST_SOCKET_PATH {
            return Err(PluginError::PathTooLong { socket });
        }
        Ok(())
    }
}

/// The plugin cannot run. Faults that may pass are not errors: they stand in [`Status`].
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// Directory and resource name together are too long.
    #[error("socket path {socket:?} is too long for a unix socket")]
    PathTooLong {
        /// The path.
        socket: PathBuf,
    },
    /// The directory cannot be watched.
    #[error("cannot watch the kubelet's directory {directory:?}")]
    Watch {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server of the plugin's socket ended by itself.
    #[error("the server of the device plugin ended")]
    Server {
        /// Why, if it said so.
        source: Option<tonic::transport::Error>,
    },
}

impl PluginError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::PathTooLong { .. } => {
                "choose a shorter resource name, or a shorter root directory of the kubelet"
            }
            Self::Watch { .. } => {
                "run as root; if inotify is exhausted, raise fs.inotify.max_user_instances and \
                 fs.inotify.max_user_watches"
            }
            Self::Server { .. } => "start the agent again, and report this with its log",
        }
    }
}

/// Serves and stays registered until `shutdown` completes.
///
/// Registers as soon as `slots` holds a list that is not empty, and sends each change of it. The
/// last list stays valid if its sender goes away.
///
/// # Guarantees
/// - The kubelet is never sent an empty list, also not at shutdown: its stream just ends.
/// - Streams that are open survive a new registration: the kubelet disconnects the new client of a
///   resource when a stream of the old one ends (`plugin/v1beta1/client.go`).
/// - Of two running plugins the newer keeps the socket; the older waits.
/// - Twice: the socket file of an earlier run is replaced. Dropped half-way: all tasks end.
///
/// # Errors
/// See [`PluginError`].
pub async fn run<A: Allocator>(
    config: Config,
    allocator: A,
    slots: watch::Receiver<Vec<Slot>>,
    status: watch::Sender<Status>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), PluginError> {
    config.check()?;
    let directory = DirectoryWatch::open(&config.directory);
    let directory = directory.map_err(|source| PluginError::Watch {
        directory: config.directory.clone(),
        source,
    })?;
    let (ending, ended) = watch::channel(false);
    let (streams, seen_streams) = watch::channel(Streams::default());
    let (connections, accepted) = mpsc::channel(16);
    let service = Service::new(allocator, slots.clone(), ended.clone(), streams);
    let mut server = JoinSet::new();
    server.spawn(serve(service, accepted, ended));

    let mut keeper = Keeper::new(&config, directory, connections, seen_streams, status);
    let outcome = tokio::select! {
        () = shutdown => Ok(()),
        source = keeper.run(slots) => Err(PluginError::Watch { directory: config.directory, source }),
        ended = server.join_next() => Err(PluginError::Server { source: why(ended) }),
    };
    keeper.close();
    ending.send_replace(true);
    // Past this time the tasks are dropped.
    let _in_time = timeout(FAREWELL, server.join_next()).await;
    outcome
}

type Ended = Option<Result<Result<(), tonic::transport::Error>, tokio::task::JoinError>>;

fn why(ended: Ended) -> Option<tonic::transport::Error> {
    ended?.ok()?.err()
}

async fn serve<A: Allocator>(
    service: Service<A>,
    accepted: mpsc::Receiver<io::Result<UnixStream>>,
    mut ended: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let ended = async move {
        let _sender_gone = ended.wait_for(|ended| *ended).await;
    };
    Server::builder()
        .add_service(DevicePluginServer::new(service))
        .serve_with_incoming_shutdown(ReceiverStream::new(accepted), ended)
        .await
}

#[cfg(test)]
mod tests;
