//! The file, its directory and those beside it: who may read them, and what is refused.

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const TELL: &str = "PODRAIL_STORE_TEST_MOUNT";

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refused(path: &Path) -> StoreError {
    let error = Store::open(path, &boot(1)).unwrap_err();
    assert_told(&error, &error.hint());
    error
}

#[test]
fn what_is_made_is_for_the_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/state.db");
    let mut store = open(&path);
    Node::new(1, 32).reserve(&mut store, "a", 1).unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(path.parent().unwrap().parent().unwrap()), 0o700);
    assert_eq!(
        names(path.parent().unwrap()),
        ["state.db", "state.db-shm", "state.db-wal"]
    );
    for name in names(path.parent().unwrap()) {
        assert_eq!(mode(&path.with_file_name(name)), 0o600);
    }
    let pragma = |name| {
        let read = |row: &rusqlite::Row| row.get::<_, i64>(0);
        store.conn.pragma_query_value(None, name, read).unwrap()
    };
    assert_eq!((pragma("synchronous"), pragma("foreign_keys")), (2, 1));
}

#[test]
fn a_file_that_others_can_read_is_tightened() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    set_mode(&path, 0o644);
    assert_eq!(
        Store::open(&path, &boot(1)).unwrap().loose_mode,
        Some(0o644)
    );
    assert_eq!(mode(&path), 0o600);
    assert_eq!(Store::open(&path, &boot(1)).unwrap().loose_mode, None);
}

#[test]
fn what_anyone_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    set_mode(&path, 0o646);
    assert!(matches!(
        refused(&path),
        StoreError::WorldWritable { mode: 0o646, .. }
    ));
    set_mode(&path, 0o600);
    set_mode(path.parent().unwrap(), 0o1777);
    assert!(matches!(
        refused(&path),
        StoreError::LooseDirectory { mode: 0o1777, .. }
    ));
}

#[test]
fn links_are_refused_but_not_above_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    let link = path.with_file_name("link.db");
    symlink(&path, &link).unwrap();
    assert!(matches!(refused(&link), StoreError::Symlink { .. }));
    assert!(matches!(
        Store::open_read_only(&link),
        Err(StoreError::Symlink { .. })
    ));
    let log = path.with_file_name("state.db-wal");
    symlink("/etc/passwd", &log).unwrap();
    assert!(
        matches!(refused(&path), StoreError::Symlink { path } if path.ends_with("state.db-wal"))
    );
    fs::remove_file(&log).unwrap();
    let above = directory.path().join("above");
    symlink(path.parent().unwrap(), &above).unwrap();
    drop(open(&above.join("state.db")));
}

#[test]
fn no_file_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("directory");
    fs::create_dir(&inside).unwrap();
    assert!(matches!(refused(&inside), StoreError::NotAFile { .. }));
    assert!(matches!(
        refused(Path::new("/")),
        StoreError::NotAFile { .. }
    ));
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(
        refused(&file.join("state.db")),
        StoreError::Directory { .. }
    ));
}

/// Whatever stands at the path is told and left, and nothing waits for the other end of a pipe.
#[test]
fn what_is_no_file_is_left_alone() {
    use nix::sys::stat::Mode;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    nix::unistd::mkfifo(&at("pipe"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    symlink("/nonexistent", at("broken")).unwrap();
    symlink(at("directory"), at("link")).unwrap();
    let before = names(directory.path());
    for name in &before {
        let path = at(name);
        let errors = [
            refused(&path),
            Store::open_read_only(&path).unwrap_err(),
            Store::inspect(&path).unwrap_err(),
        ];
        for error in errors {
            let links = matches!(error, StoreError::Symlink { .. });
            let others = matches!(error, StoreError::NotAFile { .. });
            assert!(links || others, "{name}: {error:?}");
        }
        let refused = Store::rebuild(&path, &boot(1), &Content::default(), ".old").unwrap_err();
        assert!(matches!(refused, ReserveError::Store(_)), "{refused:?}");
    }
    let left: Vec<_> = names(directory.path())
        .into_iter()
        .filter(|name| !name.contains(".new"))
        .collect();
    assert_eq!(left, before);
}

/// A look tells what an opening would refuse, and changes nothing.
#[test]
fn a_look_tells_of_wrong_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    set_mode(&path, 0o644);
    let found = Store::inspect(&path).unwrap().unwrap();
    assert_eq!((found.loose_mode, mode(&path)), (Some(0o644), 0o644));
    set_mode(&path, 0o646);
    let error = Store::inspect(&path).unwrap_err();
    assert!(matches!(
        error,
        StoreError::WorldWritable { mode: 0o646, .. }
    ));
    assert_eq!(mode(&path), 0o646);
    if nix::unistd::geteuid().is_root() {
        set_mode(&path, 0o600);
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        let error = Store::inspect(&path).unwrap_err();
        assert!(matches!(error, StoreError::Owner { owner: 12_345, .. }));
    }
}

#[test]
fn an_empty_file_becomes_a_state_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    fs::write(&path, "").unwrap();
    Node::new(1, 32).reserve(&mut open(&path), "a", 1).unwrap();
    assert_eq!(open(&path).list().unwrap().len(), 1);
}

