//! The reference plugins on the same node, with the post's settings, compared with the product.
//!
//! The chain is ipvlan (address by host-local), tuning, sbr, called as libcni does. Everything that
//! differs between a pod of theirs and one of ours stands in `docs/reference-plugins.md` with its
//! reason: a difference that is not there fails, and so does one that no longer exists.

use crate::support::{Node, code};
use podrail_lab::Output;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Where the lab has Debian's plugins.
const PLUGINS: &str = "/usr/lib/cni";
/// Rails of the node, all of which both pods get.
const RAILS: usize = 16;
/// The page with the table of differences.
const PAGE: &str = include_str!("../../../../docs/reference-plugins.md");
/// host-local always names the first address of the subnet as gateway, so the product's pool has it
/// too; the two take their addresses from parts of the subnet that do not meet.
const CONFIG: &str = "\
gpus: { generic: true }
pool:
  name: rails
  subnets: [10.239.255.0/24]
  blockSize: 32
  gateways: [10.239.255.1]
";
/// A plugin under strace, under emulation, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// What is there, as `fact -> value`; facts that belong to a rail name it as `net<N>`.
type Facts = BTreeMap<String, String>;
/// `fact -> (reference, product)`, with the rail's number taken out of the fact.
type Differences = BTreeMap<String, (String, String)>;

#[test]
fn every_difference_to_the_reference_plugins_is_known_and_explained() {
    let Some(node) = Node::boot("B4.8") else {
        return;
    };
    node.configure(CONFIG);
    for pod in ["new", "ref", "own"] {
        node.pod(pod);
        // As a distribution sets it: rails do not work with it, so both sides have to change it.
        node.sh(&format!(
            "ip netns exec {pod} sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter'"
        ));
    }
    let untouched = facts(&node, "new");

    let calls = add_all(&node);
    let ours = attach(&node);
    show_cost(&calls, &ours);
    let (reference, product) = (facts(&node, "ref"), facts(&node, "own"));
    let mut found = differences(&reference, &product);

    // Neither teardown touches the other's pod.
    detach(&node);
    same(&facts(&node, "ref"), &reference, "theirs after our detach");
    let after_ours = facts(&node, "own");
    same(&after_ours, &untouched, "ours after detach");
    attach(&node);
    same(&facts(&node, "own"), &product, "attached again");
    del_all(&node);
    same(&facts(&node, "own"), &product, "ours after their DEL");
    let after_theirs = facts(&node, "ref");

    let left = differences(&after_theirs, &after_ours).into_iter();
    found.extend(left.map(|(what, pair)| (format!("after teardown: {what}"), pair)));
    let table = table();
    let (unknown, gone) = (rows_without(&found, &table), rows_without(&table, &found));
    assert!(
        unknown.is_empty() && gone.is_empty(),
        "differences that docs/reference-plugins.md does not have:\n{unknown}\n\
         rows of it that are not so:\n{gone}"
    );
}

// --- The two sides -------------------------------------------------------------------------------

/// The configuration of one plugin of the chain, as libcni makes it from the post's.
fn plugin_config(plugin: &str, rail: usize, previous: Option<&Value>) -> Value {
    let mut config = match plugin {
        "ipvlan" => json!({
            "master": format!("rdma{rail}"), "mode": "l2",
            "ipam": { "type": "host-local", "dataDir": "/run/reference-ipam", "ranges": [[{
                "subnet": "10.239.255.0/24",
                "rangeStart": "10.239.255.101", "rangeEnd": "10.239.255.132",
            }]] },
        }),
        "tuning" => json!({ "dataDir": "/run/reference-tuning", "sysctl": {
            "net.ipv4.conf.all.rp_filter": "0",
            "net.ipv4.conf.IFNAME.arp_announce": "2",
            "net.ipv4.conf.IFNAME.arp_filter": "1",
            "net.ipv4.conf.IFNAME.arp_ignore": "1",
            "net.ipv4.conf.IFNAME.rp_filter": "0",
            "net.ipv4.conf.IFNAME.accept_local": "1",
        } }),
        _ => json!({ "addSourceHints": true }),
    };
    // One name for all rails: host-local keeps a range by it, as nv-ipam does by the pool's.
    config["cniVersion"] = json!("1.0.0");
    config["name"] = json!("rails");
    config["type"] = json!(plugin);
    if let Some(previous) = previous {
        config["prevResult"] = previous.clone();
    }
    config
}

