//! Configuration documents: good ones read whole, bad ones with every fault and its path.

use super::*;
use serde_json::json;

#[test]
fn an_empty_document_discovers_everything() {
    assert_eq!(Config::from_document(Value::Null), Ok(Config::default()));
    assert_eq!(Config::from_document(json!({})), Ok(Config::default()));
}

#[test]
fn every_field() {
    let config = Config::from_document(json!({
        "pool": {
            "name": "rails", "subnets": ["10.239.255.0/24", "fd00::/64"], "blockSize": 32,
            "block": 1, "exclude": ["10.239.255.7"], "gateways": ["10.239.255.254"],
        },
        "rails": {
            "vendors": ["15b3"], "devices": ["0x1019"], "drivers": ["mlx5_core"],
            "pci": ["0000:0c:00.*"], "netdevs": ["rdma*"], "rdma": ["mlx5_*"],
            "exclude": ["eth*"], "virtualFunctions": true, "frontEnds": true,
            "shares": 2, "mtu": 4220,
            "overrides": [{ "gpu": "0000:0f:00.0", "nic": "0000:0c:00", "level": "switch" }],
        },
        "gpus": { "generic": true },
    }))
    .unwrap();
    let pool = config.pool.unwrap();
    assert_eq!(
        (pool.name.as_str(), pool.block_size, pool.block),
        ("rails", Some(32), 1)
    );
    assert_eq!(
        (pool.subnets.len(), pool.gateways.len(), pool.exclude.len()),
        (2, 1, 1)
    );
    assert_eq!((config.rails.shares, config.rails.mtu), (2, Some(4220)));
    assert_eq!(config.rails.vendors, [HexId(0x15b3)]);
    assert_eq!(config.rails.exclude, ["eth*"]);
    assert!(config.rails.virtual_functions && config.rails.front_ends);
    assert_eq!(config.rails.overrides[0].level, Level::Switch);
    assert!(config.generic_gpus);
}

#[test]
fn all_faults_come_together_with_their_paths() {
    let faults = Config::from_document(json!({
        "pool": { "subnets": ["10.0.0.0/33", "10.0.0.0/24"], "blockSize": 0, "gatewys": [] },
        "rails": {
            "shares": 65, "mtu": "big", "netdevs": "rdma0",
            "overrides": [{ "gpu": "0f:00.0", "nic": "0000:0c:00" }],
        },
        "gpus": { "generic": "yes" },
        "pools": {},
    }))
    .unwrap_err();
    let paths: Vec<&str> = faults.0.iter().map(|fault| fault.path.as_str()).collect();
    for path in [
        "pool.subnets[0]",
        "pool.blockSize",
        "pool.gatewys",
        "rails.shares",
        "rails.mtu",
        "rails.netdevs",
        "rails.overrides[0].gpu",
        "rails.overrides[0].level",
        "gpus.generic",
        "pools",
    ] {
        assert!(paths.contains(&path), "{path} is not among {paths:?}");
    }
    let text = faults.to_string();
    assert!(
        text.contains("pool.gatewys: unknown field; known here: name, subnets"),
        "{text}"
    );
    assert!(
        text.contains("rails.shares: 65 is not a whole number from 1 to 64"),
        "{text}"
    );
}

#[test]
fn ids_without_quotes_are_refused_since_yaml_may_have_changed_them() {
    // `vendors: [0x15b3]` and `vendors: [5555]` are the same document.
    let document = json!({ "rails": { "vendors": [0x15b3], "devices": [1019] } });
    let faults = Config::from_document(document).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "rails.vendors[0]: YAML reads this as the number 5555: write it in quotes\n\
         rails.devices[0]: YAML reads this as the number 1019: write it in quotes"
    );
}

#[test]
fn a_pool_needs_a_subnet() {
    let faults = Config::from_document(json!({ "pool": {} })).unwrap_err();
    assert_eq!(faults.to_string(), "pool.subnets: is required");
}

#[test]
fn documents_that_are_no_mapping() {
    for document in [json!([]), json!("x"), json!(1)] {
        let faults = Config::from_document(document).unwrap_err();
        assert!(
            faults
                .to_string()
                .starts_with("(document): expected a mapping"),
            "{faults}"
        );
    }
}
