//! The journey of rails through three nodes: attach, look, use, take away.
//!
//! One test boots one node. Its checks run one after the other, each from a node without state and
//! with two empty pods, and each must leave the host's links and the leases as they were.

mod again;
mod check;
mod families;
mod gone;
mod jobs;
mod map;
mod messages;
mod routes;
mod shapes;
mod sysctls;
mod transfer;

use crate::support::{CONFIG, Node, code};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The pods of every check.
const PODS: [&str; 2] = ["pod1", "pod2"];

#[test]
fn sixteen_rails_of_b4_8() {
    let Some(node) = boot("B4.8") else { return };
    run(&node, jobs::case_26_27_two_jobs_get_near_rails);
    run(&node, jobs::case_23_interfaces_are_as_their_rails);
    run(&node, jobs::children_never_stand_in_the_host);
    run(&node, routes::case_20_21_22_one_subnet_on_sixteen_rails);
    run(&node, routes::case_22_a_gateway_serves_its_own_rail_only);
    run(&node, sysctls::case_19_sysctls_before_links_are_up);
    run(&node, messages::their_number_is_that_of_one_rail);
}

#[test]
fn near_rails_of_h100_8() {
    let Some(node) = boot("H100.8") else { return };
    run(&node, shapes::topo_tells_what_the_node_is);
    run(&node, shapes::case_26_roots_tell_what_numa_cannot);
    run(&node, shapes::a_gpu_has_three_names);
    run(&node, again::attach_twice_is_attach_once);
    run(&node, again::a_lost_interface_is_repaired);
    run(&node, again::two_at_once_share_nothing);
    run(&node, families::addresses_of_ipv6_alone);
    run(&node, families::addresses_of_both_families);
}

#[test]
fn pods_at_work_on_s8() {
    let Some(node) = boot("S8") else { return };
    run(&node, shapes::the_picture_is_whole);
    run(&node, shapes::a_switch_is_nearer_than_a_root);
    run(&node, map::case_02_05_29_two_pods_on_one_rail);
    run(&node, transfer::data_flows_by_the_mapped_gids);
    run(&node, check::whole_rails_pass);
    run(&node, check::what_is_missing_is_named);
    run(&node, check::case_06_little_memory_to_lock_is_named);
    run(&node, gone::case_08_15_detach_without_a_namespace);
    run(&node, gone::a_namespace_without_a_path_is_cleaned);
    run(&node, gone::case_15_detach_after_a_flush_of_rules);
    run(&node, gone::case_18_what_took_the_path_is_left_alone);
}

fn boot(shape: &str) -> Option<Node> {
    let node = Node::boot(shape)?;
    // It brings a link of its own, which must not look like one that a check has left.
    node.lab.load_module("dummy").unwrap();
    Some(node)
}

/// Runs one check. Its name is in the output of a test that fails.
fn run<F: FnOnce(&Node)>(node: &Node, check: F) {
    let name = std::any::type_name::<F>();
    println!("{name} ...");
    let began = Instant::now();
    node.sh("rm -rf /var/lib/podrail");
    node.configure(CONFIG);
    PODS.iter().for_each(|pod| node.pod(pod));
    let before = node.picture(&[]);
    check(node);
    assert_same(&node.picture(&[]), &before);
    node.sh("for pod in pod1 pod2; do ip netns del $pod; done");
    println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
}

/// Compares two pictures and shows only the lines that differ.
fn assert_same(now: &str, before: &str) {
    let gone: Vec<&str> = before.lines().filter(|line| !now.contains(line)).collect();
    let new: Vec<&str> = now.lines().filter(|line| !before.contains(line)).collect();
    assert!(now == before, "gone: {gone:#?}\nnew: {new:#?}");
}

/// A picture of the first pod without the routes that the kernel makes once an IPv6 link-local
/// address has turned out to be nobody else's, some time after a link came up.
fn picture_in_use(node: &Node) -> String {
    let picture = node.picture(&["pod1"]);
    let lines = picture
        .lines()
        .filter(|line| !line.contains(r#""dst":"fe80::"#));
    lines.collect::<Vec<_>>().join("\n")
}

/// Attaches rails to a pod, under its name.
fn attach(node: &Node, pod: &str, rest: &str) -> Value {
    node.podrail_json(&format!(
        "attach --netns /run/netns/{pod} --id {pod} {rest}"
    ))
}

/// Takes a pod's rails away.
fn detach(node: &Node, pod: &str) {
    node.podrail_ok(&format!("detach --id {pod}"));
}

/// Rail indexes of an attachment.
fn rails(attachment: &Value) -> Vec<u64> {
    let rails = attachment["rails"].as_array().unwrap().iter();
    rails.map(|rail| rail["index"].as_u64().unwrap()).collect()
}

/// Runs a script in a pod, which must succeed; its standard output.
fn in_pod(node: &Node, pod: &str, script: &str) -> String {
    let output = node
        .lab
        .in_netns(pod)
        .run(["bash", "-euo", "pipefail", "-c", script])
        .unwrap();
    assert_eq!(
        code(&output),
        0,
        "{pod}: {script}: {}",
        output.stderr_text()
    );
    output.text()
}

/// Names and IPv4 addresses of the rail interfaces in a pod, `net1` first, as `ip` shows them.
fn interfaces(node: &Node, pod: &str) -> Vec<(String, Ipv4Addr)> {
    let links = node.ip(&format!("-n {pod} -4 addr"));
    let of_rails = links
        .as_array()
        .unwrap()
        .iter()
        .filter(|link| number(link).is_some());
    let mut found: Vec<(u32, Ipv4Addr)> = of_rails
        .map(|link| {
            let address = link["addr_info"][0]["local"].as_str().unwrap();
            (number(link).unwrap(), address.parse().unwrap())
        })
        .collect();
    found.sort_unstable();
    found
        .into_iter()
        .map(|(number, address)| (format!("net{number}"), address))
        .collect()
}

/// `7` of a link called `net7`; nothing of another one.
fn number(link: &Value) -> Option<u32> {
    link["ifname"].as_str()?.strip_prefix("net")?.parse().ok()
}

/// One line of `podrail map`.
#[derive(Debug)]
struct MapLine {
    interface: String,
    address: String,
    device: String,
    index: String,
}

/// What `podrail map` prints in a pod, once every line has a GID: the kernel enters them a moment
/// after the address.
fn settled_map(node: &Node, pod: &str) -> Vec<MapLine> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = in_pod(node, pod, "podrail map");
        if !text.contains("none") {
            return text.lines().map(map_line).collect();
        }
        assert!(Instant::now() < deadline, "GIDs are still missing: {text}");
    }
}

fn map_line(line: &str) -> MapLine {
    let words: Vec<&str> = line.split(' ').collect();
    let [interface, address, device, index] = words[..] else {
        panic!("not four columns: {line}")
    };
    let [interface, address, device, index] =
        [interface, address, device, index].map(str::to_owned);
    MapLine {
        interface,
        address,
        device,
        index,
    }
}
