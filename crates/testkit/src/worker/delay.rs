//! What tests put between admission and the sandbox.

use super::Worker;
use std::time::Duration;

impl Worker {
    /// Waits for as long as the knobs say; an event tells that it does.
    pub(super) async fn delayed(&self) {
        let delay = self.shared.look(|state| state.knobs.sandbox_delay_ms);
        if delay > 0 {
            let words = format!("{delay} ms");
            self.shared.event(&self.uid, "SandboxDelayed", &words);
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let mut changes = self.shared.changes();
        let hold = || self.shared.look(|state| state.knobs.hold_sandboxes);
        if hold() {
            self.shared.event(&self.uid, "SandboxHeld", "");
        }
        while hold() && changes.changed().await.is_ok() {}
    }
}
