//! The plugin on real sockets, with a kubelet that restarts, wipes, refuses and hangs up.

mod allocate;
mod kubelet;

use super::*;
use kubelet::{Kubelet, Seen};
use podrail_core::ids::SlotId;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;
use tokio::net::UnixSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Status as GrpcStatus;

const SOCKET: &str = "podrail.io_rail.sock";
const TWO: &str = "slot-00+ slot-01+";

/// A running plugin and the ends of its channels.
struct Plugin {
    slots: watch::Sender<Vec<Slot>>,
    status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), PluginError>>,
}

struct Ready;

impl Allocator for Ready {
    async fn allocate(&self, _containers: &[Vec<SlotId>]) -> Result<(), AllocateError> {
        Ok(())
    }
}

fn config(directory: &Path) -> Config {
    Config {
        directory: directory.to_owned(),
        resource: ResourceName::parse("podrail.io/rail").unwrap(),
    }
}

impl Plugin {
    fn start(directory: &Path, slots: Vec<Slot>) -> Self {
        Self::start_with(directory, slots, Ready)
    }

    fn start_with(directory: &Path, slots: Vec<Slot>, allocator: impl Allocator) -> Self {
        let (slots, seen_slots) = watch::channel(slots);
        let (sender, status) = Status::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            let _stopped_or_dropped = stopped.await;
        };
        let plugin = run(config(directory), allocator, seen_slots, sender, stopped);
        Self {
            slots,
            status,
            stop,
            task: tokio::spawn(plugin),
        }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        within("the plugin ends", self.task).await.unwrap().unwrap();
    }

    /// Waits for a status.
    async fn until(&mut self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let last = self.status.clone();
        let found = timeout(PATIENCE, self.status.wait_for(|s| wanted(s))).await;
        let found = found.unwrap_or_else(|_| panic!("not {what}: {:?}", last.borrow()));
        found.unwrap().clone()
    }

    async fn until_error(&mut self, what: &str, wanted: impl Fn(&RegisterError) -> bool) -> Status {
        let wanted = |s: &Status| s.last_error.as_deref().is_some_and(&wanted);
        self.until(what, wanted).await
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = timeout(PATIENCE, future).await;
    outcome.unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn slots(healthy: &[bool]) -> Vec<Slot> {
    let slot = |(n, healthy): (usize, &bool)| Slot {
        id: SlotId(u16::try_from(n).unwrap()),
        healthy: *healthy,
    };
    healthy.iter().enumerate().map(slot).collect()
}

async fn next(kubelet: &mut Kubelet) -> Seen {
    within("the kubelet sees something", kubelet.seen.recv())
        .await
        .unwrap()
}

async fn expect_list(kubelet: &mut Kubelet, list: &str) {
    assert_eq!(next(kubelet).await, Seen::List(list.to_owned()));
}

async fn expect_registration(kubelet: &mut Kubelet, list: &str) {
    let seen = next(kubelet).await;
    assert!(matches!(seen, Seen::Registered(_)), "{seen:?}");
    expect_list(kubelet, list).await;
}

/// A directory for the kubelet's sockets, which need not exist at first.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("kubelet/device-plugins");
    (dir, directory)
}