/// Calls one plugin; with `traced`, its system calls go to a file.
fn call(node: &Node, command: &str, rail: usize, config: &Value, traced: bool) -> Output {
    let plugin = format!("{PLUGINS}/{}", config["type"].as_str().unwrap());
    let argv = if traced { strace(&plugin) } else { plugin };
    let output = node
        .lab
        .cmd(argv.split_whitespace())
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "ref")
        .env("CNI_NETNS", "/run/netns/ref")
        .env("CNI_IFNAME", &format!("net{}", rail + 1))
        .env("CNI_PATH", PLUGINS)
        .stdin(config.to_string())
        .timeout(LIMIT)
        .run()
        .unwrap();
    assert_eq!(code(&output), 0, "{command} {config}: {}", output.text());
    output
}

/// One ADD of the chain for each rail; what the last rail cost.
fn add_all(node: &Node) -> Cost {
    let mut cost = Cost::default();
    for rail in 0..RAILS {
        let traced = rail + 1 == RAILS;
        let mut result: Option<Value> = None;
        for plugin in ["ipvlan", "tuning", "sbr"] {
            let config = plugin_config(plugin, rail, result.as_ref());
            let output = call(node, "ADD", rail, &config, traced);
            result = Some(output.json().unwrap());
            if traced {
                cost.add(&trace(node));
            }
        }
    }
    cost
}

/// One DEL of the chain for each rail, in reverse order.
fn del_all(node: &Node) {
    for rail in 0..RAILS {
        for plugin in ["sbr", "tuning", "ipvlan"] {
            call(node, "DEL", rail, &plugin_config(plugin, rail, None), false);
        }
    }
}

/// All rails by the product, in one call; what it cost.
fn attach(node: &Node) -> Cost {
    let command = "podrail attach --netns /run/netns/own --id own --rails 16";
    let output = node
        .lab
        .cmd(strace(command).split_whitespace())
        .env("PODRAIL_ROOT", "/lab/root")
        .env("PODRAIL_NODE_ADDRESS", "10.140.67.66")
        .timeout(LIMIT)
        .run()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", output.stderr_text());
    let mut cost = Cost::default();
    cost.add(&trace(node));
    cost
}

fn detach(node: &Node) {
    node.podrail_ok("detach --id own");
}

// --- What it costs -------------------------------------------------------------------------------

/// Programs started, and netlink messages sent (each is a round trip).
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    programs: usize,
    messages: usize,
}

impl Cost {
    fn add(&mut self, trace: &str) {
        let count = |found: &dyn Fn(&str) -> bool| trace.lines().filter(|line| found(line)).count();
        // With threads the end of a call may stand on a line of its own.
        let is_exec = |line: &str| line.contains("execve(") || line.contains("execve resumed");
        self.programs += count(&|line| is_exec(line) && line.ends_with("= 0"));
        self.messages += count(&|line| line.contains("nlmsg_len=") && line.contains("send"));
    }
}

fn strace(command: &str) -> String {
    format!("strace -f -qq -e trace=execve,sendto,sendmsg,sendmmsg -o /run/trace {command}")
}

fn trace(node: &Node) -> String {
    String::from_utf8(node.lab.read_file("/run/trace").unwrap()).unwrap()
}

fn show_cost(one_rail: &Cost, ours: &Cost) {
    println!(
        "{RAILS} rails: {} programs and {} netlink messages by the reference plugins, {} and {} \
         by podrail",
        one_rail.programs * RAILS,
        one_rail.messages * RAILS,
        ours.programs,
        ours.messages
    );
    // ipvlan, which starts host-local, tuning, sbr.
    assert_eq!((one_rail.programs, ours.programs), (4, 1));
    assert!(
        ours.messages < 3 * one_rail.messages,
        "all rails take little more than one of theirs"
    );
}

// --- What is there -------------------------------------------------------------------------------

