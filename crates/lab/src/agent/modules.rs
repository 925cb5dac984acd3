//! Loads kernel modules by the initramfs's table, dependencies first.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use super::Trouble;
use crate::plan::{MODULES_PATH, Module};

/// The table and the kernel's command line.
pub(super) struct Loader {
    table: Vec<Module>,
    command_line: String,
}

impl Loader {
    /// Reads the table. Modules that the boot withholds are not in it: the host leaves them out.
    pub(super) fn open() -> Result<Self, Trouble> {
        let bytes = fs::read(format!("/{MODULES_PATH}")).map_err(Trouble::at("read modules"))?;
        let table = serde_json::from_slice(&bytes).map_err(Trouble::at("modules"))?;
        Ok(Self {
            table,
            command_line: fs::read_to_string("/proc/cmdline").unwrap_or_default(),
        })
    }

    /// Loads a module, by name or by an alias that the kernel asks for. Loaded already is fine.
    pub(super) fn load(&self, name: &str) -> Result<(), Trouble> {
        let name = name.replace('-', "_");
        let asked = |module: &&Module| {
            module.name == name
                || module
                    .aliases
                    .iter()
                    .any(|alias| alias.replace('-', "_") == name)
        };
        let module = self.table.iter().find(asked);
        let module = module.ok_or_else(|| Trouble(format!("no module {name} on this node")))?;
        if Path::new("/sys/module").join(&module.name).exists() {
            return Ok(());
        }
        for dependency in &module.depends {
            self.load_dependency(dependency)?;
        }
        self.insert(module)
    }

    /// What is built in, or named by `depends` but in no file of ours, needs no loading.
    fn load_dependency(&self, name: &str) -> Result<(), Trouble> {
        match self.table.iter().any(|module| module.name == name) {
            true => self.load(name),
            false => Ok(()),
        }
    }

    fn insert(&self, module: &Module) -> Result<(), Trouble> {
        let Some(path) = &module.path else {
            return Ok(());
        };
        let file = File::open(path).map_err(Trouble::at(format!("open {path}")))?;
        let parameters = CString::new(self.parameters(&module.name)).unwrap_or_default();
        match finit_module(&file, &parameters, ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(Trouble(format!("load {}: {error}", module.name))),
        }
    }

    /// `ib_core.netns_mode=0` on the kernel's command line is `netns_mode=0` for the module, as
    /// kmod's modprobe does it: the kernel hands over only what is built in.
    fn parameters(&self, name: &str) -> String {
        let words = self.command_line.split_whitespace();
        let own = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('.'));
        own.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_from_the_command_line() {
        let command_line = "quiet ib_core.netns_mode=0 ib_core.x=1 ib_coreb.y=2".into();
        let loader = Loader {
            table: Vec::new(),
            command_line,
        };
        assert_eq!(loader.parameters("ib_core"), "netns_mode=0 x=1");
        assert_eq!(loader.parameters("ib"), "");
    }
}
