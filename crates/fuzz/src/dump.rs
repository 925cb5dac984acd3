//! Topology dumps of NCCL and hwloc.

use crate::told::told;
use podrail_core::topology::Topology;
use podrail_host::{Note, Selectors, dump, render};
use std::collections::BTreeSet;
use std::path::Path;

/// The text of a dump.
pub(crate) fn xml(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let select = Selectors {
        generic_gpus: true,
        ..Selectors::default()
    };
    match dump::parse(Path::new("topo.xml"), text, &select) {
        Ok(dump) => {
            stable(&dump.topology);
            readable(&dump.notes);
        }
        Err(error) => told(&error, Some(error.hint().to_owned()), &["topo.xml"]),
    }
}

/// A topology has each rail once, can be printed, and survives the state file.
pub(crate) fn stable(topology: &Topology) {
    let indexes: BTreeSet<_> = topology.rails.iter().map(|rail| rail.index).collect();
    assert_eq!(indexes.len(), topology.rails.len(), "a rail index twice");
    let text = serde_json::to_string(topology).expect("a topology is JSON");
    let again: Topology = serde_json::from_str(&text).expect("and JSON is a topology");
    assert_eq!(&again, topology);
    assert_eq!(render::topology(&again), render::topology(topology));
}

/// Notes are shown on terminals and in events.
pub(crate) fn readable(notes: &[Note]) {
    assert!(notes.len() <= 1001, "{} notes", notes.len());
    for note in notes {
        let text = note.to_string();
        assert!(text.len() <= 2000 && !note.text.is_empty(), "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}
