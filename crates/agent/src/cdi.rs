//! CDI files that nobody owns.

use podrail_attach::cdi::{CdiDir, CdiFileError, Removal};
use podrail_store::Binding;
use std::path::Path;

/// Removes files whose owner does not hold the slot, and what killed processes left; how many.
///
/// `holds` is asked after the files were listed: a binding is kept before its files are written.
pub(crate) fn remove_orphans<E: From<CdiFileError>>(
    path: &Path,
    bindings: impl FnOnce() -> Result<Vec<Binding>, E>,
) -> Result<u64, E> {
    let Some(dir) = CdiDir::open(path)? else {
        return Ok(0);
    };
    let mut removed = dir.sweep()?;
    let files = dir.list()?;
    let bindings = bindings()?;
    for file in files {
        let done = match &file.owner {
            Ok(owner) => {
                let mut of_owner = bindings
                    .iter()
                    .filter(|b| b.request.sandbox == owner.sandbox);
                let holds = |b: &Binding| b.rails.iter().any(|rail| rail.slot == Some(file.slot));
                match of_owner.any(holds) {
                    true => continue,
                    false => dir.remove_if_owner(file.slot, &owner.sandbox)?,
                }
            }
            Err(_) => dir.remove_if_damaged(file.slot)?,
        };
        if done == Removal::Removed {
            removed += 1;
            tracing::info!("{}: removed its CDI file, which nobody owned", file.slot);
        }
    }
    Ok(removed.try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use podrail_core::ids::SlotId;
    use std::fs;

    #[test]
    fn files_without_a_living_owner_go_and_foreign_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let ours = |slot: u16| podrail_core::cdi::file_name(SlotId(slot));
        let text = format!(
            r#"{{"cdiVersion": "0.6.0", "kind": "podrail.io/rail", "devices": [{{"name": "slot-01"}}],
                "annotations": {{"podrail.io/sandbox": "{}"}}}}"#,
            "a".repeat(64)
        );
        write(&ours(1), &text);
        write(&ours(2), "{half");
        write("nvidia.com-gpu.json", "{}");
        write(".podrail.io-rail_slot-03.json.tmp", "{half");
        let none = || Ok::<_, CdiFileError>(vec![]);
        assert_eq!(remove_orphans(dir.path(), none).unwrap(), 3);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(remove_orphans(dir.path(), none).unwrap(), 0);
        assert_eq!(remove_orphans(Path::new("/nowhere"), none).unwrap(), 0);
    }
}
