//! The configuration file, or what an earlier run made of it.

use crate::options::Options;
use podrail_core::config::Faults;
use podrail_node::{Settings, yaml};
use podrail_store::{ReadOnly, Setup};
use std::io;
use std::path::PathBuf;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It is not there, not a file, too large, or not this program's to read.
    #[error("cannot read the configuration {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The text is no YAML.
    #[error("the configuration {} is not valid YAML", path.display())]
    Syntax {
        path: PathBuf,
        source: yaml::BadYaml,
    },
    /// Fields are unknown or have values that cannot be; all are named.
    #[error("the configuration {} is not valid: {faults}", path.display())]
    Faults { path: PathBuf, faults: Faults },
}

impl ConfigError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "see that the file is there and may be read by the agent",
            Self::Syntax { .. } | Self::Faults { .. } => {
                "correct the file, which is read again by itself; until then the last good \
                 configuration counts"
            }
        }
    }
}

/// A configuration that was checked, and its document for the state file.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    pub(crate) setup: Setup,
}

/// Reads and checks the file. Without one at the usual place everything has its default.
pub(crate) fn load(options: &Options) -> Result<Loaded, ConfigError> {
    let path = options.config_path();
    let text = match yaml::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.config.is_none() => {
            String::new()
        }
        Err(source) => return Err(ConfigError::Read { path, source }),
        Ok(text) => text,
    };
    let document = match yaml::document(&text) {
        Ok(document) => document,
        Err(source) => return Err(ConfigError::Syntax { path, source }),
    };
    let text = document.to_string();
    let settings = Settings::from_document(document, &options.node_addresses);
    let settings = settings.map_err(|faults| ConfigError::Faults { path, faults })?;
    let setup = Setup {
        document: text,
        root: options.root.to_string_lossy().into_owned(),
        node_addresses: options.node_addresses.clone(),
    };
    Ok(Loaded { settings, setup })
}

/// What the last good configuration was, as the state file has it.
pub(crate) fn remembered(state: &ReadOnly) -> Option<Settings> {
    Settings::of_setup(state.setup()?).ok()
}
