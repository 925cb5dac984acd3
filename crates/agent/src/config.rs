//! The configuration file, or what an earlier run made of it.

use crate::options::Options;
use podrail_core::config::Faults;
use podrail_core::ids::ResourceName;
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
    /// It was there before. Defaults, with another resource and no pool, are not meant by that.
    #[error("the configuration {} is gone", path.display())]
    Gone { path: PathBuf },
    /// Fields are unknown or have values that cannot be; all are named.
    #[error("the configuration {} is not valid: {faults}", path.display())]
    Faults { path: PathBuf, faults: Faults },
}

impl ConfigError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "see that the file is there and may be read by the agent",
            Self::Gone { .. } => {
                "write it again (an empty file stands for defaults); until then the last good \
                 configuration counts"
            }
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

/// The configuration that counts.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) loaded: Loaded,
    /// The resource that the file names, where it has to wait.
    pub(crate) asked: Option<ResourceName>,
}

impl Effective {
    pub(crate) fn in_words(&self, options: &Options) -> String {
        let path = options.config_path();
        let resource = &self.loaded.settings.config.resource;
        match &self.asked {
            Some(asked) => format!(
                "pods hold slots of {resource}: {asked} counts when they are gone (drain the node)"
            ),
            None if path.exists() => format!("from {}", path.display()),
            None => format!("there is no {}: defaults, and no pool", path.display()),
        }
    }
}

/// Reads and checks the file, and compares it with what counted before. Slots have the same names
/// whatever their resource is called: under a new name the kubelet would give away those that pods
/// hold under the old one.
pub(crate) fn effective(options: &Options, known: &ReadOnly) -> Result<Effective, ConfigError> {
    let loaded = load(options)?;
    let path = options.config_path();
    if is_gone(path.exists(), known.setup(), &loaded.setup) {
        return Err(ConfigError::Gone { path });
    }
    let before = remembered(known).map(|settings| settings.config.resource);
    let asked = loaded.settings.config.resource.clone();
    match before.filter(|before| *before != asked && holds_slots(known)) {
        None => Ok(Effective {
            loaded,
            asked: None,
        }),
        Some(before) => Ok(Effective {
            loaded: with_resource(options, &loaded, &before)?,
            asked: Some(asked),
        }),
    }
}

/// Whether a file that once said something is not there any more.
fn is_gone(is_there: bool, before: Option<&Setup>, now: &Setup) -> bool {
    !is_there && before.is_some_and(|before| before.document != now.document)
}

fn holds_slots(known: &ReadOnly) -> bool {
    let mut rails = known.list().iter().flat_map(|binding| &binding.rails);
    !known.waiting().is_empty() || rails.any(|rail| rail.slot.is_some())
}

fn with_resource(
    options: &Options,
    loaded: &Loaded,
    resource: &ResourceName,
) -> Result<Loaded, ConfigError> {
    let path = options.config_path();
    let parsed = serde_json::from_str::<serde_json::Value>(&loaded.setup.document);
    let mut document = parsed.unwrap_or_default();
    match document.as_object_mut() {
        Some(fields) => {
            fields.insert("resource".into(), resource.as_str().into());
        }
        None => document = serde_json::json!({ "resource": resource.as_str() }),
    }
    checked(options, path, document)
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
    checked(options, path, document)
}

fn checked(
    options: &Options,
    path: PathBuf,
    document: serde_json::Value,
) -> Result<Loaded, ConfigError> {
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

#[cfg(test)]
mod tests;
