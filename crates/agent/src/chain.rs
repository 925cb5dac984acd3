//! Keeps program and chain on the node, and follows the cluster's configuration.

use crate::board::{CHAINED, INSTALLED};
use crate::context::Context;
use crate::install::{Chained, InstallError, Installer, PLUGIN, Placed, Standing, Step};
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
/// What such writes mean.
const UNDONE: &str = "somebody removes or changes our file again and again: with Cilium, set \
                      cni.exclusive=false";

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
        if let Some(mut turn) = context
            .blocking(move |context| turn(context, &turned))
            .await
        {
            let pause = fight.round(turn.wrote, Instant::now());
            if fight.writes >= FIGHT {
                turn.way = Way::blocked(UNDONE);
            }
            turn.way.say(&context);
            sleep(pause).await;
        }
        match watch {
            Ok(watch) => wait(watch).await,
            Err(_) => sleep(QUIET * 10).await,
        }
    }
}

/// What a turn came to.
struct Turn {
    /// Whether the chain had to be written.
    wrote: bool,
    way: Way,
}

/// How pods stand to the plugin.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    /// Pods get to it, if only by what stood before.
    leads: bool,
    /// They do so by the cluster's configuration as it is.
    is_current: bool,
    /// In words.
    reason: String,
}

impl Way {
    fn blocked(reason: impl Into<String>) -> Self {
        Self {
            leads: false,
            is_current: false,
            reason: reason.into(),
        }
    }

    fn of(standing: &Standing) -> Self {
        Self {
            leads: standing.is_installed(),
            is_current: standing.is_current(),
            reason: standing.to_string(),
        }
    }

    /// To the readers of `/readyz`, and to those who offer slots.
    fn say(self, context: &Context) {
        tell(&context.board, CHAINED, self.is_current, &self.reason);
        context.set_blocked((!self.leads).then_some(self.reason));
    }
}

/// Program first: a configuration must never name one that is missing.
fn turn(context: &Context, installer: &Installer) -> Turn {
    let board = &context.board;
    let failed = |error: &InstallError| words(error, Some(error.hint()));
    let stuck = |reason: &str| Turn {
        wrote: false,
        way: Way::blocked(reason),
    };
    let program = installer.bin_dir.join(PLUGIN);
    match installer.place() {
        Ok(Placed::Written) => tracing::info!("wrote {}", program.display()),
        Ok(Placed::Unchanged) => {}
        Err(error) => {
            tell(board, INSTALLED, false, &failed(&error));
            return stuck("the plugin's program could not be put in its place");
        }
    }
    tell(
        board,
        INSTALLED,
        true,
        &format!("{} is there", program.display()),
    );
    match installer.chain() {
        Ok(Chained { steps, standing }) => {
            steps.iter().for_each(log);
            Turn {
                wrote: steps.iter().any(|step| matches!(step, Step::Write { .. })),
                way: Way::of(&standing),
            }
        }
        Err(error) => stuck(&failed(&error)),
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

    #[tokio::test]
    async fn who_offers_slots_hears_of_each_change_of_the_way_and_only_of_those() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["bin", "net.d"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("podrail-cni"), "program").unwrap();
        let context = Context::new(crate::options::Options {
            plugin: Some(path("podrail-cni")),
            cni_bin: path("bin"),
            cni_conf: path("net.d"),
            ..crate::options::Options::default()
        });
        let installer = context.options.installer().unwrap();
        let original = path("net.d/10-a.conflist");
        let list = r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "a"}]}"#;
        let see = || {
            turn(&context, &installer).way.say(&context);
            let chained = context.board.conditions().into_iter();
            let chained = chained.into_iter().find(|told| told.0 == CHAINED).unwrap();
            let news = timeout(Duration::ZERO, context.look_again.notified());
            (context.blocked().is_none(), chained.1, news)
        };
        for (content, leads, holds, is_news) in [
            (None, false, false, true),
            (None, false, false, false),
            (Some(list), true, true, true),
            (Some(list), true, true, false),
            // The copy still leads to the plugin.
            (Some("{"), true, false, false),
            (None, false, false, true),
        ] {
            match content {
                Some(text) => std::fs::write(&original, text).unwrap(),
                None => drop(std::fs::remove_file(&original)),
            }
            let (leading, holding, news) = see();
            assert_eq!((leading, holding), (leads, holds), "{content:?}");
            assert_eq!(news.await.is_ok(), is_news, "{content:?}");
        }
        std::fs::remove_file(&installer.source).unwrap();
        let (leading, _, news) = see();
        assert!(!leading && news.await.is_ok());
    }

    #[test]
    fn a_way_that_is_somebody_elses_matter_is_open() {
        let context = Context::new(crate::options::Options::default());
        assert_eq!(context.blocked(), None);
    }
}
