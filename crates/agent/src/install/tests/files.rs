//! Files: modes, links, kills, several agents, what is no file.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn the_program_is_placed_once_and_replaced_whole() {
    let node = Node::new(&[]);
    let program = node.installer.bin_dir.join(PLUGIN);
    assert_eq!(node.installer.place().unwrap(), Placed::Written);
    let mode = fs::metadata(&program).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    let inode = fs::metadata(&program).unwrap().ino();
    assert_eq!(node.installer.place().unwrap(), Placed::Unchanged);
    assert_eq!(fs::metadata(&program).unwrap().ino(), inode);
    fs::write(&node.installer.source, "program 2").unwrap();
    // Held open, as by a process that runs it.
    let _old = fs::File::open(&program).unwrap();
    assert_eq!(node.installer.place().unwrap(), Placed::Written);
    assert_eq!(fs::read_to_string(&program).unwrap(), "program 2");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(node.installer.place().unwrap(), Placed::Written);
    assert_eq!(contents(&node.installer.bin_dir).len(), 1);
}

#[test]
fn links_are_replaced_and_not_followed() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    let victim = node.installer.source.with_file_name("victim");
    fs::write(&victim, "program 1").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o755)).unwrap();
    let program = node.installer.bin_dir.join(PLUGIN);
    symlink(&victim, &program).unwrap();
    symlink(&victim, node.conf("00-podrail.conflist")).unwrap();
    symlink(&victim, node.conf(".00-podrail.conflist.podrail-new")).unwrap();
    assert_eq!(node.installer.place().unwrap(), Placed::Written);
    node.chain();
    assert!(!program.is_symlink());
    assert!(!node.conf("00-podrail.conflist").is_symlink());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "program 1");
}

#[test]
fn a_configuration_is_for_its_owner_only() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.chain();
    let mode = fs::metadata(node.conf("00-podrail.conflist"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn what_a_killed_run_left_is_swept_and_never_loaded() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.put(".00-podrail.conflist.podrail-new", "{half");
    node.put(".0-podrail.conflist.podrail-new", "{half");
    fs::write(
        node.installer.bin_dir.join(".podrail-cni.podrail-new"),
        "pro",
    )
    .unwrap();
    assert_eq!(node.loaded().unwrap().0, "10-calico.conflist");
    node.installer.place().unwrap();
    node.chain();
    assert_eq!(node.files().len(), 2);
    assert_eq!(contents(&node.installer.bin_dir).len(), 1);
    // A file of ours without sense, as after a power cut.
    node.put("00-podrail.conflist", "");
    node.chain();
    assert_eq!(node.loaded_types().len(), 3);
}

#[test]
fn several_agents_and_a_busy_plugin_end_well() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    node.installer.chain().unwrap();
                    node.installer.place().unwrap();
                }
            });
        }
        for mtu in 1000..1050 {
            let new = CALICO.replace("1500", &mtu.to_string());
            let temporary = node.conf("calico.new");
            fs::write(&temporary, new).unwrap();
            fs::rename(&temporary, node.conf("10-calico.conflist")).unwrap();
        }
    });
    node.chain();
    assert_eq!(node.loaded().unwrap().1["plugins"][0]["mtu"], 1049);
    assert_eq!(node.files().len(), 2);
}

#[test]
fn uninstalled_twice_nothing_of_ours_is_left() {
    let node = Node::new(&[("10-calico.conflist", CALICO), ("10-x.txt", "x")]);
    node.installer.place().unwrap();
    node.chain();
    let left = node.installer.uninstall(Program::Keep).unwrap();
    assert!(left.program && node.installer.bin_dir.join(PLUGIN).exists());
    assert_eq!(node.files().len(), 2);
    for _ in 0..2 {
        let left = node.installer.uninstall(Program::Remove).unwrap();
        assert_eq!(left, Left::default());
        assert_eq!(contents(&node.installer.bin_dir).len(), 0);
        assert_eq!(node.files().len(), 2);
    }
}

#[test]
fn what_is_no_file_neither_hangs_nor_is_followed() {
    let node = Node::new(&[("20-calico.conflist", CALICO)]);
    fs::create_dir(node.conf("00-dir.conflist")).unwrap();
    node.chain();
    assert_eq!(node.loaded_types().len(), 3);
    for make in [
        |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        |path: &Path| symlink("/nowhere", path).unwrap(),
        |path: &Path| symlink("/dev/zero", path).unwrap(),
        |path: &Path| symlink("/", path).unwrap(),
        |path: &Path| fs::write(path, vec![b' '; 2 << 20]).unwrap(),
    ] {
        make(&node.conf("10-odd.conf"));
        let standing = node.chain();
        assert!(
            matches!(
                standing,
                Standing::Kept {
                    why: Why::Broken { .. },
                    ..
                }
            ),
            "{standing}"
        );
        node.remove("10-odd.conf");
    }
}

#[test]
fn a_missing_directory_or_program_is_said_with_a_hint() {
    let node = Node::new(&[]);
    fs::remove_dir(&node.installer.conf_dir).unwrap();
    let error = node.installer.chain().unwrap_err();
    assert!(
        error.to_string().starts_with("cannot open the directory"),
        "{error}"
    );
    assert!(error.hint().contains("mount"));
    fs::write(&node.installer.source, "").unwrap();
    let error = node.installer.place().unwrap_err();
    assert!(matches!(error, InstallError::NoProgram { .. }), "{error}");
}
