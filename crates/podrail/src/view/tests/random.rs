//! Nodes and holders that nobody has thought of: every device is shown, and nothing is cut off.

use super::nodes::{gpu, path, pci, rail};
use super::picture::picture;
use super::*;
use podrail_core::topology::{Excluded, PciPath};
use proptest::collection::vec;
use proptest::prelude::*;

/// A place below one of three roots and up to four bridges; NUMA nodes need not agree with roots.
fn place() -> impl Strategy<Value = PciPath> {
    let numa = prop_oneof![Just(None), (0..3_u32).prop_map(Some)];
    (0..3_u8, vec(0..3_u8, 0..5), numa, any::<u8>(), 0..8_u8).prop_map(
        |(root, bridges, numa, bus, function)| path(root, &bridges, numa, pci(bus, function)),
    )
}

fn node() -> impl Strategy<Value = Topology> {
    (
        vec(place(), 0..12),
        vec(place(), 0..24),
        vec((place(), ".{0,200}"), 0..4),
    )
        .prop_map(|(gpus, rails, excluded)| Topology {
            gpus: gpus.into_iter().map(|path| gpu(path, "A model")).collect(),
            rails: (0..)
                .zip(rails)
                .map(|(index, path)| rail(index, path, index.into()))
                .collect(),
            excluded: excluded
                .into_iter()
                .map(|(path, reason)| Excluded {
                    path,
                    netdev: None,
                    rdma: None,
                    reason,
                })
                .collect(),
            numa: Vec::new(),
        })
}

fn some_holders() -> impl Strategy<Value = Vec<Holder>> {
    let one = (".{0,80}", vec(0..14_usize, 0..6), vec(0..26_u16, 0..6));
    vec(
        one.prop_map(|(name, gpus, rails)| holder(&name, &gpus, &rails)),
        0..40,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost((node, holders, title) in (node(), some_holders(), ".{0,300}")) {
        picture(&node, &holders, &title);
        let text = tree(&node, &holders, Style::default());
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        let starts = |word: &str| text.lines().filter(|line| line.starts_with(' ') && line.trim_start().starts_with(word)).count();
        prop_assert_eq!(starts("GPU "), node.gpus.len());
        prop_assert_eq!(starts("rail "), node.rails.len());
    }
}
