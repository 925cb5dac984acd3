//! The kubelet's side of the protocol, as far as registration and lists go.

use crate::client::Connection;
use crate::proto::deviceplugin as proto;
use proto::device_plugin_client::DevicePluginClient;
use proto::registration_server::{Registration, RegistrationServer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the kubelet saw.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    Registered(proto::RegisterRequest),
    /// `slot-00+ slot-01-`: healthy or not.
    List(String),
    StreamEnded,
}

pub(super) struct Kubelet {
    pub(super) seen: mpsc::UnboundedReceiver<Seen>,
    desk: Desk,
    server: JoinSet<()>,
}

#[derive(Clone)]
struct Desk {
    directory: PathBuf,
    seen: mpsc::UnboundedSender<Seen>,
    refusals: Arc<Mutex<Vec<Status>>>,
    streams: Arc<Mutex<JoinSet<()>>>,
}

impl Kubelet {
    /// As the kubelet starts: empties its directory, then makes its socket.
    pub(super) fn start(directory: &Path) -> Self {
        std::fs::create_dir_all(directory).unwrap();
        for entry in std::fs::read_dir(directory).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
        Self::start_on(directory, listener)
    }

    pub(super) fn start_on(directory: &Path, listener: UnixListener) -> Self {
        let (sender, seen) = mpsc::unbounded_channel();
        let desk = Desk {
            directory: directory.to_owned(),
            seen: sender,
            refusals: Arc::default(),
            streams: Arc::default(),
        };
        let serving = Server::builder()
            .add_service(RegistrationServer::new(desk.clone()))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let mut server = JoinSet::new();
        server.spawn(async move { serving.await.unwrap() });
        Self { seen, desk, server }
    }

    /// Refuses the next registration.
    pub(super) fn refuse_next(&self, status: Status) {
        self.desk.refusals.lock().unwrap().push(status);
    }

    /// Ends all streams, as after a fault of the connection.
    pub(super) fn end_streams(&self) {
        *self.desk.streams.lock().unwrap() = JoinSet::new();
    }

    /// Dies: sockets stay as files, connections end.
    pub(super) async fn kill(mut self) {
        self.end_streams();
        self.server.shutdown().await;
    }
}

#[tonic::async_trait]
impl Registration for Desk {
    async fn register(
        &self,
        request: Request<proto::RegisterRequest>,
    ) -> Result<Response<proto::Empty>, Status> {
        if let Some(refusal) = self.refusals.lock().unwrap().pop() {
            return Err(refusal);
        }
        let request = request.into_inner();
        let connection = Connection::open(&self.directory.join(&request.endpoint)).await;
        let connection = connection.map_err(|e| Status::unknown(format!("failed to dial: {e}")))?;
        let client = DevicePluginClient::with_origin(connection, Connection::origin());
        let seen = self.seen.clone();
        seen.send(Seen::Registered(request)).unwrap();
        self.streams.lock().unwrap().spawn(read_lists(client, seen));
        Ok(Response::new(proto::Empty {}))
    }
}

async fn read_lists(mut client: DevicePluginClient<Connection>, seen: mpsc::UnboundedSender<Seen>) {
    let mut lists = client
        .list_and_watch(proto::Empty {})
        .await
        .unwrap()
        .into_inner();
    while let Ok(Some(list)) = lists.message().await {
        assert!(list.devices.iter().all(|device| device.topology.is_none()));
        let shown = list
            .devices
            .iter()
            .map(|device| match device.health.as_str() {
                "Healthy" => format!("{}+", device.id),
                "Unhealthy" => format!("{}-", device.id),
                other => panic!("{other}"),
            });
        // The test may be over.
        let _sent = seen.send(Seen::List(shown.collect::<Vec<_>>().join(" ")));
    }
    let _sent = seen.send(Seen::StreamEnded);
}
