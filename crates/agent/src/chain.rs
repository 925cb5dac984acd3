//! Keeps program and chain on the node, and follows the cluster's configuration.

use crate::board::{CHAINED, INSTALLED};
use crate::context::Context;
use crate::install::{Chained, InstallError, Installer, Placed, Step};
use crate::say::{tell, words};
use inotify::{EventStream, Inotify, WatchMask};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::StreamExt;

/// At least so often, whatever the watch says.
const OFTEN: Duration = Duration::from_secs(60);
/// How long the directory must be quiet: plugins write their file in several steps.
const QUIET: Duration = Duration::from_millis(200);
/// A directory in which something happens all the time is looked at so often all the same.
const LONGEST: Duration = Duration::from_secs(2);
/// Writes in a row, each within [`OFTEN`] of the one before, that mean that somebody undoes them.
const FIGHT: u32 = 4;

/// Follows for ever.
pub(crate) async fn follow(context: Context) {
    let Some(installer) = context.options.installer() else {
        for name in [INSTALLED, CHAINED] {
            tell(&context.board, name, true, "left to somebody else");
        }
        return;
    };
    let mut fight = Fight::default();
    loop {
        context.board.beat("chain", 4 * OFTEN);
        let watch = watch(&installer.conf_dir);
        let turned = installer.clone();
        if let Some(wrote) = context
            .blocking(move |context| turn(context, &turned))
            .await
        {
            let pause = fight.round(wrote, Instant::now());
            if fight.writes >= FIGHT {
                let reason = "somebody removes or changes our file again and again: with Cilium, \
                              set cni.exclusive=false";
                tell(&context.board, CHAINED, false, reason);
            }
            sleep(pause).await;
        }
        match watch {
            Ok(watch) => wait(watch).await,
            Err(_) => sleep(QUIET * 10).await,
        }
    }
}

/// Program first: a configuration must never name one that is missing. Whether the chain had to be
/// written.
fn turn(context: &Context, installer: &Installer) -> bool {
    let board = &context.board;
    let told =
        |name, error: &InstallError| tell(board, name, false, &words(error, Some(error.hint())));
    match installer.place() {
        Ok(placed) => {
            let program = installer.bin_dir.join(crate::install::PLUGIN);
            if placed == Placed::Written {
                tracing::info!("wrote {}", program.display());
            }
            tell(
                board,
                INSTALLED,
                true,
                &format!("{} is there", program.display()),
            );
        }
        Err(error) => {
            told(INSTALLED, &error);
            return false;
        }
    }
    match installer.chain() {
        Ok(Chained { steps, standing }) => {
            steps.iter().for_each(log);
            tell(
                board,
                CHAINED,
                standing.is_installed(),
                &standing.to_string(),
            );
            steps.iter().any(|step| matches!(step, Step::Write { .. }))
        }
        Err(error) => {
            told(CHAINED, &error);
            false
        }
    }
}

fn log(step: &Step) {
    match step {
        Step::Write { name, .. } => tracing::info!("wrote {name}"),
        Step::Remove { name } => tracing::info!("removed {name}"),
    }
}

/// Two that undo each other must not do it as fast as they can.
#[derive(Debug, Default)]
struct Fight {
    writes: u32,
    last: Option<Instant>,
}

impl Fight {
    /// The pause after a round: none, or a second, doubled with each write in a row.
    fn round(&mut self, wrote: bool, now: Instant) -> Duration {
        let soon = self
            .last
            .is_some_and(|last| now.duration_since(last) < 2 * OFTEN);
        match (wrote, soon) {
            (true, true) => self.writes = self.writes.saturating_add(1),
            (true, false) => self.writes = 1,
            (false, true) => return Duration::ZERO,
            (false, false) => self.writes = 0,
        }
        if !wrote {
            return Duration::ZERO;
        }
        self.last = Some(now);
        let doubled = Duration::from_secs(1 << self.writes.saturating_sub(FIGHT).min(6));
        match self.writes < FIGHT {
            true => Duration::ZERO,
            false => doubled.min(OFTEN),
        }
    }
}

/// Made anew for each turn, and before it: so a directory that was replaced is seen, and nothing is
/// missed.
fn watch(dir: &Path) -> io::Result<EventStream<[u8; 4096]>> {
    let inotify = Inotify::init()?;
    let changes = WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF;
    inotify.watches().add(dir, changes)?;
    inotify.into_event_stream([0; 4096])
}

/// Until something has changed and it has been quiet for a moment, or the time is up.
async fn wait(mut watch: EventStream<[u8; 4096]>) {
    if timeout(OFTEN, watch.next()).await.is_err() {
        return;
    }
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        let quiet = (Instant::now() + QUIET).min(end);
        match timeout_at(quiet, watch.next()).await {
            Ok(Some(Ok(_))) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_gets_slower_and_is_forgotten() {
        let mut fight = Fight::default();
        let start = Instant::now();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let pause = fight.round(true, now);
            pauses.push(pause.as_secs());
            now += pause + QUIET;
            assert_eq!(fight.round(false, now), Duration::ZERO);
        }
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        fight.round(false, now + 3 * OFTEN);
        assert_eq!(fight.writes, 0);
        assert_eq!(fight.round(true, now + 3 * OFTEN), Duration::ZERO);
    }
}
