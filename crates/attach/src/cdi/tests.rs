//! Files on a real file system: owners, writers at the same time, leftovers, hostile files.

use super::*;
use podrail_core::ids::{RailIndex, RdmaName};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::Barrier;

fn sandbox(name: &str) -> SandboxId {
    SandboxId::parse(name).unwrap()
}

fn file(slot: u16, owner: &str) -> SlotFile {
    let (slot, sandbox) = (SlotId(slot), sandbox(owner));
    let text = serde_json::json!({
        "cdiVersion": cdi::VERSION,
        "kind": cdi::KIND,
        "annotations": {"podrail.io/sandbox": sandbox},
        "devices": [{"name": slot, "containerEdits": {"env": [format!("OWNER={owner}")]}}],
    });
    SlotFile {
        slot,
        sandbox,
        rail: RailIndex(slot.0),
        rdma: RdmaName::parse("mlx5_0").unwrap(),
        nodes: vec!["/dev/null".into()],
        text: text.to_string(),
    }
}

/// Of a sandbox that owns all of its slots.
fn write(dir: &CdiDir, files: &[SlotFile]) -> Result<(), CdiFileError> {
    let own = || Ok(files.iter().map(|file| file.slot).collect());
    dir.write(files, own).map(|left| assert_eq!(left, []))
}

struct Place {
    dir: CdiDir,
    path: PathBuf,
    _root: tempfile::TempDir,
}

fn place() -> Place {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run/cdi");
    Place {
        dir: CdiDir::create(&path).unwrap(),
        path,
        _root: root,
    }
}

impl Place {
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn owners(&self) -> Vec<(u16, Option<String>)> {
        let owner = |found: Found| {
            let owner = found.owner.ok().map(|owner| owner.sandbox.to_string());
            (found.slot.0, owner)
        };
        self.dir.list().unwrap().into_iter().map(owner).collect()
    }
}

fn owned(slot: u16, owner: &str) -> (u16, Option<String>) {
    (slot, Some(owner.to_owned()))
}

#[test]
fn the_directory_is_made_once_and_modes_are_those_that_runtimes_expect() {
    let place = place();
    CdiDir::create(&place.path).unwrap();
    write(&place.dir, &[file(7, "a")]).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&place.path), 0o755);
    assert_eq!(
        mode(&place.path.join("podrail.io-rail_slot-07.json")),
        0o644
    );
    assert_eq!(place.names(), ["podrail.io-rail_slot-07.json"]);
    let absent = CdiDir::open(&place.path.join("absent")).unwrap();
    assert!(absent.is_none());
}

#[test]
fn a_symlink_above_is_followed_and_one_in_its_place_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("run")).unwrap();
    fs::create_dir(root.path().join("elsewhere")).unwrap();
    symlink("run", root.path().join("var-run")).unwrap();
    let dir = CdiDir::create(&root.path().join("var-run/cdi")).unwrap();
    write(&dir, &[file(0, "a")]).unwrap();
    assert!(
        root.path()
            .join("run/cdi/podrail.io-rail_slot-00.json")
            .exists()
    );
    symlink("elsewhere", root.path().join("link")).unwrap();
    for path in [
        root.path().join("link"),
        root.path().join("run/cdi/podrail.io-rail_slot-00.json"),
    ] {
        let error = CdiDir::create(&path).unwrap_err();
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("symlink"), "{error:?}");
    }
}

#[test]
fn the_newest_sandbox_owns_a_slot_and_the_old_one_removes_nothing() {
    let place = place();
    write(&place.dir, &[file(0, "old"), file(1, "old")]).unwrap();
    write(&place.dir, &[file(1, "new")]).unwrap();
    assert_eq!(place.owners(), [owned(0, "old"), owned(1, "new")]);
    let remove = |slot| {
        place
            .dir
            .remove_if_owner(SlotId(slot), &sandbox("old"))
            .unwrap()
    };
    assert_eq!(remove(0), Removal::Removed);
    assert_eq!(remove(0), Removal::Absent);
    assert_eq!(remove(1), Removal::OfAnother(Some(sandbox("new"))));
    assert_eq!(place.owners(), [owned(1, "new")]);
    assert!(place.dir.remove(SlotId(1)).unwrap());
    assert!(!place.dir.remove(SlotId(1)).unwrap());
    assert_eq!(place.names(), [] as [&str; 0]);
}

