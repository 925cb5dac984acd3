//! The configuration file.

use crate::told::{told, words};
use podrail_core::config::Faults;
use podrail_node::{Settings, yaml};
use serde_json::Value;

/// The text of a file.
pub(crate) fn yaml(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    match yaml::document(text) {
        Ok(document) => document_of_any_origin(document),
        Err(error) => told(&error, Some("fix it".into()), &["line"]),
    }
}

/// A document is refused with the path of every fault, or means the same after one round.
pub(crate) fn document_of_any_origin(document: Value) {
    let settings = match Settings::from_document(document, &[]) {
        Ok(settings) => settings,
        Err(faults) => return refused(&faults),
    };
    let again = Settings::from_document(settings.config.document(), &[]);
    let again = again.expect("a checked configuration is valid");
    assert_eq!(again.config, settings.config);
    assert_eq!(again.pool.is_some(), settings.pool.is_some());
}

fn refused(faults: &Faults) {
    assert!(!faults.0.is_empty());
    for fault in &faults.0 {
        assert!(!fault.text.is_empty());
        words(&fault.to_string(), &[&fault.path]);
    }
    words(&faults.to_string(), &[": "]);
}
