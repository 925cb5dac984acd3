//! Namespaces that are gone, there, or out of sight. A plain file with its inode stands for a
//! namespace: only numbers are compared.

use super::*;
use podrail_core::ids::SandboxId;
use podrail_store::{BootId, Request, State};
use std::fs;

struct Host {
    dir: tempfile::TempDir,
    sight: Sight,
}

impl Host {
    /// Sees everything; one process that is in no namespace of ours.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("netns")).unwrap();
        let sight = Sight {
            proc: dir.path().join("proc"),
            all_processes: true,
            same_mounts: true,
        };
        let host = Self { dir, sight };
        host.process("17", &host.file("other"));
        host
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, "").unwrap();
        path
    }

    /// A process in the namespace at a path.
    fn process(&self, pid: &str, netns: &Path) {
        let ns = self.sight.proc.join(pid).join("ns");
        fs::create_dir_all(&ns).unwrap();
        fs::hard_link(netns, ns.join("net")).unwrap();
    }
}

fn binding(path: &Path) -> Binding {
    let found = fs::metadata(path).unwrap();
    Binding {
        request: Request {
            sandbox: SandboxId::parse("a").unwrap(),
            fingerprint: String::new(),
            netns: path.to_str().unwrap().into(),
            netns_id: Some(NetnsId {
                dev: found.dev(),
                ino: found.ino(),
            }),
            gpus: vec![],
            pod: None,
            at: 0,
            seen: std::collections::BTreeMap::new(),
        },
        state: State::Ready,
        boot: BootId::parse("00000000-0000-4000-8000-000000000000").unwrap(),
        sequence: 1,
        rails: vec![],
        leases: vec![],
        plan: String::new(),
    }
}

#[test]
fn a_namespace_whose_path_leads_to_it_is_there() {
    let host = Host::new();
    let path = host.file("netns/a");
    assert_eq!(host.sight.is_gone(&binding(&path)), Gone::No);
}

#[test]
fn a_namespace_without_path_and_process_is_gone() {
    let host = Host::new();
    let path = host.file("netns/a");
    let held = binding(&path);
    // Keeps the inode from being used again.
    fs::rename(&path, host.dir.path().join("kept")).unwrap();
    assert_eq!(host.sight.is_gone(&held), Gone::Yes);
    // What a runtime leaves when the mount is gone.
    host.file("netns/a");
    assert_eq!(host.sight.is_gone(&held), Gone::Yes);
}

#[test]
fn a_process_in_it_keeps_a_namespace_whose_path_is_gone() {
    let host = Host::new();
    let path = host.file("netns/a");
    let held = binding(&path);
    host.process("4711", &path);
    fs::remove_file(&path).unwrap();
    assert_eq!(host.sight.is_gone(&held), Gone::No);
}

#[test]
fn who_does_not_see_the_host_cannot_tell() {
    let mut host = Host::new();
    let path = host.file("netns/a");
    let held = binding(&path);
    fs::rename(&path, host.dir.path().join("kept")).unwrap();
    host.sight.all_processes = false;
    assert_eq!(host.sight.is_gone(&held), Gone::CannotTell);
    // An empty directory of a container, in place of the host's.
    host.sight.all_processes = true;
    host.sight.same_mounts = false;
    assert_eq!(host.sight.is_gone(&held), Gone::CannotTell);
    host.file("netns/a");
    assert_eq!(host.sight.is_gone(&held), Gone::CannotTell);
}

#[test]
fn a_directory_that_is_gone_or_an_unknown_namespace_tells_nothing() {
    let host = Host::new();
    let path = host.file("netns/a");
    let mut held = binding(&path);
    fs::rename(host.dir.path().join("netns"), host.dir.path().join("moved")).unwrap();
    assert_eq!(host.sight.is_gone(&held), Gone::CannotTell);
    held.request.netns_id = None;
    assert_eq!(host.sight.is_gone(&held), Gone::CannotTell);
}

#[test]
fn a_container_of_its_own_does_not_claim_to_see_the_host() {
    let sight = Sight::find_out();
    let first = fs::metadata("/proc/self/ns/pid").unwrap().ino() == FIRST_PID_NAMESPACE;
    assert_eq!(sight.all_processes, first);
    assert!(first || !sight.same_mounts);
}
