//! A node with its files: state file, markers and CDI directory are real; namespaces are plain files
//! whose numbers count.

use super::kernel::{Sim, file_id};
use crate::garbage::Sight;
use crate::kernel::Kernel;
use crate::markers::Markers;
use crate::session::open_state_in;
use crate::{NodeError, Settings};
use podrail_core::ids::{IfName, RailIndex, RdmaName, RootId};
use podrail_core::topology::{LinkState, PciPath, Rail, RailFault, Topology};
use podrail_store::{ReadOnly, Store};
use std::fs;
use std::path::{Path, PathBuf};

/// Rails of the node, and pods that may share one.
pub(super) const RAILS: u16 = 4;
pub(super) const SHARES: u16 = 2;
/// Addresses of the node: one fewer than shares, so that they run out too.
pub(super) const ADDRESSES: usize = 7;

/// A node with its files.
#[derive(Debug)]
pub(super) struct Node {
    dir: tempfile::TempDir,
    pub(super) kernel: Sim,
    pub(super) settings: Settings,
    pub(super) sight: Sight,
}

impl Node {
    pub(super) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let dir = dir.unwrap();
        for name in ["netns", "graves", "proc"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let document = serde_json::json!({
            "pool": { "subnets": ["10.9.0.0/24"], "blockSize": ADDRESSES, "block": 0 },
            "rails": { "shares": SHARES },
        });
        let node = Self {
            kernel: Sim::new((0..RAILS).map(|rail| netdev(rail).to_string())),
            settings: Settings::from_document(document, &[]).unwrap(),
            sight: Sight {
                proc: dir.path().join("proc"),
                all_processes: true,
                same_mounts: true,
            },
            dir,
        };
        node.open().unwrap();
        node
    }

    pub(super) fn state(&self) -> PathBuf {
        self.dir.path().join("state/state.db")
    }

    pub(super) fn cdi(&self) -> PathBuf {
        self.dir.path().join("cdi")
    }

    pub(super) fn read(&self) -> ReadOnly {
        Store::open_read_only(&self.state()).unwrap()
    }

    pub(super) fn markers(&self) -> Markers {
        Markers::at(&self.dir.path().join("state"))
    }

    pub(super) fn open(&self) -> Result<Store, NodeError> {
        Ok(open_state_in(&self.state(), &self.kernel.boot()?)?.store)
    }

    /// A new namespace with a process in it. `again`: with the number of one that is gone.
    pub(super) fn make_netns(&self, name: &str, again: bool) -> PathBuf {
        let path = self.dir.path().join("netns").join(name);
        let mut graves = fs::read_dir(self.dir.path().join("graves")).unwrap();
        match graves.next().filter(|_| again) {
            Some(grave) => fs::rename(grave.unwrap().path(), &path).unwrap(),
            None => fs::write(&path, "").unwrap(),
        }
        let process = self.process(&path);
        fs::create_dir_all(process.parent().unwrap()).unwrap();
        fs::hard_link(&path, process).unwrap();
        self.kernel.make(&path);
        path
    }

    /// The process of the namespace at a path.
    fn process(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap().to_str().unwrap();
        let pid: String = name.bytes().map(|byte| byte.to_string()).collect();
        self.dir.path().join("proc").join(pid).join("ns/net")
    }

    pub(super) fn gone(&self, path: &Path, whole: bool) {
        let process = self.process(path);
        let Some(id) = file_id(&process) else { return };
        if !whole {
            let _ = fs::remove_file(path);
            return;
        }
        self.kernel.destroy(id);
        let _ = fs::remove_file(path);
        let grave = self.dir.path().join("graves").join(id.ino.to_string());
        fs::rename(&process, grave).unwrap();
        fs::remove_dir_all(process.parent().unwrap().parent().unwrap()).unwrap();
    }

    /// All that is not on a disk is gone. The state file is.
    pub(super) fn reboot(&self) {
        self.kernel.reboot();
        let _ = fs::remove_dir_all(self.cdi());
        for name in ["netns", "proc", "graves"] {
            let dir = self.dir.path().join(name);
            fs::remove_dir_all(&dir).unwrap();
            fs::create_dir(&dir).unwrap();
        }
    }

    /// The node with its links as they are now.
    pub(super) fn topology(&self) -> Topology {
        let rail = |rail| self.rail(rail);
        Topology {
            rails: (0..RAILS).map(rail).collect(),
            ..Topology::default()
        }
    }

    fn rail(&self, index: u16) -> Rail {
        let netdev = netdev(index);
        let link = self.kernel.link(netdev.as_str());
        let path = PciPath {
            root: RootId::parse("0000:00").unwrap(),
            bridges: vec![],
            function: format!("0000:0{index}:00.0").parse().unwrap(),
            numa: None,
        };
        Rail {
            index: RailIndex(index),
            nic: path.function.nic(),
            path,
            pci_id: (0x15b3, 0x1019),
            netdev: Some(netdev),
            ifindex: None,
            rdma: RdmaName::parse(&format!("mlx5_{index}")).ok(),
            port: 1,
            uverbs: Some(format!("uverbs{index}")),
            umad: None,
            issm: None,
            guid: None,
            mac: None,
            mtu: Some(4220),
            speed_mbps: None,
            link: if link == Some(true) {
                LinkState::Up
            } else {
                LinkState::Down
            },
            faults: link.map_or_else(|| vec![RailFault::Gone], |_| vec![]),
        }
    }
}

pub(super) fn netdev(rail: u16) -> IfName {
    IfName::parse(&format!("rdma{rail}")).unwrap()
}
