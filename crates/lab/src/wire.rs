//! What the host and the guest's agent say to each other over the virtio-serial port.
//!
//! A frame is two little-endian lengths, a JSON head and a raw body. Bytes of files and pipes
//! travel in the body, so nothing is escaped under emulation. Absent on purpose: versions. Both
//! ends are built from this file, in the same run.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The virtio port's name, in the QEMU arguments and in the guest's sysfs.
pub(crate) const PORT: &str = "podrail.agent";

/// No frame is larger: a bad length is then an error and not an allocation.
const FRAME_LIMIT: usize = 256 << 20;

/// Host to guest: do something under this id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: Op,
}

/// What the guest is asked to do. "Body" is the frame's raw part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// Start a process; the body is its first standard input.
    Start(Start),
    /// More standard input (the body) for a process started with `keep_stdin`.
    Stdin { eof: bool },
    /// Send a signal to the process group.
    Kill { signal: i32 },
    /// Write the body to a file.
    Write { path: String, mode: u32 },
    /// Answer with the bytes of a file.
    Read { path: String },
    /// Load a kernel module and what it depends on.
    LoadModule { name: String },
}

/// A process to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// A name below `/run/netns`, or a path.
    pub(crate) netns: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) keep_stdin: bool,
    /// Give it a terminal of this size instead of pipes.
    pub(crate) terminal: Option<Window>,
}

/// Rows and columns of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// Guest to host: something happened to the request of this id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// The node is set up (id 0, once).
    Ready(BootReport),
    /// The process runs.
    Started { pid: i32 },
    /// The body came from standard output (or the terminal).
    Stdout,
    /// The body came from standard error.
    Stderr,
    /// The process ended.
    Exited(Status),
    /// A request without output was carried out; the body is a file's content.
    Done,
    /// The request could not be carried out.
    Failed { message: String },
}

/// What the guest found when it came up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootReport {
    /// `uname -r`.
    pub kernel: String,
    /// Guest clock when the agent started, in milliseconds.
    pub agent_ms: u64,
    /// Guest clock when the node was set up, in milliseconds.
    pub ready_ms: u64,
}

/// How a process in the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl Status {
    /// Whether it exited with code 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code a shell would report: the exit code, or 128 and the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Writes one frame with one call, so that two threads' frames cannot mix.
pub(crate) fn send<T: Serialize>(to: &mut impl Write, head: &T, body: &[u8]) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    let mut frame = Vec::with_capacity(8 + head.len() + body.len());
    for part in [head.len(), body.len()] {
        frame.extend_from_slice(&length(part)?.to_le_bytes());
    }
    frame.extend_from_slice(&head);
    frame.extend_from_slice(body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one frame; `None` when the other end closed between two frames.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &mut impl Read,
) -> io::Result<Option<(T, Vec<u8>)>> {
    let Some(head) = read_length(from)? else {
        return Ok(None);
    };
    let body = read_length(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let head = serde_json::from_slice(&read_exactly(from, head)?)?;
    Ok(Some((head, read_exactly(from, body)?)))
}

fn length(of: usize) -> io::Result<u32> {
    match u32::try_from(of) {
        Ok(short) if of <= FRAME_LIMIT => Ok(short),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "frame too large",
        )),
    }
}

fn read_length(from: &mut impl Read) -> io::Result<Option<usize>> {
    let mut bytes = [0; 4];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
    if length > FRAME_LIMIT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "frame too large",
        ));
    }
    Ok(Some(length))
}

fn read_exactly(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_port() {
        let request = Request {
            id: 7,
            op: Op::Read {
                path: "/etc/hosts".into(),
            },
        };
        let mut port = Vec::new();
        send(&mut port, &request, b"\0\xff body").unwrap();
        send(&mut port, &request, b"").unwrap();
        let mut port = port.as_slice();
        let first = receive::<Request>(&mut port).unwrap().unwrap();
        assert_eq!(first, (request.clone(), b"\0\xff body".to_vec()));
        assert_eq!(
            receive::<Request>(&mut port).unwrap().unwrap(),
            (request, Vec::new())
        );
        assert!(receive::<Request>(&mut port).unwrap().is_none());
    }

    #[test]
    fn a_cut_or_absurd_frame_is_an_error() {
        assert!(receive::<Request>(&mut [1, 0].as_slice()).is_err());
        assert!(receive::<Request>(&mut [0xff; 8].as_slice()).is_err());
    }

    #[test]
    fn status_reads_like_a_shell() {
        assert_eq!(Status::Signal(9).shell_code(), 137);
        assert!(!Status::Signal(0).success());
    }
}
