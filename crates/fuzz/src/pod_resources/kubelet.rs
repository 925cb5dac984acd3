//! A PodResources service that sends whatever bytes it was given last.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The service, up to the end of the process.
pub(super) struct Kubelet {
    bytes: Arc<Mutex<Vec<u8>>>,
    socket: PathBuf,
    _dir: TempDir,
}

impl Kubelet {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("kubelet.sock");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (path, raw) = (socket.clone(), Raw(bytes.clone()));
        let (ready, started) = channel();
        thread::spawn(move || serve(&path, raw, &ready));
        started.recv().expect("the service starts");
        Self {
            bytes,
            socket,
            _dir: dir,
        }
    }

    /// What is sent from now on.
    pub(super) fn answers(&self, bytes: &[u8]) {
        bytes.clone_into(&mut self.bytes.lock().expect("nobody panics with it"));
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}

fn serve(socket: &Path, raw: Raw, ready: &Sender<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let served = runtime.block_on(async {
        // libFuzzer's main leaves the signal as it is: a client that hangs up would end the process.
        let _pipes = signal(SignalKind::pipe()).expect("a handler");
        let listener = UnixListener::bind(socket).expect("a socket");
        ready.send(()).expect("somebody waits");
        let incoming = UnixListenerStream::new(listener);
        Server::builder()
            .add_service(raw)
            .serve_with_incoming(incoming)
            .await
    });
    served.expect("the service goes on to the end");
}

/// Takes any call and sends the bytes as the message of the answer.
#[derive(Clone)]
struct Raw(Arc<Mutex<Vec<u8>>>);

impl NamedService for Raw {
    const NAME: &'static str = "v1.PodResourcesLister";
}

impl Service<http::Request<Body>> for Raw {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = self.clone();
        Box::pin(async move { Ok(Grpc::new(RawCodec).unary(call, request).await) })
    }
}

impl UnaryService<()> for Raw {
    type Response = Vec<u8>;
    type Future = std::future::Ready<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let bytes = self.0.lock().expect("nobody panics with it").clone();
        std::future::ready(Ok(Response::new(bytes)))
    }
}

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        let left = prost::bytes::Buf::remaining(buffer);
        prost::bytes::Buf::advance(buffer, left);
        Ok(Some(()))
    }
}
