//! MIG devices of several split GPUs, told by a stand-in for NVML that `cc` builds. The real library
//! needs a GPU; the stand-in follows its documented answers.

use super::tree_text::{Expanded, expand};
use crate::mig::{Nvml, parents};
use podrail_core::gpus::devices::MigParents;
use podrail_core::ids::PciAddr;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("mig_nvml.c");
/// Two split GPUs.
const SPLIT: &str = "nvidia 0000:0f:00.0 | Device Minor=0\nnvidia 10000:ca:00.0 | Device Minor=1
    file proc/driver/nvidia/capabilities/gpu0/mig/gi1/access DeviceFileMinor: 3
    file proc/driver/nvidia/capabilities/gpu1/mig/gi2/access DeviceFileMinor: 4";
const ONE_SPLIT: &str = "nvidia 0000:0f:00.0 | Device Minor=0
    file proc/driver/nvidia/capabilities/gpu0/mig/gi1/access DeviceFileMinor: 3";

/// A node with libraries.
struct Node {
    tree: Expanded,
    libraries: Vec<PathBuf>,
    patience: Duration,
}

impl Node {
    fn new(text: &str) -> Self {
        Self {
            tree: expand(text),
            libraries: Vec::new(),
            patience: Duration::from_secs(60),
        }
    }

    fn dir(&self) -> &Path {
        self.tree.dir.path()
    }

    /// Adds a library that is built with these definitions; none without a compiler.
    fn library(mut self, define: &[&str]) -> Option<Self> {
        let number = self.libraries.len();
        let source = self.dir().join("nvml.c");
        fs::write(&source, SOURCE).unwrap();
        let library = self.dir().join(format!("libnvidia-ml.so.{number}"));
        let log = format!("-DLOG=\"{}\"", self.log_path(number).display());
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]);
        cc.arg(log)
            .args(define.iter().map(|name| format!("-D{name}")));
        match cc.output() {
            Err(error) if error.kind() == ErrorKind::NotFound => return skip("no C compiler `cc`"),
            output => {
                let output = output.unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{text}");
            }
        }
        self.libraries.push(library);
        Some(self)
    }

    fn log_path(&self, library: usize) -> PathBuf {
        self.dir().join(format!("log{library}"))
    }

    /// What became of a library's sessions.
    fn log(&self, library: usize) -> String {
        fs::read_to_string(self.log_path(library)).unwrap_or_default()
    }

    /// Parents, and notes as text.
    fn ask(&self, ids: &[&str]) -> (MigParents, Vec<String>) {
        let nvml = Nvml {
            libraries: self.libraries.clone(),
            patience: self.patience,
        };
        let ids: BTreeSet<String> = ids.iter().map(|&id| id.to_owned()).collect();
        let (parents, notes) = parents(self.dir(), &ids, &nvml).unwrap();
        (parents, notes.iter().map(ToString::to_string).collect())
    }
}

fn skip<T>(why: &str) -> Option<T> {
    let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!in_ci, "required in CI: {why}");
    // Straight to the stream: the harness hides what passing tests print.
    drop(writeln!(std::io::stderr(), "skipped: {why}"));
    None
}

fn told(pairs: &[(&str, &str)]) -> MigParents {
    let pair = |(id, gpu): &(&str, &str)| ((*id).to_owned(), PciAddr::parse(gpu).unwrap());
    pairs.iter().map(pair).collect()
}

const A1: (&str, &str) = ("MIG-a1", "0000:0f:00.0");
const UNKNOWN: &str = "2 GPUs are split, and which one this is a part of is not known";

#[test]
fn each_device_finds_its_own_gpu_and_others_are_noted() {
    let Some(node) = Node::new(SPLIT).library(&[]) else {
        return;
    };
    let (parents, notes) = node.ask(&["MIG-a1", "MIG-a2", "MIG-b1", "MIG-b2"]);
    let b = "10000:ca:00.0";
    let all = [A1, ("MIG-a2", A1.1), ("MIG-b1", b), ("MIG-b2", b)];
    assert_eq!(parents, told(&all));
    assert_eq!(notes, [""; 0]);
    assert_eq!(node.log(0), "start\nend\n");

    let (parents, notes) = node.ask(&["MIG-0dd", "MIG-105f", "MIG-a1", "MIG-c1", "GPU-a"]);
    assert_eq!(parents, told(&[A1]));
    let wanted = [
        ("GPU-a", "NVML knows no such MIG device"),
        ("MIG-0dd", "NVML's answer: "),
        ("MIG-105f", "NVML: device fell off the bus"),
        ("MIG-c1", "NVML knows no such MIG device"),
    ];
    assert_eq!(notes.len(), wanted.len(), "{notes:#?}");
    for (note, (id, why)) in notes.iter().zip(wanted) {
        assert!(
            note.starts_with(&format!("{id}: {UNKNOWN}: {why}")),
            "{note}"
        );
    }
    assert_eq!(node.log(0), "start\nend\nstart\nend\n");
}