#[test]
fn what_cannot_be_read_is_listed_and_others_files_are_left_alone() {
    let place = place();
    write(&place.dir, &[file(0, "a")]).unwrap();
    let at = |name: &str| place.path.join(name);
    let slot = |slot: u16| at(&cdi::file_name(SlotId(slot)));
    fs::write(slot(1), "{").unwrap();
    fs::copy(slot(0), slot(2)).unwrap();
    symlink(slot(0), slot(3)).unwrap();
    nix::unistd::mkfifo(&slot(4), Mode::from_bits_truncate(0o644)).unwrap();
    fs::write(slot(5), " ".repeat(cdi::LARGEST + 10)).unwrap();
    fs::write(slot(6), b"\xff").unwrap();
    fs::create_dir(slot(7)).unwrap();
    fs::write(at("nvidia.json"), "{}").unwrap();
    let found = place.dir.list().unwrap();
    let wrong: Vec<_> = found
        .iter()
        .filter_map(|found| found.owner.as_ref().err())
        .collect();
    assert_eq!((found.len(), wrong.len()), (8, 7), "{wrong:?}");
    for (slot_number, error) in (1..).zip(wrong) {
        let text = error.to_string();
        assert!(
            text.contains(&slot(slot_number).display().to_string()),
            "{text}"
        );
    }
    let damaged = |slot| place.dir.remove_if_damaged(SlotId(slot)).unwrap();
    assert_eq!(damaged(0), Removal::OfAnother(Some(sandbox("a"))));
    assert_eq!(damaged(9), Removal::Absent);
    for slot in 1..7 {
        let owner = place
            .dir
            .remove_if_owner(SlotId(slot), &sandbox("a"))
            .unwrap();
        assert_eq!(owner, Removal::OfAnother(None));
        assert_eq!(damaged(slot), Removal::Removed, "{slot}");
    }
    let error = place.dir.remove_if_damaged(SlotId(7)).unwrap_err();
    assert!(error.to_string().starts_with("cannot remove "), "{error}");
    fs::remove_dir(slot(7)).unwrap();
    assert_eq!(
        place.names(),
        ["nvidia.json", "podrail.io-rail_slot-00.json"]
    );
}

/// The old sandbox was slow: its slots 0 and 2 are with others by the time it writes.
#[test]
fn an_old_sandbox_writes_only_what_is_still_its_own() {
    let place = place();
    write(&place.dir, &[file(0, "new")]).unwrap();
    let files = [file(0, "old"), file(1, "old"), file(2, "old")];
    let own = || {
        // Nobody can come between the question and the writing.
        assert!(matches!(place.dir.lock(), Err(CdiFileError::Busy { .. })));
        Ok::<_, CdiFileError>(BTreeSet::from([SlotId(1), SlotId(7)]))
    };
    let left = place.dir.write(&files, own).unwrap();
    assert_eq!(left, [SlotId(0), SlotId(2)]);
    assert_eq!(place.owners(), [owned(0, "new"), owned(1, "old")]);
    // Nor does a failure take away what is another's.
    fs::create_dir(place.path.join(cdi::file_name(SlotId(3)))).unwrap();
    let files = [file(0, "old"), file(1, "old"), file(3, "old")];
    let own = || Ok(BTreeSet::from([SlotId(1), SlotId(3)]));
    let failed: Result<_, CdiFileError> = place.dir.write(&files, own);
    assert!(failed.is_err());
    fs::remove_dir(place.path.join(cdi::file_name(SlotId(3)))).unwrap();
    assert_eq!(place.owners(), [owned(0, "new")]);
}

