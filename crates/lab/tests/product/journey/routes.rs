//! Source routing of many rails in one subnet, beside the pod's own network.

use super::{attach, detach, interfaces};
use crate::support::{CONFIG, Node};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// An address of the pool's subnet that nobody has.
const FAR_RAIL: &str = "10.239.255.200";
/// An address outside every subnet of the pod.
const ELSEWHERE: &str = "192.0.2.7";

pub(super) fn case_20_21_22_one_subnet_on_sixteen_rails(node: &Node) {
    give_pod1_its_own_network(node);
    // Somebody else's rule, on a table and a priority that a rail has too.
    let foreign = "from 192.0.2.1 lookup 100 priority 30100";
    node.sh(&format!("ip -n pod1 rule add {foreign}"));
    let (rules, main) = (node.ip("-n pod1 rule"), main_routes(node));
    attach(node, "pod1", "--rails 16");
    let interfaces = interfaces(node, "pod1");
    assert_eq!(interfaces.len(), 16);
    case_20_an_address_leaves_by_its_own_interface(node, &interfaces);
    case_21_rules_and_tables_are_the_rails_own(node, &interfaces, &rules);
    case_22_the_pods_default_route_stays(node, &main);
    // Tables and rules of the next attachment are the same.
    let tables = tables(node);
    detach(node, "pod1");
    assert_eq!((node.ip("-n pod1 rule"), main_routes(node)), (rules, main));
    attach(node, "pod1", "--rails 16");
    assert_eq!(self::tables(node), tables);
    detach(node, "pod1");
}

fn case_20_an_address_leaves_by_its_own_interface(node: &Node, all: &[(String, Ipv4Addr)]) {
    let ways = ways(node, FAR_RAIL, all);
    for (way, (interface, address)) in ways.iter().zip(all) {
        assert_eq!(way[0]["dev"], interface.as_str(), "from {address}: {way}");
        assert!(way[0].get("gateway").is_none(), "from {address}: {way}");
    }
}

fn case_21_rules_and_tables_are_the_rails_own(
    node: &Node,
    all: &[(String, Ipv4Addr)],
    before: &Value,
) {
    let mut rules: Vec<Value> = node.ip("-n pod1 rule").as_array().unwrap().clone();
    for (at, (interface, address)) in all.iter().enumerate() {
        let table = (100 + at).to_string();
        let rule =
            json!({ "priority": 30100 + at, "src": address, "table": table, "protocol": "112" });
        let found = rules.iter().position(|found| *found == rule);
        rules.remove(found.unwrap_or_else(|| panic!("no {rule} in {rules:?}")));
        let routes = node.ip(&format!("-n pod1 route show table {table}"));
        assert_eq!(
            routes.as_array().unwrap().len(),
            1,
            "table {table}: {routes}"
        );
        assert_eq!(
            routes[0]["dst"], "10.239.255.0/24",
            "table {table}: {routes}"
        );
        assert_eq!(
            routes[0]["dev"],
            interface.as_str(),
            "table {table}: {routes}"
        );
    }
    assert_eq!(Value::Array(rules), *before, "rules of others");
}

fn case_22_the_pods_default_route_stays(node: &Node, before: &Value) {
    let (connected, others): (Vec<Value>, Vec<Value>) = main_routes(node)
        .as_array()
        .unwrap()
        .iter()
        .cloned()
        .partition(|route| route["dst"] == "10.239.255.0/24" && route["protocol"] == "kernel");
    assert_eq!(Value::Array(others), *before);
    assert_eq!(connected.len(), 16);
}

pub(super) fn case_22_a_gateway_serves_its_own_rail_only(node: &Node) {
    node.configure(&format!("{CONFIG}  gateways: [10.239.255.1]\n"));
    give_pod1_its_own_network(node);
    let main = main_routes(node);
    attach(node, "pod1", "--rails 16");
    let interfaces = interfaces(node, "pod1");
    let given = Ipv4Addr::new(10, 239, 255, 1);
    assert!(
        interfaces.iter().all(|(_, address)| *address != given),
        "the gateway's address"
    );
    for (way, (interface, address)) in ways(node, ELSEWHERE, &interfaces).iter().zip(&interfaces) {
        assert_eq!(way[0]["dev"], interface.as_str(), "from {address}: {way}");
        assert_eq!(way[0]["gateway"], "10.239.255.1", "from {address}: {way}");
    }
    case_20_an_address_leaves_by_its_own_interface(node, &interfaces);
    case_22_the_pods_default_route_stays(node, &main);
    let own = node.ip(&format!("-n pod1 route get {ELSEWHERE}"));
    assert_eq!(own[0]["dev"], "eth0", "{own}");
    detach(node, "pod1");
    assert_eq!(main_routes(node), main);
}

/// What the cluster's network gives to a pod before its rails come.
fn give_pod1_its_own_network(node: &Node) {
    node.sh(
        "ip -n pod1 link add eth0 type dummy; ip -n pod1 addr add 10.0.5.9/24 dev eth0; \
         ip -n pod1 link set eth0 up; ip -n pod1 route add default via 10.0.5.1",
    );
}

fn main_routes(node: &Node) -> Value {
    node.ip("-n pod1 route show table main")
}

/// All rules and all routes but those of the main and the local table.
fn tables(node: &Node) -> (Value, Vec<Value>) {
    let routes = node.ip("-n pod1 route show table all");
    let of_rails = routes.as_array().unwrap().iter().filter(|route| {
        route["table"]
            .as_str()
            .is_some_and(|table| table.parse::<u32>().is_ok())
    });
    // Addresses are new ones, so sources differ.
    let names = |route: &Value| json!([route["table"], route["dst"], route["dev"]]);
    let rules = node.ip("-n pod1 rule");
    let priorities = rules.as_array().unwrap().iter();
    let priorities = priorities.map(|rule| json!([rule["priority"], rule["table"]]));
    (priorities.collect(), of_rails.map(names).collect())
}

/// `ip route get` of one destination from each of the pod's addresses.
fn ways(node: &Node, to: &str, from: &[(String, Ipv4Addr)]) -> Vec<Value> {
    let one = |(_, address): &(String, Ipv4Addr)| {
        format!("ip -n pod1 -j route get {to} from {address}\n")
    };
    let text = node.sh(&from.iter().map(one).collect::<String>());
    serde_json::Deserializer::from_str(&text)
        .into_iter()
        .map(Result::unwrap)
        .collect()
}
