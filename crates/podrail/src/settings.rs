//! The configuration file: YAML in, checked settings out.

use crate::cli::NodeArgs;
use crate::failure::Failure;
use podrail_core::config::{Config, Fault, Faults};
use podrail_core::ipam::Pool;
use podrail_host::{Pattern, Selectors};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Read when no other file is given, if it exists.
const DEFAULT_PATH: &str = "/etc/podrail/config.yaml";

/// Largest configuration, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// Settings of this node.
#[derive(Debug)]
pub struct Settings {
    /// The file they came from; none if there is none.
    pub path: Option<PathBuf>,
    /// Checked fields.
    pub config: Config,
    /// Which ports are rails.
    pub selectors: Selectors,
    /// Where addresses come from.
    pool: Option<Pool>,
}

impl Settings {
    /// Reads the file that the arguments name, or the default one if it exists.
    ///
    /// # Errors
    /// The file cannot be read, is no YAML, or has faults: all of them at once.
    pub fn load(args: &NodeArgs) -> Result<Self, Failure> {
        let (path, text) = read(args.config.as_deref())?;
        let file = path.clone().unwrap_or_else(|| DEFAULT_PATH.into());
        let document = serde_saphyr::from_str(&text).map_err(|error| Failure::ConfigSyntax {
            path: file.clone(),
            // Its own first word would stand in the middle of our line.
            text: error.to_string().trim_start_matches("error: ").to_owned(),
        })?;
        let checked = Config::from_document(document).and_then(|config| check(config, args));
        let (config, selectors, pool) =
            checked.map_err(|faults| Failure::ConfigFaults { path: file, faults })?;
        Ok(Self {
            path,
            config,
            selectors,
            pool,
        })
    }

    /// The pool, or an error that tells how to get one.
    ///
    /// # Errors
    /// [`Failure::NoPool`].
    pub fn pool(&self) -> Result<&Pool, Failure> {
        self.pool.as_ref().ok_or_else(|| Failure::NoPool {
            path: self.path.clone(),
        })
    }
}

fn read(given: Option<&Path>) -> Result<(Option<PathBuf>, String), Failure> {
    let path = given.unwrap_or(Path::new(DEFAULT_PATH)).to_owned();
    match read_bounded(&path) {
        Ok(text) => Ok((Some(path), text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && given.is_none() => {
            Ok((None, String::new()))
        }
        Err(source) => Err(Failure::ConfigRead { path, source }),
    }
}

/// The text of a file, unless it is larger than any configuration: a device has no end.
fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        let words = format!("larger than {LARGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    Ok(text)
}

/// The checks that need more than one field, or the matcher of another crate.
fn check(config: Config, args: &NodeArgs) -> Result<(Config, Selectors, Option<Pool>), Faults> {
    let mut faults = Vec::new();
    let selectors = selectors(&config, args, &mut faults);
    let pool = config
        .pool
        .as_ref()
        .map(|pool| Pool::new("pool", pool))
        .transpose();
    let pool = pool.unwrap_or_else(|error| {
        faults.extend(error.0);
        None
    });
    if faults.is_empty() {
        Ok((config, selectors, pool))
    } else {
        Err(Faults(faults))
    }
}

fn selectors(config: &Config, args: &NodeArgs, faults: &mut Vec<Fault>) -> Selectors {
    let rails = &config.rails;
    let mut patterns = |field: &str, texts: &[String]| -> Vec<Pattern> {
        let each = |(at, text): (usize, &String)| {
            let fault = |error: podrail_host::BadPattern| Fault {
                path: format!("rails.{field}[{at}]"),
                text: error.to_string(),
            };
            Pattern::parse(text)
                .map_err(|error| faults.push(fault(error)))
                .ok()
        };
        texts.iter().enumerate().filter_map(each).collect()
    };
    Selectors {
        vendors: rails.vendors.iter().map(|id| id.0).collect(),
        devices: rails.devices.iter().map(|id| id.0).collect(),
        drivers: rails.drivers.clone(),
        pci: patterns("pci", &rails.pci),
        netdevs: patterns("netdevs", &rails.netdevs),
        rdma: patterns("rdma", &rails.rdma),
        exclude: patterns("exclude", &rails.exclude),
        link_types: vec![],
        virtual_functions: rails.virtual_functions,
        front_ends: rails.front_ends,
        generic_gpus: config.generic_gpus,
        node_addresses: args.node_addresses.clone(),
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
