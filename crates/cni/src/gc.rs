//! GC: what is to stay is named, everything else of ours goes.

use crate::failure::{details, from_node};
use crate::protocol::{CniError, Code, NetConf};
use crate::{Answer, has_state};
use podrail_core::ids::SandboxId;
use podrail_node::{CdiFiles, Deadline, NodeError, Session};
use podrail_store::Store;
use std::collections::BTreeSet;
use std::path::Path;

/// Serves GC. Sandboxes of `podrail attach` are none of the runtime's and stay.
///
/// # Guarantees
/// Goes on after a failure. Without a list nothing goes: no list is not an empty one.
///
/// # Errors
/// All that could not be taken away.
pub(crate) fn gc(conf: &NetConf) -> Result<Answer, CniError> {
    let state = conf.state();
    let (Some(valid), true) = (conf.valid_attachments()?, has_state(&state)?) else {
        return Ok(Answer::default());
    };
    let places = conf.lenient_settings();
    let valid: BTreeSet<String> = valid.into_iter().map(|kept| kept.container).collect();
    let read = Store::open_read_only(&state).map_err(|error| from_node(&error.into()))?;
    let of_pods = read.list().iter().filter(|b| b.request.pod.is_some());
    let gone = of_pods
        .map(|binding| &binding.request.sandbox)
        .filter(|sandbox| !valid.contains(sandbox.as_str()));
    let (mut notes, mut failures) = (vec![], vec![]);
    for sandbox in gone {
        match detach(&state, sandbox, &places.cdi) {
            Ok(said) => notes.extend(said),
            Err(error) => failures.push(format!("{error}\n{}", details(&error, error.hint()))),
        }
    }
    match failures.len() {
        0 => Ok(Answer {
            notes,
            ..Answer::default()
        }),
        count => {
            let message = format!("{count} sandboxes could not be taken away");
            Err(CniError::new(Code::Teardown, message).details(failures.join("\n")))
        }
    }
}

fn detach(state: &Path, sandbox: &SandboxId, cdi: &Path) -> Result<Vec<String>, NodeError> {
    let mut session = Session::open(state, sandbox, Deadline::default())?;
    session.detach(None, &mut CdiFiles::of_others(cdi))?;
    Ok(session.take_notes())
}
