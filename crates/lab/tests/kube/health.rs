//! Rails that fail, and what the kubelet and a scraper see of it.

use crate::restarts::{binding, identity};
use podrail_lab::Lab;
use podrail_lab::kube::{PROGRAMS, Pod};
use podrail_lab::testing::lab_with_or_skip;
use serde_json::Value;

const RAIL: &str = "podrail.io/rail";

/// Netdevs that a pod holds.
fn held(lab: &Lab, name: &str) -> Vec<String> {
    let found = binding(lab, name);
    let rails = found["rails"].as_array().unwrap().iter();
    rails
        .map(|rail| rail["netdev"].as_str().unwrap().to_owned())
        .collect()
}

/// The slots that were unhealthy in the last list.
fn unhealthy(lab: &Lab) -> Vec<String> {
    let log = lab.kube().log("standin-kubelet").unwrap();
    let mut lists = log
        .lines()
        .filter(|line| line.contains(&format!("plugin of {RAIL} lists")));
    let last = lists.next_back().unwrap().rsplit_once('[').unwrap().1;
    last.trim_end_matches(']')
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn slots(lab: &Lab, name: &str) -> Vec<String> {
    let pod = lab.kube().get(name).unwrap();
    let ids = pod.pointer("/devices/main/podrail.io~1rail").unwrap();
    serde_json::from_value(ids.clone()).unwrap()
}

/// Sets all of these up or down.
fn set(lab: &Lab, netdevs: &[String], state: &str) {
    for netdev in netdevs {
        lab.sh(&format!("ip link set {netdev} {state}")).unwrap();
    }
}

/// One slot turns unhealthy for a rail without link, none that a pod has, and the rail is given to
/// nobody; the pod whose own rails fail runs on, and has them back with the links.
pub(crate) fn rails_fail_and_recover(lab: &Lab) {
    let kube = lab.kube();
    kube.run(&Pod::sleeping(kube, "holder", &[0, 1], 2))
        .unwrap();
    let before = identity(lab, "holder");
    let (own_rails, own_slots) = (held(lab, "holder"), slots(lab, "holder"));
    let last = lab.shape().rails()[7].netdev.clone();
    assert!(!own_rails.contains(&last), "{own_rails:?}");
    set(lab, std::slice::from_ref(&last), "down");
    kube.wait_slots(RAIL, 7).unwrap();
    tells_of_a_rail_down(lab);
    // All that is left, so that it would be the one.
    kube.run(&Pod::sleeping(kube, "other", &[2], 5)).unwrap();
    assert!(!held(lab, "other").contains(&last));
    kube.delete("other").unwrap();
    set(lab, &own_rails, "down");
    kube.wait_slots(RAIL, 5).unwrap();
    let sick = unhealthy(lab);
    assert!(
        sick.iter().all(|slot| !own_slots.contains(slot)),
        "{sick:?} {own_slots:?}"
    );
    set(lab, &own_rails, "up");
    set(lab, &[last], "up");
    kube.wait_slots(RAIL, 8).unwrap();
    rdma_device_gone(lab);
    assert_eq!(identity(lab, "holder"), before);
    let netns = binding(lab, "holder")["netns"].as_str().unwrap().to_owned();
    kube.podrail(&format!("check --netns {netns} --rails 2"))
        .unwrap();
    kube.delete("holder").unwrap();
    wait_metric(lab, "podrail_slots{state=\"free\"}", "8.0");
    wait_metric(lab, "podrail_bindings", "0.0");
    let (code, text) = ask(lab, "/readyz");
    assert_eq!(code, 200, "{text}");
    assert_eq!(readiness(lab)["ready"], true, "{text}");
}

/// The rail keeps its index, so that the rails behind it keep theirs.
fn rdma_device_gone(lab: &Lab) {
    let kube = lab.kube();
    let (device, netdev) = (&lab.shape().rails()[5].rdma, &lab.shape().rails()[5].netdev);
    kube.run(&Pod::sleeping(kube, "behind", &[7], 1)).unwrap();
    let behind = held(lab, "behind");
    assert_eq!(behind, [lab.shape().rails()[7].netdev.clone()]);
    kube.wait_slots(RAIL, 8).unwrap();
    lab.sh(&format!("rdma link del {device}")).unwrap();
    kube.wait_slots(RAIL, 7).unwrap();
    let told = readiness(lab);
    let reason = told
        .pointer("/conditions/discovered/reason")
        .unwrap()
        .to_string();
    for words in ["8 rails, 8 GPUs", "rail 5: it has no RDMA device"] {
        assert!(reason.contains(words), "{reason}");
    }
    let seen = kube.podrail("topo -o json").unwrap();
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let rails = &seen["topology"]["rails"];
    assert_eq!(rails[5]["faults"][0], "no-rdma-device", "{rails}");
    assert_eq!(rails[7]["netdev"], behind[0].as_str(), "{rails}");
    kube.delete("behind").unwrap();
    lab.sh(&format!("rdma link add {device} type rxe netdev {netdev}"))
        .unwrap();
    kube.wait_slots(RAIL, 8).unwrap();
}

/// Status and body of the agent's answer.
fn ask(lab: &Lab, path: &str) -> (u16, String) {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/9810; printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    );
    let answer = lab.sh(&script).unwrap().text();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn readiness(lab: &Lab) -> Value {
    serde_json::from_str(&ask(lab, "/readyz").1).unwrap()
}

/// A metric's value, once it is that: pods come and go without the agent, which then looks.
fn wait_metric(lab: &Lab, name: &str, value: &str) {
    let script = format!(
        "for n in {{1..100}}; do exec 3<>/dev/tcp/127.0.0.1/9810; \
         printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; seen=$(cat <&3); \
         grep -Fxq '{name} {value}' <<<\"$seen\" && exit 0; sleep 0.1; done; echo \"$seen\" >&2; exit 1"
    );
    lab.sh(&script).unwrap();
}

/// With two slots bound and a rail down.
fn tells_of_a_rail_down(lab: &Lab) {
    for (name, value) in [
        ("podrail_slots{state=\"bound\"}", "2.0"),
        ("podrail_slots{state=\"free\"}", "5.0"),
        ("podrail_slots{state=\"unhealthy\"}", "1.0"),
        ("podrail_slots{state=\"waiting\"}", "0.0"),
        ("podrail_rails{state=\"usable\"}", "7.0"),
        ("podrail_rails{state=\"down\"}", "1.0"),
        ("podrail_bindings", "1.0"),
        (
            "podrail_pool_addresses{family=\"ipv4\",state=\"used\"}",
            "2.0",
        ),
        ("podrail_condition{condition=\"registered\"}", "1.0"),
    ] {
        wait_metric(lab, name, value);
    }
}

/// Not ready, but alive: it waits for the kubelet.
pub(crate) fn tells_of_a_dead_kubelet(lab: &Lab) {
    wait_metric(lab, "podrail_condition{condition=\"registered\"}", "0.0");
    assert_eq!(ask(lab, "/readyz").0, 503);
    assert_eq!(ask(lab, "/healthz"), (200, "ok".to_owned()));
}

/// Case 4: the node offers nothing, and says what to do.
#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn exclusive_rdma_mode_offers_nothing() {
    let exclusive = |builder: podrail_lab::Builder| builder.rdma_exclusive();
    let Some(lab) = lab_with_or_skip("S8", &PROGRAMS, exclusive) else {
        return;
    };
    let kube = lab.kube();
    kube.configure(podrail_lab::testing::CONFIG).unwrap();
    kube.start_kubelet("").unwrap();
    kube.start_agent().unwrap();
    let listed = "for n in {1..300}; do \
         grep -q 'lists 8, unhealthy: .*slot-00.*slot-07' /run/log/standin-kubelet && exit 0; \
         sleep 0.1; done; cat /run/log/* >&2; exit 1";
    lab.sh(listed).unwrap();
    kube.wait_slots(RAIL, 0).unwrap();
    let told = readiness(&lab);
    assert_eq!(told["ready"], false);
    let reason = told
        .pointer("/conditions/discovered/reason")
        .unwrap()
        .to_string();
    for words in ["exclusive", "netns_mode=1", "rdma system set netns shared"] {
        assert!(reason.contains(words), "{reason}");
    }
    let log = kube.log("standin-kubelet").unwrap();
    assert!(!log.contains("rail lists 0,"), "{log}");
}