async fn registered() -> (TempDir, PathBuf, Kubelet, Plugin) {
    let (dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    let mut plugin = Plugin::start(&directory, slots(&[true, true]));
    expect_registration(&mut kubelet, TWO).await;
    plugin.until("registered", Status::registered).await;
    (dir, directory, kubelet, plugin)
}

#[tokio::test]
async fn registers_and_sends_its_list_at_once() {
    let (_dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    let start = Instant::now();
    let mut plugin = Plugin::start(&directory, slots(&[true, false]));
    let Seen::Registered(request) = next(&mut kubelet).await else {
        panic!("a list before the registration");
    };
    assert_eq!(request.version, "v1beta1");
    assert_eq!(request.endpoint, SOCKET);
    assert_eq!(request.resource_name, "podrail.io/rail");
    let options = request.options.unwrap();
    assert!(!options.pre_start_required && !options.get_preferred_allocation_available);
    expect_list(&mut kubelet, "slot-00+ slot-01-").await;
    println!("registered {:?} after the start", start.elapsed());
    let status = plugin.until("registered", Status::registered).await;
    assert!(status.last_error.is_none());
    let mode = fs::metadata(directory.join(SOCKET))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn nothing_is_registered_before_there_are_slots() {
    let (_dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    let mut plugin = Plugin::start(&directory, vec![]);
    // The kubelet may come and go meanwhile.
    kubelet.kill().await;
    kubelet = Kubelet::start(&directory);
    assert_eq!(
        plugin.status.borrow_and_update().state,
        State::WaitingForSlots
    );
    assert!(!directory.join(SOCKET).exists());
    plugin.slots.send_replace(slots(&[true]));
    expect_registration(&mut kubelet, "slot-00+").await;
}

#[tokio::test]
async fn changes_are_sent_and_empty_lists_are_not() {
    let (_dir, _, mut kubelet, plugin) = registered().await;
    plugin.slots.send_replace(slots(&[true, false]));
    expect_list(&mut kubelet, "slot-00+ slot-01-").await;
    // The same again is no change, and an empty list is none that may be told.
    plugin.slots.send_replace(slots(&[true, false]));
    tokio::task::yield_now().await;
    plugin.slots.send_replace(vec![]);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    plugin.slots.send_replace(slots(&[true, true]));
    expect_list(&mut kubelet, TWO).await;
}

#[tokio::test]
async fn at_shutdown_the_stream_just_ends() {
    let (_dir, directory, mut kubelet, plugin) = registered().await;
    let status = plugin.status.clone();
    plugin.stop().await;
    assert_eq!(next(&mut kubelet).await, Seen::StreamEnded);
    assert_eq!(status.borrow().state, State::Stopped);
    assert!(!directory.join(SOCKET).exists());
}

#[tokio::test]
async fn the_list_outlives_its_sender() {
    let (_dir, directory, kubelet, plugin) = registered().await;
    let Plugin {
        slots,
        status,
        stop,
        task,
    } = plugin;
    drop(slots);
    kubelet.kill().await;
    let mut kubelet = Kubelet::start(&directory);
    expect_registration(&mut kubelet, TWO).await;
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(next(&mut kubelet).await, Seen::StreamEnded);
    assert_eq!(status.borrow().state, State::Stopped);
}

/// CASES: the kubelet's socket recreated, with the directory wiped first.
#[tokio::test]
async fn registers_again_within_a_second_of_a_kubelet_restart() {
    let (_dir, directory, mut kubelet, mut plugin) = registered().await;
    for round in 0..20 {
        kubelet.kill().await;
        plugin.until("unregistered", |s| !s.registered()).await;
        let start = Instant::now();
        kubelet = Kubelet::start(&directory);
        expect_registration(&mut kubelet, TWO).await;
        let took = start.elapsed();
        println!("round {round}: registered again after {took:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        plugin.until("registered", Status::registered).await;
    }
}

#[tokio::test]
async fn a_kubelet_that_is_back_before_its_death_was_noticed_is_registered_with() {
    let (_dir, directory, kubelet, mut plugin) = registered().await;
    let mut second = Kubelet::start(&directory);
    expect_registration(&mut second, TWO).await;
    kubelet.kill().await;
    plugin.until("registered", Status::registered).await;
    plugin.slots.send_replace(slots(&[false]));
    expect_list(&mut second, "slot-00-").await;
}

#[tokio::test]
async fn a_kubelet_that_accepts_late_is_tried_again() {
    let (_dir, directory, kubelet, mut plugin) = registered().await;
    kubelet.kill().await;
    fs::remove_file(directory.join("kubelet.sock")).unwrap();
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(directory.join("kubelet.sock")).unwrap();
    plugin
        .until_error("unreachable", |e| {
            matches!(e, RegisterError::Unreachable { .. })
        })
        .await;
    let start = Instant::now();
    let mut kubelet = Kubelet::start_on(&directory, socket.listen(16).unwrap());
    expect_registration(&mut kubelet, TWO).await;
    let took = start.elapsed();
    println!("registered {took:?} after the kubelet listened");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_directory_that_comes_late_or_anew_is_found() {
    let (dir, directory) = place();
    let mut plugin = Plugin::start(&directory, slots(&[true, true]));
    plugin
        .until_error("waiting", |e| {
            matches!(e, RegisterError::KubeletAbsent { .. })
        })
        .await;
    let mut kubelet = Kubelet::start(&directory);
    expect_registration(&mut kubelet, TWO).await;

    let absent = |e: &RegisterError| matches!(e, RegisterError::KubeletAbsent { .. });
    fs::rename(dir.path().join("kubelet"), dir.path().join("old")).unwrap();
    kubelet.kill().await;
    plugin.until_error("absent again", absent).await;
    let mut kubelet = Kubelet::start(&directory);
    expect_registration(&mut kubelet, TWO).await;

    kubelet.kill().await;
    fs::remove_dir_all(dir.path().join("kubelet")).unwrap();
    plugin.until_error("absent once more", absent).await;
    let mut kubelet = Kubelet::start(&directory);
    expect_registration(&mut kubelet, TWO).await;

    kubelet.kill().await;
    fs::rename(&directory, dir.path().join("moved")).unwrap();
    plugin.until_error("moved", absent).await;
    let mut kubelet = Kubelet::start(&directory);
    expect_registration(&mut kubelet, TWO).await;
}

#[tokio::test]
async fn a_socket_that_someone_deleted_is_made_anew() {
    let (_dir, directory, mut kubelet, plugin) = registered().await;
    fs::remove_file(directory.join(SOCKET)).unwrap();
    expect_registration(&mut kubelet, TWO).await;
    assert!(directory.join(SOCKET).exists());
    // The old stream lives on: its end would make the kubelet drop the new client.
    plugin.slots.send_replace(slots(&[true]));
    expect_list(&mut kubelet, "slot-00+").await;
    expect_list(&mut kubelet, "slot-00+").await;
}

#[tokio::test]
async fn a_refusal_is_told_and_tried_again() {
    let (_dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    kubelet.refuse_next(GrpcStatus::unknown(
        "the ResourceName \"podrail.io/rail\" is invalid",
    ));
    let mut plugin = Plugin::start(&directory, slots(&[true, true]));
    let status = plugin
        .until_error("refused", |e| matches!(e, RegisterError::Refused { .. }))
        .await;
    let error = status.last_error.unwrap();
    assert!(error.to_string().contains("is invalid"), "{error}");
    assert!(error.hint().contains("kubernetes.io"));
    assert!(!status.state.eq(&State::Registered));
    expect_registration(&mut kubelet, TWO).await;
    let status = plugin.until("registered", Status::registered).await;
    assert!(status.last_error.is_none());
}

#[tokio::test]
async fn a_stream_that_the_kubelet_ended_is_registered_anew() {
    let (_dir, _, mut kubelet, mut plugin) = registered().await;
    kubelet.end_streams();
    plugin
        .until_error("ended", |e| matches!(e, RegisterError::StreamEnded))
        .await;
    expect_registration(&mut kubelet, TWO).await;
    plugin.until("registered", Status::registered).await;
}

#[tokio::test]
async fn what_an_earlier_run_left_is_replaced() {
    let (_dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    for left in [SOCKET, "podrail.io_rail.sock.new"] {
        drop(std::os::unix::net::UnixListener::bind(directory.join(left)).unwrap());
    }
    let plugin = Plugin::start(&directory, slots(&[true, true]));
    expect_registration(&mut kubelet, TWO).await;
    plugin.stop().await;
    let left: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["kubelet.sock"]);
}

#[tokio::test]
async fn of_two_plugins_the_newer_keeps_the_socket() {
    let (_dir, directory, mut kubelet, mut older) = registered().await;
    let mut newer = Plugin::start(&directory, slots(&[true]));
    expect_registration(&mut kubelet, "slot-00+").await;
    older
        .until_error("replaced", |e| matches!(e, RegisterError::Replaced { .. }))
        .await;
    newer.until("registered", Status::registered).await;
    // Unrelated files, as the kubelet's checkpoint, change nothing.
    fs::write(directory.join("checkpoint"), "x").unwrap();
    newer.stop().await;
    let mut seen = vec![next(&mut kubelet).await, next(&mut kubelet).await];
    seen.push(next(&mut kubelet).await);
    assert!(seen.contains(&Seen::StreamEnded), "{seen:?}");
    assert!(seen.contains(&Seen::List(TWO.to_owned())), "{seen:?}");
    older.until("registered", Status::registered).await;
}

#[tokio::test]
async fn a_path_that_cannot_be_listened_at_is_told_and_tried_again() {
    let (_dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    fs::create_dir(directory.join(SOCKET)).unwrap();
    let mut plugin = Plugin::start(&directory, slots(&[true, true]));
    plugin
        .until_error("cannot listen", |e| {
            matches!(e, RegisterError::Listen { .. })
        })
        .await;
    fs::remove_dir(directory.join(SOCKET)).unwrap();
    expect_registration(&mut kubelet, TWO).await;
}

#[tokio::test]
async fn a_path_that_no_socket_can_have_is_refused() {
    let directory = PathBuf::from("/").join("d".repeat(90));
    let (_slots, seen_slots) = watch::channel(vec![]);
    let plugin = run(
        config(&directory),
        Ready,
        seen_slots,
        Status::channel().0,
        async {},
    );
    let error = plugin.await.unwrap_err();
    assert!(
        matches!(error, PluginError::PathTooLong { .. }),
        "{error:?}"
    );
}