/// All facts of a pod's namespace.
fn facts(node: &Node, pod: &str) -> Facts {
    wait_for_ipv6(node, pod);
    let mut facts = Facts::new();
    for link in list(&node.ip(&format!("-n {pod} -d link"))) {
        link_facts(&mut facts, link);
    }
    let links = node.ip(&format!("-n {pod} -d addr"));
    for link in list(&links) {
        address_facts(&mut facts, link);
    }
    for family in ["4", "6"] {
        for rule in list(&node.ip(&format!("-n {pod} -{family} -d rule"))) {
            rule_facts(&mut facts, family, rule);
        }
        for route in list(&node.ip(&format!("-n {pod} -{family} -d route show table all"))) {
            route_facts(&mut facts, family, route);
        }
    }
    let sysctls = node.sh(&format!(
        "ip netns exec {pod} sh -c 'cd /proc/sys/net && grep -s . ipv4/conf/*/* ipv6/conf/*/* || :'"
    ));
    for line in sysctls.lines() {
        let (file, value) = line.split_once(':').unwrap();
        facts.insert(format!("sysctl {file}"), value.to_owned());
    }
    neutral(facts, &places(list(&links)))
}

/// What stands for each address of the pod.
fn places(links: &[Value]) -> BTreeMap<String, String> {
    let each = |link: &Value| -> Vec<(String, String)> {
        let addresses = list(&link["addr_info"]).iter();
        addresses
            .filter(|address| address["scope"] == "global")
            .map(|address| {
                (
                    text(&address["local"]),
                    format!("<address of {}>", text(&link["ifname"])),
                )
            })
            .collect()
    };
    links.iter().flat_map(each).collect()
}