#[test]
fn anothers_file_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can give files away");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
    assert!(matches!(
        refused(&path),
        StoreError::Owner {
            owner: 12_345,
            us: 0,
            ..
        }
    ));
}

#[test]
fn looking_makes_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    assert_eq!(Store::open_read_only(&path).unwrap(), ReadOnly::default());
    assert!(names(directory.path()).is_empty());
    let mut store = open(&path);
    let node = Node::new(1, 64);
    node.reserve(&mut store, "a", 4).unwrap();
    let check = |expected: &[Binding]| {
        let before = names(path.parent().unwrap());
        let looked = Store::open_read_only(&path).unwrap();
        assert_eq!(looked.list(), expected);
        assert_eq!(looked.get(&sandbox("a")), expected.first());
        assert_eq!(names(path.parent().unwrap()), before);
    };
    let expected = store.list().unwrap();
    check(&expected);
    drop(store);
    assert_eq!(names(path.parent().unwrap()), ["state.db"]);
    check(&expected);
}

/// Runs `test` in a mount namespace after `mounts`, a shell line that may use `$DIR`.
fn in_mounts(directory: &Path, mounts: &str, test: &str) {
    let program = child(test);
    let arguments: Vec<_> = program.get_args().collect();
    let script = format!("{mounts} && exec \"$0\" \"$@\"");
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
    command.arg(program.get_program()).args(arguments);
    let output = command
        .env("DIR", directory)
        .env(TELL, directory)
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if !text.contains("running 1 test") {
        assert!(
            std::env::var_os("CI").is_none(),
            "no mount namespace: {text}"
        );
        return println!("skipped: no mount namespace: {text}");
    }
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_read_only_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    drop(open(&path));
    let mounts = "mount --bind \"$DIR\" \"$DIR\" && mount -o remount,bind,ro \"$DIR\"";
    in_mounts(directory.path(), mounts, "tests::files::on_read_only");
}

/// Runs in a child only.
#[test]
fn on_read_only() {
    let Some(directory) = told(TELL) else { return };
    let path = Path::new(&directory).join("podrail/state.db");
    assert!(matches!(refused(&path), StoreError::ReadOnly { .. }));
    assert_eq!(Store::open_read_only(&path).unwrap(), ReadOnly::default());
    assert!(Store::inspect(&path).unwrap().is_some());
    let before = names(path.parent().unwrap());
    let error = Store::rebuild(&path, &boot(1), &Content::default(), ".old").unwrap_err();
    assert_told(&error, &error.hint().unwrap());
    assert_eq!(names(path.parent().unwrap()), before);
    let new = path.with_file_name("new.db");
    assert!(matches!(refused(&new), StoreError::Prepare { .. }));
    let new = path.with_file_name("new").join("new.db");
    assert!(matches!(refused(&new), StoreError::Directory { .. }));
}

#[test]
fn a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mounts = "mount -t tmpfs -o size=160k,mode=0700 podrail \"$DIR\"";
    in_mounts(directory.path(), mounts, "tests::files::on_small_disk");
}

/// Runs in a child only: fills the disk, sees the fault, makes room and goes on.
#[test]
fn on_small_disk() {
    let Some(directory) = told(TELL) else { return };
    let path = Path::new(&directory).join("podrail/state.db");
    let node = Node::new(16, 600);
    let mut store = open(&path);
    let mut last = None;
    let fault = (0..).find_map(|pod| {
        last = Some(store.list().unwrap());
        node.reserve(&mut store, &format!("pod-{pod}"), 16).err()
    });
    let fault = fault.unwrap();
    assert!(
        matches!(&fault, ReserveError::Store(StoreError::DiskFull { .. })),
        "{fault:?}"
    );
    assert_eq!(Some(store.list().unwrap()), last);
    drop(store);
    // A rebuild that finds no room leaves the old file at its place.
    let held = open(&path).list().unwrap().into_iter().map(|binding| Held {
        request: binding.request,
        decision: Decision {
            rails: binding.rails,
            leases: binding.leases,
            plan: "x".repeat(20_000),
            ..Decision::default()
        },
        ready: true,
    });
    let content = Content {
        held: held.collect(),
        ..Content::default()
    };
    let error = Store::rebuild(&path, &boot(1), &content, ".old").unwrap_err();
    let full = matches!(&error, ReserveError::Store(StoreError::DiskFull { .. }));
    assert!(full, "{error:?}");
    assert!(path.exists() && !path.with_file_name("state.db.old").exists());
    let new = path.with_file_name("state.db.new");
    let _ = fs::remove_file(&new);
    let _ = fs::remove_file(path.with_file_name("state.db.new-wal"));
    assert_eq!(Some(open(&path).list().unwrap()), last);
}
