//! Random content in files and dumps: never a panic, always an answer.

use super::tree_text::expand;
use crate::{KernelAnswers, Selectors, discover, dump};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn regular_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            regular_files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80),
        "[-0-9a-fx:. /\\n]{0,40}".prop_map(String::into_bytes),
        "\\PC{0,40}".prop_map(String::into_bytes),
        Just(b"99999999999999999999\n".to_vec()),
        Just(b"0x\n".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn trees(changes in proptest::collection::vec((any::<prop::sample::Index>(), content()), 1..40)) {
        let tree = expand(include_str!("../../../../fixtures/sysfs/odd.txt"));
        let mut files = Vec::new();
        regular_files(tree.dir.path(), &mut files);
        for (index, bytes) in &changes {
            std::fs::write(index.get(&files), bytes).unwrap();
        }
        let select = Selectors { generic_gpus: true, virtual_functions: true, ..Selectors::default() };
        let found = discover(tree.dir.path(), &KernelAnswers::default(), &select, None);
        prop_assert!(found.is_ok());
    }

    #[test]
    fn changed_dumps(
        (first, second) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        put in "[<>/\"=a-z0-9:.\\[\\] -]{0,20}",
        hwloc in any::<bool>(),
    ) {
        let text = if hwloc {
            include_str!("../../../../fixtures/hwloc/gpu-node-v2.xml")
        } else {
            include_str!("../../../../fixtures/nccl-topo/BM.GPU.H100.8.xml")
        };
        let (from, to) = (first.index(text.len()), second.index(text.len()));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 30));
        let mut bytes = text.as_bytes().to_vec();
        bytes.splice(from..to, put.bytes());
        let text = String::from_utf8_lossy(&bytes);
        let _ = dump::parse(Path::new("x"), &text, &Selectors::default());
    }

    #[test]
    fn attributes(values in proptest::collection::vec("[-0-9a-fx:.,\\[\\] ]{0,24}", 12)) {
        let v = |i: usize| values[i].as_str();
        let nccl = format!(
            "<system><cpu numaid='{}' host_hash='{}'><pci busid='{}' class='{}'/>\
             <pci busid='0000:01:00.0' vendor='{}'><nic><net name='mlx5_0' port='{}' guid='0x{}' speed='{}'/>\
             </nic></pci></cpu></system>",
            v(0), v(1), v(2), v(3), v(4), v(5), v(6), v(7)
        );
        prop_assert!(dump::parse(Path::new("x"), &nccl, &Selectors::default()).is_ok());
        let hwloc = format!(
            "<topology version='{}'><object type='Package' nodeset='{}' os_index='{}'>\
             <object type='NUMANode' os_index='{}'/><object type='Bridge' bridge_pci='{}'>\
             <object type='PCIDev' pci_busid='0000:01:00.0' pci_type='{}'>\
             <object type='OSDev' name='mlx5_0' osdev_type='3'><info name='NodeGUID' value='{}'/></object>\
             <object type='OSDev' name='{}' osdev_type='{}'/></object></object></object></topology>",
            v(0), v(1), v(2), v(3), v(4), v(5), v(6), v(7), v(8)
        );
        prop_assert!(dump::parse(Path::new("x"), &hwloc, &Selectors::default()).is_ok());
    }
}
