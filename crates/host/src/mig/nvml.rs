//! The NVIDIA driver's library (NVML), loaded at run time and asked for the GPUs of MIG devices.
//!
//! It runs in a thread of its own: a GPU that fell off its bus can keep NVML waiting in the kernel,
//! and a pod's start must not wait with it.

use nvml_wrapper::Nvml as Session;
use nvml_wrapper::error::NvmlError;
use podrail_core::gpus::devices::MigParents;
use podrail_core::ids::PciAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// By the loader's own search; then where the driver container of the GPU operator mounts its root,
/// by the library directories of its distributions; then where GKE installs the driver.
const LIBRARIES: [&str; 5] = [
    "libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
];
/// NVML sets a GPU up that no process holds open, for some seconds each; the device plugin, which
/// gave the devices, holds them all.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where NVML is, and how long it may take.
#[derive(Debug, Clone)]
pub(crate) struct Nvml {
    /// Tried in this order until one starts. A name without a slash is searched by the loader.
    pub(crate) libraries: Vec<PathBuf>,
    /// For all questions together.
    pub(crate) patience: Duration,
}

/// What NVML said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// MIG devices that it knows.
    pub(crate) parents: MigParents,
    /// Others, and why.
    pub(crate) refusals: BTreeMap<String, String>,
    /// If none served: each library that is there, and why not.
    pub(crate) failures: Vec<(String, String)>,
}

impl Nvml {
    /// The libraries of a node; none for a captured tree, whose code is not ours to run.
    pub(crate) fn of_node(root: &Path) -> Self {
        let live = root.canonicalize().is_ok_and(|root| root == Path::new("/"));
        let libraries = LIBRARIES.iter().filter(|_| live).map(PathBuf::from);
        Self {
            libraries: libraries.collect(),
            patience: PATIENCE,
        }
    }

    /// Asks for the GPUs of these MIG devices.
    pub(crate) fn ask(&self, ids: &BTreeSet<String>) -> Answer {
        if self.libraries.is_empty() {
            return Answer::default();
        }
        let (tell, told) = mpsc::channel();
        let (libraries, ids) = (self.libraries.clone(), ids.clone());
        // Not joined: it may never end. The receiver is gone then, which is all that `send` finds.
        let thread = thread::Builder::new().name("nvml".to_owned());
        let spawned = thread.spawn(move || drop(tell.send(first_answer(&libraries, &ids))));
        if let Err(error) = spawned {
            return Answer::failure(format!("no thread for it: {error}"));
        }
        let seconds = self.patience.as_secs_f32();
        told.recv_timeout(self.patience)
            .unwrap_or_else(|error| match error {
                RecvTimeoutError::Timeout => {
                    Answer::failure(format!("did not answer within {seconds} s"))
                }
                RecvTimeoutError::Disconnected => Answer::failure("broke off".to_owned()),
            })
    }
}

impl Answer {
    fn failure(why: String) -> Self {
        Self {
            failures: vec![("NVML".to_owned(), why)],
            ..Self::default()
        }
    }

    fn add(&mut self, id: &str, parent: Result<PciAddr, String>) {
        match parent {
            Ok(parent) => _ = self.parents.insert(id.to_owned(), parent),
            Err(why) => _ = self.refusals.insert(id.to_owned(), why),
        }
    }
}

/// The answer of the first library that starts. One that does not fit the running kernel module, as
/// a left-over of another installation, refuses to start.
fn first_answer(libraries: &[PathBuf], ids: &BTreeSet<String>) -> Answer {
    let mut answer = Answer::default();
    for library in libraries {
        if library.is_absolute() && !library.exists() {
            continue;
        }
        match Session::builder().lib_path(library.as_os_str()).init() {
            Ok(session) => {
                for id in ids {
                    answer.add(id, parent(&session, id));
                }
                end(session);
                answer.failures.clear();
                break;
            }
            Err(error) => {
                let name = library.display().to_string();
                answer.failures.push((name, words(&error)));
            }
        }
    }
    answer
}

fn parent(session: &Session, id: &str) -> Result<PciAddr, String> {
    let of_parent = |session: &Session| {
        let device = session.device_by_uuid(id)?;
        device.mig_parent_device()?.pci_info()
    };
    let info = of_parent(session).map_err(|error| words(&error))?;
    PciAddr::parse(&info.bus_id).map_err(|error| format!("NVML's answer: {error}"))
}

/// Ends a session. Ending one whose library lacks the function for it panics: such a one stays.
fn end(session: Session) {
    if session.lib().nvmlShutdown.is_err() {
        std::mem::forget(session);
    }
}

fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(why) => format!("cannot be loaded: {why}"),
        NvmlError::FailedToLoadSymbol(why) => format!("NVML lacks a function: {why}"),
        NvmlError::NotFound | NvmlError::InvalidArg => "NVML knows no such MIG device".to_owned(),
        other => format!("NVML: {other}"),
    }
}
