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
        "resource": "nvidia.com/hostdev",
        "networks": [
            { "name": "rdma-ipvlan-{rail}", "namespace": "default" },
            { "name": "storage", "rail": 3 },
            { "name": "backup", "namespace": "jobs", "netdev": "rdma7" },
        ],
        "cdi": { "umad": true, "issm": true },
    }))
    .unwrap();
    assert_eq!(
        Config::from_document(config.document()).as_ref(),
        Ok(&config)
    );
    assert_eq!(config.resource.as_str(), "nvidia.com/hostdev");
    assert_eq!(config.networks.len(), 3);
    assert!(config.cdi.umad && config.cdi.issm);
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
fn the_default_survives_its_document() {
    let config = Config::default();
    assert_eq!(config.resource.as_str(), "podrail.io/rail");
    assert_eq!(Config::from_document(config.document()), Ok(config));
}

#[test]
fn networks_name_one_rail_each() {
    let config = Config::from_document(json!({ "networks": [
        { "name": "rdma-ipvlan-{rail}", "namespace": "default" },
        { "name": "rdma-ipvlan-0", "namespace": "jobs", "netdev": "rdma9" },
        { "name": "storage", "rail": 3 },
    ] }))
    .unwrap();
    let rail = |namespace: &str, name: &str| {
        let mut rails = config.networks.iter();
        rails
            .find_map(|network| network.rail(namespace, name))
            .map(|rail| rail.to_string())
    };
    for (namespace, name, expected) in [
        ("default", "rdma-ipvlan-0", Some("rail 0")),
        ("default", "rdma-ipvlan-15", Some("rail 15")),
        ("default", "rdma-ipvlan-015", None),
        ("default", "rdma-ipvlan-+1", None),
        ("default", "rdma-ipvlan-", None),
        ("default", "rdma-ipvlan-65536", None),
        ("other", "rdma-ipvlan-1", None),
        ("jobs", "rdma-ipvlan-0", Some("rail rdma9")),
        ("anywhere", "storage", Some("rail 3")),
        ("anywhere", "storage2", None),
    ] {
        assert_eq!(
            rail(namespace, name).as_deref(),
            expected,
            "{namespace}/{name}"
        );
    }
}

fn network_faults(networks: &Value) -> String {
    match Config::from_document(json!({ "networks": networks })) {
        Ok(config) => panic!("{:?}", config.networks),
        Err(faults) => faults.to_string(),
    }
}

#[test]
fn networks_that_are_unclear_are_refused() {
    let one = |entry: Value| network_faults(&json!([entry]));
    for (entry, expected) in [
        (json!({ "rail": 1 }), "networks[0].name: is required"),
        (json!({ "name": "a" }), "networks[0].name: which rail?"),
        (
            json!({ "name": "A", "rail": 1 }),
            "networks[0].name: name \"A\" is not valid",
        ),
        (
            json!({ "name": "a", "rail": 1, "netdev": "rdma1" }),
            "networks[0].netdev: give 'rail' or 'netdev'",
        ),
        (
            json!({ "name": "a{rail}", "rail": 1 }),
            "networks[0].name: {rail} already says",
        ),
        (
            json!({ "name": "a{rail}{rail}" }),
            "networks[0].name: {rail} may stand only once",
        ),
        (
            json!({ "name": "a", "rail": 65536 }),
            "networks[0].rail: 65536 is not",
        ),
        (
            json!({ "name": "a", "netdev": "a/b" }),
            "networks[0].netdev: interface name",
        ),
        (
            json!({ "name": "a", "rail": 1, "if": "x" }),
            "networks[0].if: unknown field",
        ),
        (json!("a"), "networks[0]: expected a mapping"),
    ] {
        let text = one(entry.clone());
        assert!(text.starts_with(expected), "{entry}: {text}");
        // Nothing else is said of the same field.
        assert!(
            entry.is_string() || text.lines().count() == 1,
            "{entry}: {text}"
        );
    }
}

#[test]
fn networks_that_could_be_each_other() {
    let pair = |first: Value, second: Value| network_faults(&json!([first, second]));
    for (first, second) in [
        (
            json!({ "name": "a", "rail": 1 }),
            json!({ "name": "a", "rail": 1 }),
        ),
        (
            json!({ "name": "a", "rail": 1, "namespace": "n" }),
            json!({ "name": "a", "rail": 2 }),
        ),
        (
            json!({ "name": "a{rail}" }),
            json!({ "name": "a7", "netdev": "rdma1" }),
        ),
        (json!({ "name": "a{rail}" }), json!({ "name": "a1{rail}" })),
        (
            json!({ "name": "a{rail}b" }),
            json!({ "name": "a{rail}0b" }),
        ),
    ] {
        let text = pair(first, second);
        assert!(
            text.starts_with("networks[1].name: could be meant by networks[0]"),
            "{text}"
        );
    }
}

#[test]
fn networks_that_only_look_alike() {
    let clear = json!({ "networks": [
        { "name": "a{rail}" },
        { "name": "ab{rail}" },
        { "name": "a{rail}-b" },
        { "name": "a", "rail": 1 },
        { "name": "a-x", "rail": 1, "namespace": "n" },
        { "name": "a-x", "rail": 1, "namespace": "m" },
    ] });
    let networks = Config::from_document(clear).map(|config| config.networks.len());
    assert_eq!(networks, Ok(6));
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

#[test]
fn messages_do_not_grow_with_the_document() {
    let many: serde_json::Map<String, Value> =
        (0..10_000).map(|n| (format!("f{n}"), json!(1))).collect();
    let text = Config::from_document(json!(many)).unwrap_err().to_string();
    assert!(text.len() < 10_000, "{} bytes", text.len());
    assert!(text.ends_with("... and 9950 more faults"), "{text}");
    let long = format!("{}\u{1b}[2J", "a".repeat(10_000));
    let document = json!({ "rails": { &long: 1, "shares": [long] } });
    let text = Config::from_document(document).unwrap_err().to_string();
    assert!(text.len() < 1500, "{} bytes", text.len());
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn more_networks_than_rails_are_refused_before_they_are_compared() {
    let entry = |n| json!({ "name": format!("a{n}"), "rail": 1 });
    let networks: Vec<Value> = (0..40_000).map(entry).collect();
    assert_eq!(
        network_faults(&json!(networks)),
        "networks: has 40000 entries, at most 1024"
    );
}
