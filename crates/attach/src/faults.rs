//! Fault points for the tests: fail, or be killed, right behind a named step.
//!
//! Compiled in only with the feature `faults`, which no release build has. The point is taken from
//! the environment: `PODRAIL_FAULT=<stage>:<number>:<error|kill>`, numbers from 0 within a stage;
//! more than one, with commas between them, where undo is to fail too.

/// What to do at a fault point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Return an error.
    Error,
    /// Kill this process with SIGKILL.
    Kill,
}

/// The wanted action behind step `number` of `stage`, if any.
#[cfg(feature = "faults")]
#[must_use]
pub fn wanted(stage: &str, number: usize) -> Option<Action> {
    let text = std::env::var("PODRAIL_FAULT").ok()?;
    text.split(',')
        .find_map(|point| action(point, stage, number))
}

/// The action of a point, if it is this one.
#[cfg(any(feature = "faults", test))]
fn action(point: &str, stage: &str, number: usize) -> Option<Action> {
    let rest = point.strip_prefix(stage)?.strip_prefix(':')?;
    match rest.split_once(':')? {
        (wanted, "error") if wanted == number.to_string() => Some(Action::Error),
        (wanted, "kill") if wanted == number.to_string() => Some(Action::Kill),
        _ => None,
    }
}

/// No fault is ever wanted of a program without the feature.
#[cfg(not(feature = "faults"))]
#[must_use]
pub fn wanted(_stage: &str, _number: usize) -> Option<Action> {
    None
}

/// A fault point of its own: the name of the point comes back where an error is wanted.
///
/// # Errors
/// The text of the point.
pub fn reach(stage: &str, number: usize) -> Result<(), String> {
    match wanted(stage, number) {
        None => Ok(()),
        Some(action) => Err(strike(action, stage, number)),
    }
}

/// Carries the action out; returns the name of the point if the process still lives.
pub(crate) fn strike(action: Action, stage: &str, number: usize) -> String {
    if action == Action::Kill {
        // Whether it fails does not matter: then the error is returned.
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
    format!("{stage}:{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_one_stage_one_number_and_one_action() {
        assert_eq!(action("create:1:error", "create", 1), Some(Action::Error));
        assert_eq!(action("create:15:kill", "create", 15), Some(Action::Kill));
        for other in [
            "create:1:error",
            "create:15:stop",
            "create:5",
            "creates:5:kill",
            "",
        ] {
            assert_eq!(action(other, "create", 5), None, "{other}");
        }
    }

    #[cfg(not(feature = "faults"))]
    #[test]
    fn a_release_build_has_no_fault_points() {
        // Whatever the environment says: there is no code that would read it.
        assert_eq!(wanted("create", 0), None);
        assert_eq!(reach("create", 0), Ok(()));
    }
}
