//! Two pods and one slot: whoever comes last, the file is the newer one's.

use super::*;
use crate::markers::{Markers, allocate};
use crate::testing::{reserve, sandbox, store};
use podrail_core::cdi::{KIND, VERSION};
use podrail_core::ids::{RailIndex, RdmaName};
use std::collections::BTreeMap;

fn file(slot: u16, owner: &str) -> SlotFile {
    let (slot, sandbox) = (SlotId(slot), sandbox(owner));
    let text = serde_json::json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "annotations": {"podrail.io/sandbox": sandbox},
        "devices": [{"name": slot, "containerEdits": {}}],
    });
    SlotFile {
        slot,
        sandbox,
        rail: RailIndex(slot.0),
        rdma: RdmaName::parse("mlx5_0").unwrap(),
        nodes: vec![],
        text: text.to_string(),
    }
}

/// Opens the state file anew for each step, as every process does.
struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    /// Sandbox `old` has slots 3 and 4, and has not written its files yet.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Self { folder };
        reserve(&mut node.store(), "old", &[3, 4]).unwrap();
        node
    }

    fn store(&self) -> Store {
        store(self.folder.path())
    }

    fn cdi(&self) -> std::path::PathBuf {
        self.folder.path().join("cdi")
    }

    /// As the agent does at `Allocate`.
    fn allocate(&self, slot: u16) {
        let (markers, slots) = (Markers::at(self.folder.path()), [SlotId(slot)]);
        allocate(&mut self.store(), &markers, &slots, 100).unwrap();
        conceal_slots(&self.cdi(), &slots).unwrap();
    }

    fn write(&self, owner: &str, slots: &[u16]) -> Notes {
        let files: Vec<_> = slots.iter().map(|slot| file(*slot, owner)).collect();
        write_own(&self.cdi(), &files, (&sandbox(owner), &self.store())).unwrap()
    }

    fn owners(&self) -> BTreeMap<u16, String> {
        let found = CdiDir::open(&self.cdi()).unwrap().unwrap().list().unwrap();
        let owner = |found: podrail_attach::cdi::Found| {
            let owner = found.owner.unwrap().sandbox.to_string();
            (found.slot.0, owner)
        };
        found.into_iter().map(owner).collect()
    }
}

fn owned(slots: &[(u16, &str)]) -> BTreeMap<u16, String> {
    let slots = slots.iter();
    slots
        .map(|(slot, owner)| (*slot, (*owner).to_owned()))
        .collect()
}

#[test]
fn an_old_sandbox_that_was_slow_does_not_write_over_a_newer_ones_file() {
    let node = Node::new();
    node.allocate(3);
    reserve(&mut node.store(), "new", &[3]).unwrap();
    assert_eq!(node.write("new", &[3]), [""; 0]);
    let told = "slot-03 was given to another pod meanwhile: its CDI file is left";
    assert_eq!(node.write("old", &[3, 4]), [told]);
    assert_eq!(node.owners(), owned(&[(3, "new"), (4, "old")]));
}

/// The new pod may never have an ADD, being in the host's network: then its container must not find
/// the old one's devices.
#[test]
fn a_slot_that_was_given_away_gets_no_file_of_its_old_sandbox() {
    let node = Node::new();
    node.write("old", &[3, 4]);
    node.allocate(3);
    assert_eq!(node.owners(), owned(&[(4, "old")]));
    assert_eq!(node.write("old", &[3, 4]).len(), 1);
    assert_eq!(node.owners(), owned(&[(4, "old")]));
}

#[test]
fn a_slot_that_is_given_away_while_its_file_is_written_has_none_in_the_end() {
    for _ in 0..30 {
        let node = Node::new();
        std::thread::scope(|scope| {
            scope.spawn(|| node.write("old", &[3, 4]));
            scope.spawn(|| node.allocate(3));
        });
        assert_eq!(node.owners(), owned(&[(4, "old")]));
    }
}

#[test]
fn a_symlink_holds_no_binding_back_and_gives_no_slot_out() {
    let node = Node::new();
    std::fs::create_dir(node.folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", node.cdi()).unwrap();
    let binding = node.store().get(&sandbox("old")).unwrap().unwrap();
    CdiFiles::of_others(&node.cdi()).conceal(&binding).unwrap();
    let error = conceal_slots(&node.cdi(), &[SlotId(3)]).unwrap_err();
    assert!(error.is_no_directory(), "{error}");
}

#[test]
fn files_without_a_living_owner_go_and_foreign_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let ours = |slot: u16| podrail_core::cdi::file_name(SlotId(slot));
    write(&ours(1), &file(1, "nobody").text);
    write(&ours(2), "{half");
    write("nvidia.com-gpu.json", "{}");
    write(".podrail.io-rail_slot-03.json.tmp", "{half");
    let none = || Ok::<_, CdiFileError>(vec![]);
    let removed = Orphans {
        slots: vec![SlotId(1), SlotId(2)],
        temporary: 1,
    };
    assert_eq!(remove_orphans(dir.path(), none).unwrap(), removed);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let nothing = Orphans::default();
    assert_eq!(remove_orphans(dir.path(), none).unwrap(), nothing);
    assert_eq!(
        remove_orphans(Path::new("/nowhere"), none).unwrap(),
        nothing
    );
}
