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
    /// Leave the work of [`run`] as a kill would: nothing is returned to anybody on the way, and
    /// what is dropped gives back locks, as the kernel does for a process that has ended.
    Stop,
}

/// Says that the work of [`run`] was stopped at a fault point.
#[cfg(feature = "faults")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Chooses what happens at a fault point: stage and number.
#[cfg(feature = "faults")]
type Choice = Box<dyn FnMut(&str, usize) -> Option<Action>>;

#[cfg(feature = "faults")]
thread_local! {
    static CHOICE: std::cell::RefCell<Option<Choice>> = const { std::cell::RefCell::new(None) };
}

/// Does `work` in this thread, with `choose` asked at each fault point instead of the environment.
/// No fault point that `choose` itself comes to is one.
///
/// # Errors
/// [`Stopped`] if `choose` said so.
#[cfg(feature = "faults")]
pub fn run<T>(
    choose: impl FnMut(&str, usize) -> Option<Action> + 'static,
    work: impl FnOnce() -> T,
) -> Result<T, Stopped> {
    CHOICE.set(Some(Box::new(choose)));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    CHOICE.set(None);
    done.map_err(|payload| match payload.downcast::<Stopped>() {
        Ok(stopped) => *stopped,
        Err(payload) => std::panic::resume_unwind(payload),
    })
}

/// The wanted action behind step `number` of `stage`, if any.
#[cfg(feature = "faults")]
#[must_use]
pub fn wanted(stage: &str, number: usize) -> Option<Action> {
    if let Some(mut choice) = CHOICE.take() {
        let action = choice(stage, number);
        CHOICE.set(Some(choice));
        return action;
    }
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
    match action {
        Action::Error => {}
        Action::Kill => {
            // Whether it fails does not matter: then the error is returned.
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
        // Not a panic: no hook prints it.
        #[cfg(feature = "faults")]
        Action::Stop => std::panic::resume_unwind(Box::new(Stopped)),
        #[cfg(not(feature = "faults"))]
        Action::Stop => {}
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

    #[cfg(feature = "faults")]
    #[test]
    fn what_is_stopped_returns_nothing_and_drops_what_it_has() {
        let held = std::rc::Rc::new(());
        let mine = std::rc::Rc::clone(&held);
        let choose = |stage: &str, number| (stage == "b" && number == 1).then_some(Action::Stop);
        let stopped = run(choose, move || {
            let _mine = mine;
            reach("a", 1).unwrap();
            reach("b", 0).unwrap();
            let _ = reach("b", 1);
            unreachable!("it was stopped")
        });
        assert_eq!(stopped, Err::<(), _>(Stopped));
        assert_eq!(std::rc::Rc::strong_count(&held), 1);
        assert_eq!(reach("b", 1), Ok(()), "only in `run`");
        let error = run(|_, _| Some(Action::Error), || reach("c", 7));
        assert_eq!(error, Ok(Err("c:7".into())));
    }

    #[cfg(not(feature = "faults"))]
    #[test]
    fn a_release_build_has_no_fault_points() {
        // Whatever the environment says: there is no code that would read it.
        assert_eq!(wanted("create", 0), None);
        assert_eq!(reach("create", 0), Ok(()));
    }
}
