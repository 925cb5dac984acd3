//! The configuration file: which one, and how its faults are told.

use crate::cli::NodeArgs;
use crate::failure::Failure;
use podrail_core::ipam::Pool;
use podrail_node::yaml;
use std::io;
use std::path::{Path, PathBuf};

/// Read when no other file is given, if it exists.
const DEFAULT_PATH: &str = "/etc/podrail/config.yaml";

/// Settings of this node, and where they came from.
#[derive(Debug)]
pub struct Settings {
    /// The file they came from; none if there is none.
    pub path: Option<PathBuf>,
    /// The settings.
    pub node: podrail_node::Settings,
}

impl Settings {
    /// Reads the file that the arguments name, or the default one if it exists.
    ///
    /// # Errors
    /// The file cannot be read, is no YAML, or has faults: all of them at once.
    pub fn load(args: &NodeArgs) -> Result<Self, Failure> {
        let (path, text) = read(args.config.as_deref())?;
        let file = path.clone().unwrap_or_else(|| DEFAULT_PATH.into());
        let document = yaml::document(&text).map_err(|error| Failure::ConfigSyntax {
            path: file.clone(),
            text: error.to_string(),
        })?;
        let node = podrail_node::Settings::from_document(document, &args.node_addresses)
            .map_err(|faults| Failure::ConfigFaults { path: file, faults })?;
        Ok(Self { path, node })
    }

    /// The pool, or an error that tells how to get one.
    ///
    /// # Errors
    /// [`Failure::NoPool`].
    pub fn pool(&self) -> Result<&Pool, Failure> {
        self.node.pool.as_ref().ok_or_else(|| Failure::NoPool {
            path: self.path.clone(),
        })
    }
}

fn read(given: Option<&Path>) -> Result<(Option<PathBuf>, String), Failure> {
    let path = given.unwrap_or(Path::new(DEFAULT_PATH)).to_owned();
    match yaml::read(&path) {
        Ok(text) => Ok((Some(path), text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && given.is_none() => {
            Ok((None, String::new()))
        }
        Err(source) => Err(Failure::ConfigRead { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        let args = NodeArgs {
            config: Some(path),
            root: "/".into(),
            node_addresses: vec![],
        };
        Settings::load(&args).map_err(|error| crate::failure::in_words(&error))
    }

    #[test]
    fn an_empty_file_and_a_pool() {
        assert!(load("").unwrap().pool().is_err());
        let settings = load("pool:\n  subnets: [10.239.255.0/24]\n  blockSize: 32\n").unwrap();
        assert_eq!(settings.pool().unwrap().blocks_that_fit(), 7);
    }

    #[test]
    fn faults_of_all_layers_come_together() {
        let text = "pool: { subnets: [10.0.0.0/24], blockSize: 32, block: 7 }\n\
                    rails: { netdevs: ['', 'rdma*'] }\n";
        let error = load(text).unwrap_err();
        for part in ["rails.netdevs[0]", "pool.block", "7", "hint:"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn what_is_no_yaml_or_not_there() {
        assert!(load("pool: [").unwrap_err().contains("is not valid YAML"));
        assert!(load("a: &a [*a]").is_err());
        let endless = NodeArgs {
            config: Some("/dev/zero".into()),
            root: "/".into(),
            node_addresses: vec![],
        };
        let error = Settings::load(&endless).unwrap_err();
        let words = crate::failure::in_words(&error);
        assert!(words.contains("larger than 1048576 bytes"), "{words}");
        assert_eq!(error.exit(), crate::failure::Exit::Config);
        let missing = NodeArgs {
            config: Some("/nonexistent/x.yaml".into()),
            root: "/".into(),
            node_addresses: vec![],
        };
        assert_eq!(
            Settings::load(&missing).unwrap_err().exit(),
            crate::failure::Exit::Config
        );
    }
}
