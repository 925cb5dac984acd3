//! Device files of containers as CDI files: what the plugin shows, and what anyone takes back.

use crate::attach::{Exposure, HookError};
use crate::session::Notes;
use crate::settings::Settings;
use podrail_attach::cdi::{CdiDir, CdiFileError, Removal, check_devices};
use podrail_core::attachment::Attachment;
use podrail_core::cdi::{Options, SlotFile, files};
use podrail_core::ids::{SandboxId, SlotId};
use podrail_core::topology::Topology;
use podrail_store::{Binding, Store};
use std::path::Path;

/// The CDI directory, and with what to fill it.
#[derive(Debug, Clone, Copy)]
pub struct CdiFiles<'a> {
    dir: &'a Path,
    source: Option<(&'a Settings, &'a Topology)>,
}

impl<'a> CdiFiles<'a> {
    /// To show the devices of a node as configured.
    #[must_use]
    pub fn new(dir: &'a Path, settings: &'a Settings, topology: &'a Topology) -> Self {
        Self {
            dir,
            source: Some((settings, topology)),
        }
    }

    /// To look and to take back only.
    #[must_use]
    pub fn of_others(dir: &'a Path) -> Self {
        Self { dir, source: None }
    }

    /// What of a binding's files is missing, by rail. Slots that a newer sandbox has by now are
    /// passed over: `newest` tells.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn missing(
        &self,
        binding: &Binding,
        newest: impl Fn(SlotId) -> bool,
    ) -> Result<Vec<String>, CdiFileError> {
        let found = match CdiDir::open(self.dir)? {
            Some(dir) => dir.list()?,
            None => vec![],
        };
        let owned = |slot: SlotId| {
            found.iter().any(|file| {
                let owner = file.owner.as_ref();
                file.slot == slot
                    && owner.is_ok_and(|owner| owner.sandbox == binding.request.sandbox)
            })
        };
        let rails = binding.rails.iter();
        let slots = rails.filter_map(|rail| Some((rail.index, rail.slot?)));
        Ok(slots
            .filter(|(_, slot)| newest(*slot) && !owned(*slot))
            .map(|(rail, slot)| format!("rail {rail}: the CDI file of {slot} is missing"))
            .collect())
    }
}

impl Exposure for CdiFiles<'_> {
    /// A slot may have been given to another pod since this binding was reserved: the kubelet does
    /// not wait for the sandbox of a pod that it deletes by force. `Allocate` notes the slot as
    /// waiting before it removes its file, and a newer sandbox is bound before it writes one. So
    /// what the store says under the lock of the directory is enough: whatever it does not say yet
    /// comes to the directory later, and overwrites or removes what is written here.
    fn expose(
        &mut self,
        binding: &Binding,
        attachment: &Attachment,
        store: &Store,
    ) -> Result<Notes, HookError> {
        let Some((settings, topology)) = self.source else {
            return Ok(vec![]);
        };
        let options = Options {
            resource: settings.config.resource.clone(),
            umad: settings.config.cdi.umad,
            issm: settings.config.cdi.issm,
        };
        let pod = binding.request.pod.as_ref();
        let files = files(&options, topology, attachment, pod)?;
        // Whatever root the facts were read below: runtimes make these nodes from the host's own.
        check_devices(Path::new("/"), &files)?;
        write_own(self.dir, &files, (&binding.request.sandbox, store))
    }

    fn missing(&self, binding: &Binding, store: &Store) -> Result<Vec<String>, HookError> {
        let own = store.own_slots(&binding.request.sandbox)?;
        Ok(CdiFiles::missing(self, binding, |slot| {
            own.contains(&slot)
        })?)
    }

    fn conceal(&mut self, binding: &Binding) -> Result<(), HookError> {
        let dir = match CdiDir::open(self.dir) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Ok(()),
            // Nothing is ever written there, so the pod can go. Whatever a runtime still finds behind
            // a symlink gets no new owner: `conceal_slots` refuses it before the slot is given out.
            Err(error) if error.is_no_directory() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for slot in binding.rails.iter().filter_map(|rail| rail.slot) {
            dir.remove_if_owner(slot, &binding.request.sandbox)?;
        }
        Ok(())
    }
}

/// Writes the files of slots that are the sandbox's own, and tells of the others.
pub(crate) fn write_own(
    dir: &Path,
    files: &[SlotFile],
    (sandbox, store): (&SandboxId, &Store),
) -> Result<Notes, HookError> {
    let own = || Ok::<_, HookError>(store.own_slots(sandbox)?);
    let left = CdiDir::create(dir)?.write(files, own)?;
    let note = |slot| format!("{slot} was given to another pod meanwhile: its CDI file is left");
    Ok(left.into_iter().map(note).collect())
}

/// Takes the files of slots away, whosever they are: the slots begin anew. To be called after the
/// slots were noted as waiting, see [`CdiFiles`].
///
/// # Guarantees
/// Twice is as once.
///
/// # Errors
/// Some of them are there still.
pub fn conceal_slots(dir: &Path, slots: &[SlotId]) -> Result<(), CdiFileError> {
    let Some(dir) = CdiDir::open(dir)? else {
        return Ok(());
    };
    let mut slots = slots.iter();
    slots.try_for_each(|slot| dir.remove(*slot).map(drop))
}

/// What [`remove_orphans`] removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Slots whose file nobody owned.
    pub slots: Vec<SlotId>,
    /// How many temporary files killed processes had left.
    pub temporary: usize,
}

/// Removes files whose owner does not hold the slot, and what killed processes left.
///
/// `bindings` is asked after the files were listed: a binding is kept before its files are written.
///
/// # Guarantees
/// Twice is as once. Files of others stay.
///
/// # Errors
/// The directory cannot be read, or a file cannot be removed; whatever `bindings` fails with.
pub fn remove_orphans<E: From<CdiFileError>>(
    path: &Path,
    bindings: impl FnOnce() -> Result<Vec<Binding>, E>,
) -> Result<Orphans, E> {
    let mut orphans = Orphans::default();
    let Some(dir) = CdiDir::open(path)? else {
        return Ok(orphans);
    };
    orphans.temporary = dir.sweep()?;
    let files = dir.list()?;
    let bindings = bindings()?;
    let holds = |sandbox: &SandboxId, slot| {
        let mut of_owner = bindings.iter().filter(|b| b.request.sandbox == *sandbox);
        of_owner.any(|b| b.rails.iter().any(|rail| rail.slot == Some(slot)))
    };
    for file in files {
        let done = match &file.owner {
            Ok(owner) if holds(&owner.sandbox, file.slot) => continue,
            Ok(owner) => dir.remove_if_owner(file.slot, &owner.sandbox)?,
            Err(_) => dir.remove_if_damaged(file.slot)?,
        };
        if done == Removal::Removed {
            orphans.slots.push(file.slot);
        }
    }
    Ok(orphans)
}

#[cfg(test)]
mod tests;
