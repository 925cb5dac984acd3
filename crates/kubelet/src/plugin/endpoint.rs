//! The plugin's socket in the kubelet's directory: put in place whole, known again, given up.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Pause after a failed accept: too many open files do not pass faster by trying.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that stands at its path and is listened to. Connections that came over it live on when
/// it is dropped.
pub(super) struct Endpoint {
    path: PathBuf,
    identity: (u64, u64),
    _accepting: JoinSet<()>,
}

/// What stands at the path of a socket of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The socket.
    Ours,
    /// Nothing.
    Gone,
    /// Something else: another plugin took the path over.
    Replaced,
}

impl Endpoint {
    /// Listens at the path, over whatever stood there, and passes connections on.
    ///
    /// The socket is renamed into place: nobody meets it before it is listened to, and no moment
    /// without one is seen.
    pub(super) fn listen(
        path: &Path,
        connections: mpsc::Sender<io::Result<UnixStream>>,
    ) -> io::Result<Self> {
        let draft = draft_of(path);
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&draft)?;
        let identity = put_in_place(&draft, path).inspect_err(|_| {
            // Best effort: the error that is told is the first one.
            let _left_behind = fs::remove_file(&draft);
        })?;
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, connections));
        Ok(Self {
            path: path.to_owned(),
            identity,
            _accepting: accepting,
        })
    }

    /// What stands at the path now. The kernel keeps the inode of a bound socket, so its number is
    /// not used again while we listen.
    pub(super) fn standing(&self) -> Standing {
        match identity(&self.path) {
            Ok(found) if found == self.identity => Standing::Ours,
            Ok(_) => Standing::Replaced,
            Err(_) => Standing::Gone,
        }
    }

    /// Gives the socket up, and removes its file if it is still ours.
    pub(super) fn close(self) {
        if self.standing() == Standing::Ours {
            // A file that stays is replaced by the next run.
            let _stays = fs::remove_file(&self.path);
        }
    }
}

/// Where the socket is made before it is put in place.
pub(super) fn draft_of(path: &Path) -> PathBuf {
    path.with_extension("sock.new")
}

fn put_in_place(draft: &Path, path: &Path) -> io::Result<(u64, u64)> {
    fs::set_permissions(draft, Permissions::from_mode(0o600))?;
    let identity = identity(draft)?;
    fs::rename(draft, path)?;
    Ok(identity)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

async fn accept(listener: UnixListener, connections: mpsc::Sender<io::Result<UnixStream>>) {
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => {
                if connections.send(Ok(stream)).await.is_err() {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}
