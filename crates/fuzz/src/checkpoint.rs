//! The kubelet's device checkpoint.

use crate::told::told;
use podrail_kubelet::checkpoint;
use std::fs;

/// The content of the file.
pub(crate) fn file(input: &[u8]) {
    let dir = crate::directory();
    let path = dir.path().join("kubelet_internal_checkpoint");
    fs::write(&path, input).expect("a file");
    match checkpoint::read(&path) {
        Ok(grants) => {
            for grant in &grants {
                let ids = &grant.grant.ids;
                assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
            }
        }
        Err(error) => {
            // Which entry and which field, or where the text ends to be JSON.
            told(&error, Some(error.hint().to_owned()), &["line"]);
        }
    }
}
