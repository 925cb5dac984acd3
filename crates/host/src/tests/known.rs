//! Rails that are there at the first look and not at a later one.

use super::tree_text::{Expanded, expand};
use crate::{Pattern, discover};
use podrail_core::ids::RdmaName;
use podrail_core::topology::{Excluded, LinkState, RailFault, Topology};

const THREE: &str = "\
kernel default-route eth0
pci pci0000:0b/0000:0b:00.0/0000:0c:00.0 15b3:1019 0x020000
pci pci0000:0b/0000:0b:01.0/0000:16:00.0 15b3:1019 0x020000
pci pci0000:0b/0000:0b:02.0/0000:17:00.0 15b3:1019 0x020000
net rdma0 at pci0000:0b/0000:0b:00.0/0000:0c:00.0
net rdma1 at pci0000:0b/0000:0b:01.0/0000:16:00.0
net rdma2 at pci0000:0b/0000:0b:02.0/0000:17:00.0
rdma mlx5_0 at pci0000:0b/0000:0b:00.0/0000:0c:00.0 | uverbs=0
rdma mlx5_1 at pci0000:0b/0000:0b:01.0/0000:16:00.0 | uverbs=1
rdma mlx5_2 at pci0000:0b/0000:0b:02.0/0000:17:00.0 | uverbs=2";

const FUNCTION: &str = "sys/devices/pci0000:0b/0000:0b:01.0/0000:16:00.0";

/// The three rails as they were, with one that became another: its faults and what is excluded.
struct Looks {
    tree: Expanded,
    before: Topology,
}

impl Looks {
    fn first() -> Self {
        let tree = expand(THREE);
        let before = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
        let before = before.topology;
        assert_eq!(before.rails.len(), 3);
        Self { tree, before }
    }

    fn lose(&self, path: &str) {
        let path = self.tree.dir.path().join(path);
        let gone = match path.symlink_metadata().unwrap().is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        gone.unwrap();
    }

    fn lose_device(&self) {
        for path in [
            "sys/class/infiniband/mlx5_1",
            "sys/class/infiniband_verbs/uverbs1",
        ] {
            self.lose(path);
        }
        self.lose(&format!("{FUNCTION}/infiniband"));
    }

    fn lose_interface(&self) {
        self.lose("sys/class/net/rdma1");
        self.lose(&format!("{FUNCTION}/net"));
    }

    fn again(&self) -> Topology {
        let Self { tree, before } = self;
        let found = discover(tree.dir.path(), &tree.kernel, &tree.select, Some(before));
        found.unwrap().topology
    }

    /// The second rail is there with this fault, and all else is as before.
    fn has_fault(&self, fault: RailFault) -> Topology {
        let mut now = self.again();
        let found = now.clone();
        assert_eq!(now.rails[1].faults, [fault]);
        assert_eq!(now.rails[1].rdma, None);
        now.rails[1] = self.before.rails[1].clone();
        assert_eq!(now, self.before);
        found
    }
}

#[test]
fn without_its_rdma_device() {
    let looks = Looks::first();
    looks.lose_device();
    let found = looks.has_fault(RailFault::NoRdmaDevice);
    assert_eq!(found.rails[1].netdev, looks.before.rails[1].netdev);
    assert_eq!(found.rails[1].uverbs, None);
}

#[test]
fn without_device_and_interface_and_without_its_card() {
    let looks = Looks::first();
    looks.lose_device();
    looks.lose_interface();
    let found = looks.has_fault(RailFault::Gone);
    assert_eq!(
        (&found.rails[1].netdev, found.rails[1].link),
        (&None, LinkState::Down)
    );
    looks.lose("sys/bus/pci/devices/0000:16:00.0");
    looks.lose(FUNCTION);
    let again = looks.has_fault(RailFault::Gone);
    assert_eq!(again, found);
}

#[test]
fn it_stays_known_as_often_as_one_looks_and_comes_back_as_it_was() {
    let mut looks = Looks::first();
    let first = looks.before.clone();
    looks.lose_device();
    looks.lose_interface();
    looks.before = looks.again();
    assert_eq!(looks.again(), looks.before);
    looks.tree = expand(THREE);
    assert_eq!(looks.again(), first);
}

#[test]
fn its_interface_in_another_namespace() {
    let looks = Looks::first();
    looks.lose_interface();
    let found = looks.has_fault(RailFault::NoInterface);
    assert_eq!(found.excluded, []);
}

#[test]
fn what_is_not_wanted_any_more_is_no_rail() {
    let mut looks = Looks::first();
    looks.lose_device();
    looks.tree.select.exclude = vec![Pattern::parse("0000:16:00.0").unwrap()];
    assert_eq!(looks.again().rails.len(), 2);
    looks.tree.select.exclude = vec![];
    assert_eq!(looks.again().rails.len(), 3);
    let name = looks.before.rails[1].netdev.clone().unwrap();
    looks.tree.kernel.default_route = Some(vec![name]);
    assert_eq!(looks.again().rails.len(), 2);
}

#[test]
fn an_excluded_port_that_is_there_stays_excluded() {
    let mut looks = Looks::first();
    looks.tree.select.exclude = vec![Pattern::parse("mlx5_1").unwrap()];
    let now = looks.again();
    let device = RdmaName::parse("mlx5_1").unwrap();
    let is_it = |port: &Excluded| port.rdma.as_ref() == Some(&device);
    assert!(
        now.rails.len() == 2 && now.excluded.iter().any(is_it),
        "{now:?}"
    );
}

/// Without an earlier look, as after a boot, what is not there is not known.
#[test]
fn another_boot_counts_anew() {
    let looks = Looks::first();
    looks.lose_device();
    looks.lose_interface();
    let Looks { tree, .. } = &looks;
    let found = discover(tree.dir.path(), &tree.kernel, &tree.select, None).unwrap();
    assert_eq!(found.topology.rails.len(), 2);
}
