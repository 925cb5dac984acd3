//! Unix sockets: gRPC channels and listeners on them.

use crate::error::{Error, Result};
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::{Channel, Endpoint};

/// A channel that connects again by itself when it is used.
pub(crate) fn lazy_channel(path: &Path) -> Channel {
    let connect = connector(path.to_owned());
    endpoint().connect_with_connector_lazy(connect)
}

/// A channel whose socket answers now.
pub(crate) async fn channel(path: &Path) -> std::result::Result<Channel, tonic::transport::Error> {
    let connect = connector(path.to_owned());
    endpoint().connect_with_connector(connect).await
}

/// The address is never used: the connector knows the path.
fn endpoint() -> Endpoint {
    Endpoint::from_static("http://unix.invalid")
}

fn connector(
    path: PathBuf,
) -> impl tower::Service<
    tonic::transport::Uri,
    Response = TokioIo<UnixStream>,
    Error = std::io::Error,
    Future = impl Future<Output = std::io::Result<TokioIo<UnixStream>>> + Send,
> + Send
+ 'static {
    tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    })
}

/// A new socket in the place of an old one; its directory is made.
pub(crate) fn listen(path: &Path) -> Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove", path)(error));
        }
        _ => {}
    }
    UnixListener::bind(path).map_err(Error::io("listen on", path))
}
