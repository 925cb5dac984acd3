//! Repeats calls that the kubelet refused for the moment, until a deadline.

use super::PodResourcesError;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout_at};
use tonic::Code;

/// First and longest pause between two tries. The kubelet's limiter gives a token every 10 ms.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// How long a missing socket is waited for: a restarting kubelet makes it anew within this time,
/// and a wrong path should be told soon.
const MISSING_PATIENCE: Duration = Duration::from_secs(1);

/// Calls until it succeeds, fails for good, or the deadline comes.
pub(super) async fn until<T, F>(
    socket: &Path,
    deadline: Instant,
    mut call: impl FnMut() -> F,
) -> Result<T, PodResourcesError>
where
    F: Future<Output = Result<T, PodResourcesError>>,
{
    let start = Instant::now();
    let too_late = |last: Option<PodResourcesError>| PodResourcesError::Deadline {
        socket: socket.to_owned(),
        waited: start.elapsed(),
        source: last.map(Box::new),
    };
    let mut last = None;
    let mut pause = PAUSES.0;
    loop {
        let error = match timeout_at(deadline.into(), call()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_elapsed) => return Err(too_late(last)),
        };
        if !worth_another(&error, start.elapsed()) {
            return Err(error);
        }
        let next = Instant::now() + jittered(pause);
        if next >= deadline {
            return Err(too_late(Some(error)));
        }
        last = Some(error);
        sleep_until(next.into()).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn worth_another(error: &PodResourcesError, elapsed: Duration) -> bool {
    match error {
        PodResourcesError::Missing { .. } => elapsed < MISSING_PATIENCE,
        PodResourcesError::Refused { .. }
        | PodResourcesError::RateLimited { .. }
        | PodResourcesError::Broken { .. } => true,
        PodResourcesError::Answer { code, .. } => *code == Code::Unavailable,
        _ => false,
    }
}

/// Between half and all of a pause: many plugins that were refused together come back apart.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
