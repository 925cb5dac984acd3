//! Changes of the configuration while pods have slots.

use super::*;
use podrail_core::ids::SlotId;
use podrail_store::{BootId, Store};
use std::path::Path;

const NEW_NAME: &str = "resource: nvidia.com/hostdev\npool: {subnets: [10.0.0.0/28]}\n";
const OLD_NAME: &str = "pool: {subnets: [10.0.0.0/28]}\n";

/// A node whose state file keeps `before` as its configuration, with these slots waiting.
fn node(before: &str, slots: &[u16]) -> (tempfile::TempDir, Options, Store) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options {
        config: Some(dir.path().join("config.yaml")),
        ..Options::default()
    };
    options.paths.state = dir.path().join("state.db");
    let boot = BootId::parse("8b1e2b3c-0000-4000-8000-000000000001").unwrap();
    let mut store = Store::open(&options.paths.state, &boot).unwrap().store;
    write(&options, before);
    store.put_setup(&load(&options).unwrap().setup).unwrap();
    let slots: Vec<SlotId> = slots.iter().copied().map(SlotId).collect();
    store.allocate(&slots, 1).unwrap();
    (dir, options, store)
}

fn write(options: &Options, text: &str) {
    std::fs::write(options.config_path(), text).unwrap();
}

fn known(path: &Path) -> ReadOnly {
    Store::open_read_only(path).unwrap()
}

fn resource(effective: &Effective) -> &str {
    effective.loaded.settings.config.resource.as_str()
}

#[test]
fn slots_keep_their_resource_while_a_pod_has_one() {
    let (_dir, options, mut store) = node(OLD_NAME, &[2]);
    write(&options, &NEW_NAME.replace("10.0.0.0", "10.1.0.0"));
    let found = effective(&options, &known(&options.paths.state)).unwrap();
    assert_eq!(resource(&found), "podrail.io/rail");
    let words = found.in_words(&options);
    assert!(words.contains("nvidia.com/hostdev counts when"), "{words}");
    // All else counts, in what the plugin reads as well.
    assert!(found.loaded.setup.document.contains("10.1.0.0"));
    assert!(found.loaded.setup.document.contains("podrail.io/rail"));
    store.put_setup(&found.loaded.setup).unwrap();
    let again = effective(&options, &known(&options.paths.state)).unwrap();
    assert_eq!(resource(&again), "podrail.io/rail");
    store.forget_waiting(&[SlotId(2)]).unwrap();
    let found = effective(&options, &known(&options.paths.state)).unwrap();
    assert_eq!(
        (resource(&found), &found.asked),
        ("nvidia.com/hostdev", &None)
    );
}

#[test]
fn without_slots_a_new_name_counts_at_once() {
    let (_dir, options, _store) = node(OLD_NAME, &[]);
    write(&options, NEW_NAME);
    let found = effective(&options, &known(&options.paths.state)).unwrap();
    assert_eq!(
        (resource(&found), &found.asked),
        ("nvidia.com/hostdev", &None)
    );
}

#[test]
fn a_file_that_is_gone_is_no_configuration() {
    let (_dir, options, _store) = node(NEW_NAME, &[]);
    std::fs::remove_file(options.config_path()).unwrap();
    let state = known(&options.paths.state);
    assert!(matches!(
        effective(&options, &state),
        Err(ConfigError::Read { .. })
    ));
    let before = state.setup().unwrap();
    let defaults = Setup {
        document: "null".into(),
        ..before.clone()
    };
    // At the usual place none means defaults, unless there was one.
    assert!(is_gone(false, Some(before), &defaults));
    assert!(!is_gone(true, Some(before), &defaults));
    assert!(!is_gone(false, Some(&defaults), &defaults));
    assert!(!is_gone(false, None, &defaults));
}
