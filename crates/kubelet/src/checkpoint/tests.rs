//! Forms of the checkpoint that kubelets wrote, and files that are none.

use super::*;
use std::fs;
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

fn file(text: impl AsRef<[u8]>) -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet_internal_checkpoint");
    fs::write(&path, text).unwrap();
    (dir, path)
}

fn shown(grants: &[CheckpointGrant]) -> Vec<String> {
    let show = |g: &CheckpointGrant| {
        let DeviceGrant {
            container,
            resource,
            ids,
        } = &g.grant;
        format!("{} {container} {resource} {}", g.pod_uid, ids.join(","))
    };
    grants.iter().map(show).collect()
}
use podrail_core::pods::DeviceGrant;

#[test]
fn devices_of_all_numa_nodes_come_together() {
    let (_dir, path) = file(
        r#"{"Data":{"PodDeviceEntries":[
            {"PodUID":"a-1","ContainerName":"setup","ResourceName":"podrail.io/rail",
             "DeviceIDs":{"-1":["slot-03","slot-01"]},"AllocResp":"Cg=="},
            {"PodUID":"a-1","ContainerName":"main","ResourceName":"nvidia.com/gpu",
             "DeviceIDs":{"1":["GPU-b","GPU-c"],"0":["GPU-a","GPU-c"]},"AllocResp":"","New":[1]}],
          "RegisteredDevices":{"podrail.io/rail":["slot-00"]}},"Checksum":12345,"BootID":"x"}"#,
    );
    assert_eq!(
        shown(&read(&path).unwrap()),
        [
            "a-1 setup podrail.io/rail slot-01,slot-03",
            "a-1 main nvidia.com/gpu GPU-a,GPU-b,GPU-c",
        ]
    );
}

#[test]
fn the_plain_list_of_old_kubelets_is_read() {
    let (_dir, path) = file(
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r/x",
            "DeviceIDs":["2","1"],"AllocResp":null}],"RegisteredDevices":null},"Checksum":1}"#,
    );
    assert_eq!(shown(&read(&path).unwrap()), ["u c r/x 1,2"]);
}

#[test]
fn empty_ones_hold_nothing() {
    let entry = r#"{"PodUID":"u","ContainerName":"c","ResourceName":"r/x","DeviceIDs":"#;
    for (entries, expected) in [
        ("null".to_owned(), 0),
        ("[]".to_owned(), 0),
        (format!("[{entry}null}}]"), 1),
        (format!("[{entry}{{}}}}]"), 1),
        (format!("[{entry}{{\"-1\":null}}}}]"), 1),
    ] {
        let (_dir, path) = file(format!(r#"{{"Data":{{"PodDeviceEntries":{entries}}}}}"#));
        let grants = read(&path).unwrap();
        assert_eq!(grants.len(), expected, "{entries}");
        assert!(grants.iter().all(|g| g.grant.ids.is_empty()), "{entries}");
    }
}

#[test]
fn what_no_kubelet_wrote_is_refused() {
    let nested = "[".repeat(100_000);
    for text in [
        "",
        "garbage",
        "{}",
        r#"{"Data":{}"#,
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}"#,
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":7,"ContainerName":"c","ResourceName":"r","DeviceIDs":[]}]}}"#,
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":"x"}]}}"#,
        &nested,
    ] {
        let (_dir, path) = file(text);
        let error = read(&path).unwrap_err();
        let start: String = text.chars().take(40).collect();
        assert!(
            matches!(error, CheckpointError::Parse { .. }),
            "{start}: {error:?}"
        );
        assert!(error.hint().contains("drain"));
    }
}

#[test]
fn missing_special_and_huge_files_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    assert!(matches!(read(&path), Err(CheckpointError::Missing { .. })));
    assert!(matches!(
        read(dir.path()),
        Err(CheckpointError::Read { .. })
    ));
    let _socket = UnixListener::bind(&path).unwrap();
    assert!(matches!(read(&path), Err(CheckpointError::Read { .. })));

    // Sparse: costs no disk.
    let huge = dir.path().join("huge");
    let file = File::create(&huge).unwrap();
    file.set_len(LARGEST_FILE + 1).unwrap();
    assert!(matches!(read(&huge), Err(CheckpointError::TooLarge { .. })));
}

#[test]
fn a_fault_names_the_field_in_bounded_words() {
    let entry = r#"{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":"#;
    let long = "x".repeat(1 << 16);
    for (ids, expected) in [
        ("7}", "DeviceIDs: expected"),
        (&format!("\"{long}\"}}"), "DeviceIDs"),
    ] {
        let (_dir, path) = file(format!(
            r#"{{"Data":{{"PodDeviceEntries":[{entry}{ids}]}}}}"#
        ));
        let error = read(&path).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(expected) && cause.len() < 300, "{cause}");
    }
}

/// Readers that run against a writer who replaces the file by rename never see a part of it.
#[test]
fn a_file_that_is_replaced_all_the_time_is_read_whole() {
    let (dir, path) = file(r#"{"Data":{"PodDeviceEntries":null}}"#);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let draft = dir.path().join("draft");
            for n in 0.. {
                let entry = format!(
                    r#"{{"PodUID":"{n}","ContainerName":"c","ResourceName":"r/x","DeviceIDs":["1"]}}"#
                );
                let entries = vec![entry; 1 + n % 50].join(",");
                fs::write(&draft, format!(r#"{{"Data":{{"PodDeviceEntries":[{entries}]}}}}"#)).unwrap();
                fs::rename(&draft, &path).unwrap();
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..200 {
            read(&path).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
