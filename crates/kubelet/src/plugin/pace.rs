//! When to try again after a failed registration.

use super::RegisterError;
use std::time::Duration;

/// How often in a row a kubelet that does not answer is tried at the quick pace: about ten seconds.
const QUICK_TRIES: u32 = 50;

/// The pause before the next try, after so many failures in a row (one at least); `None` waits for
/// a change of the directory.
pub(super) fn pause(error: &RegisterError, failures: u32) -> Option<Duration> {
    match error {
        RegisterError::KubeletAbsent { .. } | RegisterError::Replaced { .. } => None,
        RegisterError::Refused { .. } | RegisterError::NotWatched => Some(doubled(
            Duration::from_secs(1),
            failures,
            Duration::from_secs(60),
        )),
        // A kubelet makes its socket a moment before it accepts.
        _ if failures <= QUICK_TRIES => Some(doubled(
            Duration::from_millis(50),
            failures,
            Duration::from_millis(200),
        )),
        _ => {
            let failures = failures - QUICK_TRIES;
            Some(doubled(
                Duration::from_millis(400),
                failures,
                Duration::from_secs(10),
            ))
        }
    }
}

fn doubled(first: Duration, failures: u32, most: Duration) -> Duration {
    let times = failures.saturating_sub(1).min(16);
    first.saturating_mul(1 << times).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(error: &RegisterError, failures: &[u32]) -> Vec<u128> {
        let pause = |n: &u32| pause(error, *n).unwrap().as_millis();
        failures.iter().map(pause).collect()
    }

    #[test]
    fn a_kubelet_that_does_not_answer_is_tried_quickly_then_seldom() {
        let error = RegisterError::NoAnswer;
        assert_eq!(pauses(&error, &[1, 2, 3, 50]), [50, 100, 200, 200]);
        assert_eq!(
            pauses(&error, &[51, 52, 56, u32::MAX]),
            [400, 800, 10_000, 10_000]
        );
    }

    #[test]
    fn a_refusal_is_repeated_slowly_from_the_start() {
        let error = RegisterError::NotWatched;
        assert_eq!(
            pauses(&error, &[1, 2, 7, u32::MAX]),
            [1000, 2000, 60_000, 60_000]
        );
    }

    #[test]
    fn an_absent_kubelet_is_waited_for_without_a_clock() {
        let path = "/x/kubelet.sock".into();
        assert_eq!(pause(&RegisterError::KubeletAbsent { path }, 1), None);
    }
}