#[test]
fn after_an_error_no_file_of_the_call_is_there() {
    let place = place();
    write(&place.dir, &[file(0, "old")]).unwrap();
    fs::create_dir(place.path.join(cdi::file_name(SlotId(2)))).unwrap();
    let files = [
        file(0, "new"),
        file(1, "new"),
        file(2, "new"),
        file(3, "new"),
    ];
    let error = write(&place.dir, &files).unwrap_err();
    assert!(error.to_string().contains("slot-02.json"), "{error}");
    assert_eq!(place.names(), ["podrail.io-rail_slot-02.json"]);
}

#[test]
fn what_a_killed_writer_left_is_swept_and_does_not_stop_the_next() {
    let place = place();
    let left = |slot: u16| format!(".{}.tmp", cdi::file_name(SlotId(slot)));
    fs::write(place.path.join(left(0)), "{\"half").unwrap();
    symlink("/etc/hostname", place.path.join(left(1))).unwrap();
    fs::write(place.path.join(".other.tmp"), "").unwrap();
    assert_eq!(place.owners(), []);
    write(&place.dir, &[file(0, "a"), file(1, "a")]).unwrap();
    assert_eq!(place.owners(), [owned(0, "a"), owned(1, "a")]);
    fs::write(place.path.join(left(5)), "").unwrap();
    assert_eq!(place.dir.sweep().unwrap(), 1);
    assert_eq!(place.dir.sweep().unwrap(), 0);
    assert_eq!(place.names().len(), 3);
    // A detach takes it too, whether or not the file itself was written.
    fs::write(place.path.join(left(5)), "").unwrap();
    let sandbox = SandboxId::parse("a").unwrap();
    let removed = place.dir.remove_if_owner(SlotId(5), &sandbox).unwrap();
    assert_eq!(removed, Removal::Absent);
    assert_eq!(place.names().len(), 3);
}

#[test]
fn the_opened_directory_is_used_even_if_another_takes_its_place() {
    let place = place();
    let moved = place.path.with_file_name("moved");
    fs::rename(&place.path, &moved).unwrap();
    fs::create_dir(&place.path).unwrap();
    write(&place.dir, &[file(0, "a")]).unwrap();
    assert_eq!(place.names(), [] as [&str; 0]);
    assert!(moved.join(cdi::file_name(SlotId(0))).exists());
}

/// Old owners remove while new ones write, with one opening shared by all: a file that is read is
/// whole, and the last writer's file is there.
#[test]
fn writers_and_removers_at_the_same_time() {
    const WRITERS: u32 = 4;
    const ROUNDS: u32 = 60;
    let place = place();
    let start = Barrier::new(usize::try_from(WRITERS).unwrap() + 1);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (dir, start) = (&place.dir, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    let owner = format!("{writer}-{round}");
                    write(dir, &[file(0, &owner), file(1, &owner)]).unwrap();
                    let own = sandbox(&owner);
                    let removal = dir.remove_if_owner(SlotId(0), &own).unwrap();
                    assert_ne!(removal, Removal::OfAnother(None));
                    dir.sweep().unwrap();
                }
            });
        }
        start.wait();
        for _ in 0..ROUNDS {
            for found in place.dir.list().unwrap() {
                found.owner.unwrap();
            }
        }
    });
    let last = place.owners();
    assert_eq!(last.last().map(|(slot, _)| *slot), Some(1), "{last:?}");
    let last = last.last().and_then(|(_, owner)| owner.clone()).unwrap();
    assert!(last.ends_with(&format!("-{}", ROUNDS - 1)), "{last}");
    assert_eq!(place.names(), ["podrail.io-rail_slot-01.json"]);
}

