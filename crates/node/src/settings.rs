//! The checked configuration of a node, with the checks that need more than one crate.

use podrail_core::config::{Config, Fault, Faults};
use podrail_core::ids::ResourceName;
use podrail_core::ipam::Pool;
use podrail_core::words::BadJson;
use podrail_host::{Pattern, Selectors};
use podrail_store::Setup;
use serde_json::Value;
use std::net::IpAddr;

/// Settings of this node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Checked fields.
    pub config: Config,
    /// Which ports are rails.
    pub selectors: Selectors,
    /// Where addresses come from; none if the configuration names no pool.
    pub pool: Option<Pool>,
}

/// Why the configuration in the state file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum BadSetup {
    /// It is no document.
    #[error("it is no JSON of a configuration: {0}")]
    Document(BadJson),
    /// Its fields are wrong.
    #[error(transparent)]
    Faults(#[from] Faults),
}

impl Settings {
    /// Reads a document. Interfaces that have one of the node's addresses are no rails.
    ///
    /// # Errors
    /// All faults at once, each with its path.
    pub fn from_document(document: Value, node_addresses: &[IpAddr]) -> Result<Self, Faults> {
        let config = Config::from_document(document)?;
        let mut faults = Vec::new();
        let selectors = selectors(&config, node_addresses, &mut faults);
        let pool = config.pool.as_ref().map(|pool| Pool::new("pool", pool));
        let pool = pool.transpose().unwrap_or_else(|error| {
            faults.extend(error.0);
            None
        });
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        Ok(Self {
            config,
            selectors,
            pool,
        })
    }

    /// As an agent has written them into the state file.
    ///
    /// # Errors
    /// They are not valid by now.
    pub fn of_setup(setup: &Setup) -> Result<Self, BadSetup> {
        let document = serde_json::from_str(&setup.document)
            .map_err(|error| BadSetup::Document(error.into()))?;
        Ok(Self::from_document(document, &setup.node_addresses)?)
    }

    /// What slots are counted as by the state file: the default where no agent has said so.
    #[must_use]
    pub fn resource_of(setup: Option<&Setup>) -> ResourceName {
        let said = setup.and_then(|setup| Self::of_setup(setup).ok());
        said.map_or_else(|| Config::default().resource, |said| said.config.resource)
    }
}

fn selectors(config: &Config, node_addresses: &[IpAddr], faults: &mut Vec<Fault>) -> Selectors {
    let rails = &config.rails;
    let mut patterns = |field: &str, texts: &[String]| -> Vec<Pattern> {
        let each = |(at, text): (usize, &String)| {
            let fault = |error: podrail_host::BadPattern| {
                Fault::new(&format!("rails.{field}[{at}]"), error)
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
        node_addresses: node_addresses.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_resource_is_what_the_agent_said_or_the_default() {
        let said = |document: &Value| {
            let setup = Setup {
                document: document.to_string(),
                root: "/".into(),
                node_addresses: vec![],
            };
            Settings::resource_of(Some(&setup)).to_string()
        };
        assert_eq!(
            said(&json!({"resource": "nvidia.com/hostdev"})),
            "nvidia.com/hostdev"
        );
        for other in [json!({}), json!({"resource": 7}), json!("no document")] {
            assert_eq!(said(&other), "podrail.io/rail");
        }
        assert_eq!(Settings::resource_of(None).as_str(), "podrail.io/rail");
    }
}
