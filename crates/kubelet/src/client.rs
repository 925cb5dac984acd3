//! One HTTP/2 connection over a unix socket: what a call to the kubelet needs, and no more.
//!
//! Deliberately absent: balancing, buffering and reconnecting, as a full gRPC channel has them.
//! They would be a third of the CNI plugin, and would hide why a connection failed.

use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::{Service, http};

/// Authority of every request: gRPC wants one, unix sockets have none.
pub(crate) const ORIGIN: &str = "http://localhost";

/// An open connection. Dropping it closes the socket, whatever is under way.
pub(crate) struct Connection {
    requests: SendRequest<Body>,
    _driver: JoinSet<()>,
}

impl Connection {
    /// Connects to a socket.
    pub(crate) async fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its end shows in the requests that are under way.
            let _ended = connection.await;
        });
        Ok(Self {
            requests,
            _driver: driver,
        })
    }

    /// The address that generated clients put before their paths.
    pub(crate) fn origin() -> http::Uri {
        http::Uri::from_static(ORIGIN)
    }
}

impl Service<http::Request<Body>> for Connection {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.requests.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.requests.send_request(request))
    }
}