#[test]
fn a_lock_that_is_not_given_back_is_an_error_and_no_hang() {
    let place = place();
    let _kept = place.dir.lock().unwrap();
    let error = write(&place.dir, &[file(0, "a")]).unwrap_err();
    assert!(matches!(error, CdiFileError::Busy { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains(&place.path.display().to_string())
    );
}

/// A root with the node's own `/dev`, where `/dev/null` is a character device for everybody.
fn node(ibdev: Option<&str>) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    symlink("/dev", root.path().join("dev")).unwrap();
    let class = root.path().join("sys/class/infiniband_verbs/null");
    fs::create_dir_all(&class).unwrap();
    if let Some(ibdev) = ibdev {
        fs::write(class.join("ibdev"), format!("{ibdev}\n")).unwrap();
    }
    root
}

#[test]
fn nodes_must_be_there_and_still_be_the_rails() {
    let good = node(Some("mlx5_0"));
    check_devices(good.path(), &[file(0, "a")]).unwrap();
    let text = |root: &Path, nodes: &[&str]| {
        let mut file = file(3, "a");
        file.nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        let problem = check_devices(root, &[file]).unwrap_err();
        assert!(!problem.hint().is_empty());
        problem.to_string()
    };
    assert_eq!(
        text(good.path(), &["/dev/null", "/dev/absent"]),
        "the device node /dev/absent of rail 3 (mlx5_0) is not there"
    );
    assert_eq!(
        text(good.path(), &["/dev/null", "/dev/fd"]),
        "/dev/fd of rail 3 (mlx5_0) is no character device"
    );
    assert_eq!(
        text(node(Some("mlx5_1")).path(), &["/dev/null"]),
        "/dev/null is the node of mlx5_1, not of rail 3 (mlx5_0)"
    );
    assert_eq!(
        text(node(None).path(), &["/dev/null"]),
        "/dev/null is the node of no RDMA device, not of rail 3 (mlx5_0)"
    );
}

/// Faults are taken from the environment, so a writer with a fault is a process of its own: this
/// test binary again, with only [`writer`].
#[cfg(feature = "faults")]
mod faults {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, ExitStatus};

    const PLACE: &str = "PODRAIL_TEST_CDI_DIR";

    /// Writes two files where the environment says; nothing to do otherwise.
    #[test]
    fn writer() {
        if let Some(path) = std::env::var_os(PLACE) {
            let dir = CdiDir::create(Path::new(&path)).unwrap();
            write(&dir, &[file(0, "new"), file(1, "new")]).unwrap();
        }
    }

    fn write_with(place: &Place, fault: &str) -> ExitStatus {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cdi::tests::faults::writer"])
            .env(PLACE, &place.path)
            .env("PODRAIL_FAULT", fault)
            .output()
            .unwrap()
            .status
    }

    #[test]
    fn a_writer_that_is_killed_leaves_whole_files_and_one_to_sweep() {
        for (fault, owners, swept) in [
            (
                "cdi-temporary:0:kill",
                vec![owned(0, "old"), owned(1, "old")],
                1,
            ),
            ("cdi:0:kill", vec![owned(0, "new"), owned(1, "old")], 0),
            (
                "cdi-temporary:1:kill",
                vec![owned(0, "new"), owned(1, "old")],
                1,
            ),
            ("cdi:1:kill", vec![owned(0, "new"), owned(1, "new")], 0),
        ] {
            let place = place();
            write(&place.dir, &[file(0, "old"), file(1, "old")]).unwrap();
            assert_eq!(write_with(&place, fault).signal(), Some(9), "{fault}");
            assert_eq!(place.owners(), owners, "{fault}");
            assert_eq!(place.dir.sweep().unwrap(), swept, "{fault}");
            assert!(write_with(&place, "").success());
            assert_eq!(place.owners(), [owned(0, "new"), owned(1, "new")]);
        }
    }

    #[test]
    fn a_writer_that_fails_takes_its_files_back() {
        for fault in [
            "cdi-temporary:0:error",
            "cdi:0:error",
            "cdi-temporary:1:error",
        ] {
            let place = place();
            let status = write_with(&place, fault);
            assert!(!status.success() && status.signal().is_none(), "{fault}");
            assert_eq!(place.names(), [] as [&str; 0], "{fault}");
        }
    }
}
