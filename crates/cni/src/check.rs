//! CHECK: whether a pod's rails stand as they were attached.

use crate::failure::{details, from_node};
use crate::protocol::{Call, CniError, Code, NetConf};
use crate::{Answer, Test, has_state, may_have_rails};
use podrail_attach::differences;
use podrail_node::{CdiFiles, attachment, foreign_netns};
use podrail_store::{Binding, Store};

/// Serves CHECK; changes nothing.
///
/// # Errors
/// What is missing, by rail.
pub(crate) fn check(call: &Call, conf: &NetConf) -> Result<Answer, CniError> {
    let state = conf.state();
    if !may_have_rails(call, conf, Test::HadSome) || !has_state(&state)? {
        return Ok(Answer::default());
    }
    let (places, sandbox) = (conf.lenient_settings(), call.sandbox()?);
    let read = Store::open_read_only(&state).map_err(|error| from_node(&error.into()))?;
    let Some(binding) = read.get(&sandbox) else {
        return Ok(Answer::default());
    };
    let mut found = in_the_kernel(call, binding)?;
    let files = CdiFiles::of_others(&places.cdi);
    // A slot that waits was given to another pod, whose Allocate has removed the file.
    let newest =
        |slot| read.slot_owner(slot) == Some(&sandbox) && !read.waiting().contains_key(&slot);
    found.extend(files.missing(binding, newest).map_err(|error| {
        CniError::new(Code::Io, error.to_string())
            .details(details(&error, error.hint().map(str::to_owned)))
    })?);
    if found.is_empty() {
        return Ok(Answer::default());
    }
    let message = format!(
        "{} of sandbox {sandbox} is not as it was attached",
        count(&found)
    );
    Err(CniError::new(Code::Check, message).details(found.join("\n")))
}

fn in_the_kernel(call: &Call, binding: &Binding) -> Result<Vec<String>, CniError> {
    let failed = |error| from_node(&error);
    let attachment = attachment(binding).map_err(failed)?;
    let netns = foreign_netns(call.required_netns()?).map_err(failed)?;
    differences(&attachment.plan, &netns).map_err(|error| from_node(&error.into()))
}

fn count(found: &[String]) -> String {
    match found {
        [_] => "one thing".into(),
        more => format!("{} things", more.len()),
    }
}