/// Until no address waits for duplicate address detection any more: routes come with its end.
fn wait_for_ipv6(node: &Node, pod: &str) {
    let started = std::time::Instant::now();
    let is_waiting = || {
        let waiting = node.ip(&format!("-n {pod} -6 addr show tentative"));
        list(&waiting)
            .iter()
            .any(|link| !list(&link["addr_info"]).is_empty())
    };
    while is_waiting() {
        assert!(started.elapsed() < LIMIT, "{pod}: IPv6 does not settle");
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Each field of a link on its own; the index is the namespace's.
fn link_facts(facts: &mut Facts, link: &Value) {
    let name = link["ifname"].as_str().unwrap();
    let mut fields = link.as_object().unwrap().clone();
    fields.remove("ifindex");
    fields.remove("ifname");
    for (key, value) in flat(&fields) {
        facts.insert(format!("link {name} {key}"), value);
    }
}

fn address_facts(facts: &mut Facts, link: &Value) {
    let name = link["ifname"].as_str().unwrap();
    for address in list(&link["addr_info"]) {
        let mut fields = address.as_object().unwrap().clone();
        let family = fields.remove("family").unwrap();
        let local = fields.remove("local").unwrap();
        let at = format!("address {name} {} {}", text(&family), text(&local));
        for (key, value) in flat(&fields) {
            facts.insert(format!("{at} {key}"), value);
        }
    }
}

fn rule_facts(facts: &mut Facts, family: &str, rule: &Value) {
    let (source, table) = (text(&rule["src"]), text(&rule["table"]));
    let at = format!("rule IPv{family} from {source} table {table}");
    for (key, value) in flat(rule.as_object().unwrap()) {
        facts.insert(format!("{at} {key}"), value);
    }
}

fn route_facts(facts: &mut Facts, family: &str, route: &Value) {
    let mut fields = route.as_object().unwrap().clone();
    let mut take = |key: &str, absent: &str| {
        let value = fields.remove(key);
        value.map_or_else(|| absent.to_owned(), |value| text(&value))
    };
    let (kind, table) = (take("type", "unicast"), take("table", "main"));
    let (to, dev) = (take("dst", ""), take("dev", "none"));
    let at = format!("route IPv{family} {dev} table {table} {kind} {to}");
    facts.insert(at.clone(), "there".into());
    for (key, value) in flat(&fields) {
        facts.insert(format!("{at} {key}"), value);
    }
}

/// `key.inner -> value` of nested objects.
fn flat(fields: &Map<String, Value>) -> Vec<(String, String)> {
    let each = |(key, value): (&String, &Value)| match value {
        Value::Object(inner) => flat(inner)
            .into_iter()
            .map(|(inner, value)| (format!("{key}.{inner}"), value))
            .collect(),
        value => vec![(key.clone(), text(value))],
    };
    fields.iter().flat_map(each).collect()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Addresses as their place in the pod, link-local ones as such: the kernel makes them of a number
/// that counts the children of a rail.
fn neutral(facts: Facts, places: &BTreeMap<String, String>) -> Facts {
    let word = |word: &str| match places.get(word) {
        Some(place) => place.clone(),
        None if word.starts_with("fe80::") && !word.contains('/') => "<link-local>".into(),
        None => word.to_owned(),
    };
    let words = |text: &str| text.split(' ').map(word).collect::<Vec<_>>().join(" ");
    facts
        .iter()
        .map(|(fact, value)| (words(fact), words(value)))
        .collect()
}

/// Nothing may have changed.
fn same(now: &Facts, before: &Facts, what: &str) {
    let changed = differences(before, now);
    assert!(changed.is_empty(), "{what}: before and now: {changed:#?}");
}

// --- What differs --------------------------------------------------------------------------------

const ABSENT: &str = "none";

/// Facts whose values differ, with the values of the first rail. A fact of one rail has to differ
/// on all of them.
fn differences(reference: &Facts, product: &Facts) -> Differences {
    let facts: BTreeSet<&String> = reference.keys().chain(product.keys()).collect();
    let value = |facts: &Facts, fact: &String| {
        facts
            .get(fact)
            .cloned()
            .unwrap_or_else(|| ABSENT.to_owned())
    };
    let mut found: BTreeMap<String, BTreeMap<usize, (String, String)>> = BTreeMap::new();
    for fact in facts {
        let pair = (value(reference, fact), value(product, fact));
        if pair.0 != pair.1 {
            let (name, rail) = without_number(fact);
            found.entry(name).or_default().insert(rail, pair);
        }
    }
    let whole = |(name, rails): (String, BTreeMap<usize, (String, String)>)| {
        let everywhere: Vec<usize> = rails.keys().copied().collect();
        let of_a_rail = everywhere != [0];
        assert!(
            !of_a_rail || everywhere == (1..=RAILS).collect::<Vec<_>>(),
            "{name} differs on some rails only: {rails:?}"
        );
        let (_, first) = rails.into_iter().next().unwrap();
        (name, first)
    };
    collapse(found.into_iter().map(whole).collect())
}

/// The fact for any rail, and the rail that it is about; 0 if it is about none.
fn without_number(fact: &str) -> (String, usize) {
    let rail = fact
        .split([' ', '/', '>'])
        .find_map(|word| word.strip_prefix("net")?.parse::<usize>().ok());
    let Some(rail) = rail else {
        return (fact.to_owned(), 0);
    };
    let table = format!("table {}", 99 + rail);
    let name = fact
        .replace(&format!("net{rail}"), "net<N>")
        .replace(&table, "table <99+N>");
    (name, rail)
}

/// A route that only one side has is one difference, not one for each of its fields.
fn collapse(found: Differences) -> Differences {
    let whole: Vec<String> = found
        .iter()
        .filter(|(_, pair)| pair.0 == "there" || pair.1 == "there")
        .map(|(name, _)| name.clone())
        .collect();
    let is_part = |name: &str| {
        whole
            .iter()
            .any(|route| name != route && name.starts_with(route))
    };
    found
        .into_iter()
        .filter(|(name, _)| !is_part(name))
        .collect()
}

/// Rows of `one` that the other table does not have just so, as the page has them.
fn rows_without(one: &Differences, other: &Differences) -> String {
    one.iter()
        .filter(|(what, pair)| other.get(*what) != Some(pair))
        .map(|(what, (reference, product))| format!("| `{what}` | `{reference}` | `{product}` | "))
        .map(|row| row + "|\n")
        .collect()
}

/// The table of the page: what, reference, product; the reason must not be empty.
fn table() -> Differences {
    let mut rows = Differences::new();
    for line in PAGE.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line
            .trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let [what, reference, product, why] = cells[..] else {
            panic!("not four cells: {line}")
        };
        assert!(why.len() > 20, "no reason: {line}");
        let row = (reference.to_owned(), product.to_owned());
        let twice = rows.insert(what.to_owned(), row);
        assert!(twice.is_none(), "twice: {line}");
    }
    rows
}
