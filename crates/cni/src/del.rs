//! DEL: links first, then device files, then addresses and rails.

use crate::failure::from_node;
use crate::protocol::{Call, CniError, NetConf};
use crate::{Answer, Test, has_state, may_have_rails};
use podrail_node::{CdiFiles, Deadline, Session};

/// Serves DEL.
///
/// # Guarantees
/// Succeeds twice, without a namespace, without a binding and without any state. What cannot be
/// taken away stays reserved.
///
/// # Errors
/// The list of what is left.
pub(crate) fn del(call: &Call, conf: &NetConf) -> Result<Answer, CniError> {
    let mut answer = Answer::default();
    let state = conf.state();
    if !may_have_rails(call, conf, Test::HadSome) || !has_state(&state)? {
        return Ok(answer);
    }
    let (places, sandbox) = (conf.lenient_settings(), call.sandbox()?);
    let failed = |error| from_node(&error);
    let mut session = Session::open(&state, &sandbox, Deadline::default()).map_err(failed)?;
    // A namespace without a binding is none of ours: rails of others may be in it.
    if session.binding().map_err(failed)?.is_some() {
        let mut files = CdiFiles::of_others(&places.cdi);
        session
            .detach(call.netns.as_deref(), &mut files)
            .map_err(failed)?;
    }
    answer.notes = session.take_notes();
    Ok(answer)
}
