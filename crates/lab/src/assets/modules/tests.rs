//! Dependency order, on real ELF files made by hand.

use super::*;

/// A minimal 64-bit ELF file with one `.modinfo` section.
fn elf(information: &[u8]) -> Vec<u8> {
    let names = b"\0.modinfo\0.shstrtab\0";
    let (data_at, names_at) = (64, 64 + information.len());
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [1_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0, 0, sections_at as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 0, 0, 64, 3, 2] {
        file.extend(half.to_le_bytes());
    }
    file.extend_from_slice(information);
    file.extend_from_slice(names);
    file.resize(sections_at + 64, 0);
    for (name, kind, at, size) in [
        (1_u32, 1_u32, data_at, information.len()),
        (10, 3, names_at, names.len()),
    ] {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for word in [0, 0, at as u64, size as u64, 0, 1, 0] {
            file.extend(word.to_le_bytes());
        }
    }
    file
}

/// A tree with the modules given as `name: depends`, the first of which is wanted.
fn order(modules: &[(&str, &str)], built_in: &str) -> Result<Vec<String>, LabError> {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("7.3");
    fs::create_dir_all(base.join("kernel/net")).unwrap();
    fs::write(base.join("modules.builtin"), built_in).unwrap();
    for (name, depends) in modules {
        let text =
            format!("license=GPL\0depends={depends}\0alias=rtnl-link-{name}\0alias=pci:v1\0");
        fs::write(
            base.join(format!("kernel/net/{name}.ko")),
            elf(text.as_bytes()),
        )
        .unwrap();
    }
    let mut order = Vec::new();
    let mut loaded = BTreeMap::new();
    add(modules[0].0, &Files::of(&base)?, &mut loaded, &mut order)?;
    assert!(
        loaded
            .values()
            .all(|(module, _)| module.aliases.len() == usize::from(module.path.is_some()))
    );
    Ok(order)
}

#[test]
fn a_module_comes_after_what_it_needs_and_once() {
    let modules = [
        ("top", "left,right-side"),
        ("left", "base"),
        ("right-side", "base"),
        ("base", ""),
    ];
    assert_eq!(
        order(&modules, "").unwrap(),
        ["base", "left", "right_side", "top"]
    );
}

#[test]
fn built_in_modules_need_no_file() {
    assert_eq!(
        order(&[("top", "crc32")], "kernel/lib/crc32.ko\n").unwrap(),
        ["crc32", "top"]
    );
}

#[test]
fn a_missing_module_is_named() {
    let error = order(&[("top", "gone")], "").unwrap_err();
    assert!(error.to_string().ends_with("has no module gone"), "{error}");
}

#[test]
fn names_come_from_file_names() {
    let name = |path| module_name(Path::new(path));
    assert_eq!(name("kernel/x/ib-core.ko.xz").as_deref(), Some("ib_core"));
    assert_eq!(name("modules.order"), None);
}