#[test]
fn nvml_is_asked_only_when_proc_leaves_something_open() {
    let Some(node) = Node::new(ONE_SPLIT).library(&[]) else {
        return;
    };
    let (parents, notes) = node.ask(&["MIG-a1"]);
    assert_eq!((parents, notes.len()), (told(&[A1]), 0));
    assert_eq!(node.log(0), "");
    let several = Node::new(SPLIT).library(&[]).unwrap();
    assert_eq!(several.ask(&[]), (MigParents::new(), vec![]));
    assert_eq!(several.log(0), "");
}

#[test]
fn a_library_that_does_not_start_gives_way_to_the_next() {
    // 9: the driver is not loaded; 18: the library does not fit the kernel module.
    let Some(node) = Node::new(SPLIT).library(&["INIT=9"]) else {
        return;
    };
    let node = node.library(&["INIT=18"]).unwrap();
    let (parents, notes) = node.ask(&["MIG-a1"]);
    assert!(parents.is_empty());
    assert_eq!(notes.len(), 3, "{notes:#?}");
    let why = "libnvidia-ml.so.0: NVML: NVIDIA driver is not loaded";
    assert!(notes[0].ends_with(why), "{notes:#?}");
    assert!(notes[1].contains("libnvidia-ml.so.1: NVML: "), "{notes:#?}");
    assert_eq!(
        notes[2],
        format!("MIG-a1: {UNKNOWN}: no file says, nor does NVML")
    );

    let node = node.library(&[]).unwrap();
    assert_eq!(node.ask(&["MIG-a1"]), (told(&[A1]), vec![]));
    let logs = [0, 1, 2].map(|library| node.log(library));
    assert_eq!(logs, ["start\nstart\n", "start\nstart\n", "start\nend\n"]);
}

#[test]
fn absent_and_broken_libraries_are_noted() {
    let mut node = Node::new(SPLIT);
    let broken = node.dir().join("broken.so");
    fs::write(&broken, "no library").unwrap();
    let absent = node.dir().join("absent.so");
    node.libraries = vec!["libpodrail-not-there.so.1".into(), absent, broken];
    let (parents, notes) = node.ask(&["MIG-a1"]);
    assert!(parents.is_empty());
    assert_eq!(notes.len(), 3, "{notes:#?}");
    let loader = "libpodrail-not-there.so.1: cannot be loaded: ";
    assert!(notes[0].starts_with(loader), "{notes:#?}");
    assert!(
        notes[1].contains("broken.so: cannot be loaded: "),
        "{notes:#?}"
    );
    assert_eq!(
        notes[2],
        format!("MIG-a1: {UNKNOWN}: no file says, nor does NVML")
    );
}

#[test]
fn a_library_without_a_function_is_noted_and_does_no_harm() {
    let Some(node) = Node::new(SPLIT).library(&["NO_SHUTDOWN"]) else {
        return;
    };
    assert_eq!(node.ask(&["MIG-a1"]), (told(&[A1]), vec![]));
    let node = Node::new(SPLIT).library(&["NO_PARENT"]).unwrap();
    let (parents, notes) = node.ask(&["MIG-a1"]);
    assert!(parents.is_empty());
    assert_eq!(notes.len(), 1, "{notes:#?}");
    assert!(
        notes[0].starts_with(&format!("MIG-a1: {UNKNOWN}: NVML lacks a function: ")),
        "{notes:#?}"
    );
    assert_eq!(node.log(0), "start\nend\n");
}

#[test]
fn a_library_that_hangs_is_left_behind() {
    let Some(mut node) = Node::new(SPLIT).library(&["HANG"]) else {
        return;
    };
    node.patience = Duration::from_millis(300);
    let (parents, notes) = node.ask(&["MIG-a1"]);
    assert!(parents.is_empty());
    let wanted = [
        "NVML: did not answer within 0.3 s".to_owned(),
        format!("MIG-a1: {UNKNOWN}: no file says, nor does NVML"),
    ];
    assert_eq!(notes, wanted);
}

#[test]
fn only_a_live_node_has_libraries() {
    assert_eq!(
        Nvml::of_node(Node::new(SPLIT).dir()).libraries,
        [""; 0].map(PathBuf::from)
    );
    let live = Nvml::of_node(Path::new("/")).libraries;
    assert_eq!(live[0], Path::new("libnvidia-ml.so.1"));
    assert!(live[1..].iter().all(|library| library.is_absolute()));
}
