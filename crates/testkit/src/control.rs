//! Commands to a running stand-in: one JSON line there, one JSON line back, over a unix socket.

use crate::error::{Error, Result, in_words};
use crate::kubelet::{Condition, Kubelet};
use crate::sockets;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// A command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Take the objects of a manifest.
    Apply {
        /// YAML or JSON.
        text: String,
    },
    /// One pod, or all.
    Get {
        /// `namespace/name`.
        pod: Option<String>,
    },
    /// Delete a pod.
    Delete {
        /// `namespace/name`.
        pod: String,
        /// Devices and name are free at once.
        force: bool,
        /// Seconds.
        grace: Option<i64>,
    },
    /// Run a command in a container.
    Exec {
        /// `namespace/name`.
        pod: String,
        /// The first if absent.
        container: Option<String>,
        /// Program and arguments.
        command: Vec<String>,
        /// Seconds.
        timeout: u64,
    },
    /// What a container wrote.
    Logs {
        /// `namespace/name`.
        pod: String,
        /// The first if absent.
        container: Option<String>,
    },
    /// Wait for a pod.
    Wait {
        /// `namespace/name`.
        pod: String,
        /// For what.
        condition: Condition,
        /// Seconds.
        timeout: u64,
    },
    /// Wait for healthy devices.
    WaitAllocatable {
        /// Resource.
        resource: String,
        /// How many.
        count: usize,
        /// Seconds.
        timeout: u64,
    },
    /// Capacity of the node.
    Node,
    /// Turn a knob.
    Set {
        /// Its name.
        key: String,
        /// JSON or text.
        value: String,
    },
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What was asked for.
    Done(Value),
    /// Why not.
    Failed(String),
}

/// Answers commands until it is dropped.
///
/// # Errors
/// The socket fails.
pub async fn serve(listener: UnixListener, kubelet: Arc<Kubelet>) -> Result<()> {
    loop {
        let (stream, _) = listener
            .accept()
            .await
            .map_err(Error::io("accept on", "control.sock"))?;
        let kubelet = Arc::clone(&kubelet);
        tokio::spawn(async move {
            // The asker may have gone away.
            let _ = answer_one(stream, &kubelet).await;
        });
    }
}

/// The socket for commands.
///
/// # Errors
/// It cannot be made.
pub fn listen(path: &Path) -> Result<UnixListener> {
    sockets::listen(path)
}

async fn answer_one(mut stream: UnixStream, kubelet: &Kubelet) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Err(error) => Answer::Failed(format!("command is not understood: {error}")),
        Ok(request) => match answer(kubelet, request).await {
            Ok(value) => Answer::Done(value),
            Err(error) => Answer::Failed(in_words(&error)),
        },
    };
    let text = serde_json::to_string(&answer)?;
    stream.write_all(format!("{text}\n").as_bytes()).await
}

async fn answer(kubelet: &Kubelet, request: Request) -> Result<Value> {
    let seconds = Duration::from_secs;
    match request {
        Request::Apply { text } => Ok(json!(kubelet.apply(&text)?)),
        Request::Get { pod: None } => Ok(json!(kubelet.pods())),
        Request::Get { pod: Some(pod) } => Ok(json!(kubelet.get(&pod)?)),
        Request::Delete { pod, force, grace } => Ok(json!(kubelet.delete(&pod, force, grace)?)),
        Request::Exec {
            pod,
            container,
            command,
            timeout,
        } => {
            let limit = seconds(timeout);
            let done = kubelet
                .exec(&pod, container.as_deref(), &command, limit)
                .await?;
            Ok(json!({
                "stdout": String::from_utf8_lossy(&done.stdout),
                "stderr": String::from_utf8_lossy(&done.stderr),
                "code": done.exit_code,
            }))
        }
        Request::Logs { pod, container } => Ok(json!(kubelet.logs(&pod, container.as_deref())?)),
        Request::Wait {
            pod,
            condition,
            timeout,
        } => {
            kubelet.wait(&pod, condition, seconds(timeout)).await?;
            Ok(json!(kubelet.get(&pod).ok()))
        }
        Request::WaitAllocatable {
            resource,
            count,
            timeout,
        } => {
            kubelet
                .wait_allocatable(&resource, count, seconds(timeout))
                .await?;
            Ok(Value::Null)
        }
        Request::Node => Ok(json!(kubelet.node().await?)),
        Request::Set { key, value } => Ok(json!(kubelet.set(&key, &value)?)),
    }
}

/// Sends one command.
///
/// # Errors
/// Nobody answers at the socket, or the command failed.
pub async fn ask(socket: &Path, request: &Request) -> Result<Value> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(Error::io("connect to", socket))?;
    let mut stream = BufReader::new(stream);
    let document = |source| Error::Document {
        path: socket.to_owned(),
        source,
    };
    let text = serde_json::to_string(request).map_err(document)?;
    let sent = stream.write_all(format!("{text}\n").as_bytes()).await;
    sent.map_err(Error::io("write to", socket))?;
    let mut line = String::new();
    stream
        .read_line(&mut line)
        .await
        .map_err(Error::io("read from", socket))?;
    match serde_json::from_str(&line).map_err(document)? {
        Answer::Done(value) => Ok(value),
        Answer::Failed(message) => Err(Error::Refused(message)),
    }
}
