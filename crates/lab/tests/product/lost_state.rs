//! A state file that is damaged or gone: told, and built anew from the kernel, with pods that notice
//! nothing and can be taken away afterwards.

use crate::support::{Node, code};
use podrail_lab::testing;
use serde_json::{Value, json};

const STATE: &str = "/var/lib/podrail/state.db";
const FILE: &str = "/var/run/cdi/podrail.io-rail_slot-05.json";
const UID: &str = "0f2b1c5e-1111-4222-8333-444455556666";

#[test]
fn a_lost_state_file_is_built_anew_from_the_kernel() {
    let plugin = testing::cargo_binary("podrail-cni", "podrail-cni").unwrap();
    let Some(node) = Node::boot_with("S8", |lab| lab.program("podrail-cni", &plugin)) else {
        return;
    };
    ["job", "pod", "next"]
        .iter()
        .for_each(|name| node.pod(name));
    let host = node.picture(&[]);
    let job = attach(&node, "job", "--rails 3");
    let pod = attach(&node, "pod", "--gpus 0 --rails 2");
    assert_eq!(node.podrail_json("state check")["findings"], json!([]));
    let before = (status(&node), kernel(&node));
    refuses_a_sound_file(&node);

    node.sh(&format!("head -c 40960 /dev/urandom > {STATE}"));
    let refused = node.podrail("state check");
    assert_eq!(code(&refused), 8, "{}", refused.stderr_text());
    let attach_now = "attach --netns /run/netns/next --id next --rails 2";
    assert_eq!(code(&node.podrail(attach_now)), 8);
    let shown = node.podrail_json("state rebuild --dry-run");
    assert_eq!((&shown["written"], sandboxes(&shown)), (&json!(false), 2));
    assert_eq!(
        code(&node.podrail("state check")),
        8,
        "a dry run writes nothing"
    );
    let damaged = node.sh(&format!("sha256sum < {STATE}"));
    let rebuilt = node.podrail_json("state rebuild");
    assert_eq!(sandboxes(&rebuilt), 2, "{rebuilt}");
    let kept = rebuilt["aside"][0].as_str().unwrap();
    assert!(kept.starts_with(&format!("{STATE}.damaged-")), "{kept}");
    assert_eq!(node.sh(&format!("sha256sum < {kept}")), damaged);
    assert_known_again(&node, &before);

    finds_rails_without_a_file(&node, attach_now);
    assert_known_again(&node, &before);

    // What is held is given to nobody else.
    let next = attach(&node, "next", "--rails 3");
    let taken = [addresses(&job), addresses(&pod)].concat();
    assert!(
        addresses(&next)
            .iter()
            .all(|address| !taken.contains(address))
    );
    node.podrail_ok("detach --id next");

    runtime_takes_a_pod_away(&node, &pod);
    node.podrail_ok("detach --id job");
    assert_eq!(node.podrail_ok("status"), "no rails are held");
    assert_eq!(node.podrail_json("state check")["findings"], json!([]));
    for name in ["job", "pod", "next"] {
        assert_eq!(
            node.sh(&format!("ip netns exec {name} ls /sys/class/net")),
            "lo"
        );
        let rules = node.sh(&format!("ip -n {name} rule; ip -n {name} -6 rule"));
        assert!(!rules.contains("lookup 1"), "{rules}");
    }
    assert_eq!(node.picture(&[]), host);
}

/// Gone altogether: each rail is told, none is given out twice, and all are found again.
fn finds_rails_without_a_file(node: &Node, attach_now: &str) {
    node.sh(&format!("rm {STATE}*"));
    let checked = node.podrail("state check -o json");
    assert_eq!(code(&checked), 1, "{}", checked.stderr_text());
    let checked: Value = serde_json::from_str(&checked.text()).unwrap();
    let findings = checked["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 5, "{checked}");
    let refused = node.podrail(attach_now);
    assert_eq!(code(&refused), 8, "{}", refused.stderr_text());
    let said = refused.stderr_text();
    assert!(
        said.contains("2 sandboxes have rails on this node already"),
        "{said}"
    );
    assert!(said.contains("podrail state rebuild --force"), "{said}");
    // The attach has made a file.
    node.podrail_ok("state rebuild --force");
}

fn attach(node: &Node, name: &str, rest: &str) -> Value {
    node.podrail_json(&format!(
        "attach --netns /run/netns/{name} --id {name} {rest}"
    ))
}

fn refuses_a_sound_file(node: &Node) {
    let before = node.sh(&format!("sha256sum < {STATE}"));
    let refused = node.podrail("state rebuild");
    assert_eq!(code(&refused), 5, "{}", refused.stderr_text());
    assert!(refused.stderr_text().contains("is sound"));
    assert_eq!(node.sh(&format!("sha256sum < {STATE}")), before);
}

fn kernel(node: &Node) -> String {
    let picture = node.picture(&["job", "pod"]);
    let kernel = picture.split("== leases").next().unwrap();
    // Routes of IPv6 link-local addresses come some time after a link is up.
    let lines = kernel
        .lines()
        .filter(|line| !line.contains(r#""dst":"fe80::"#));
    lines.collect::<Vec<_>>().join("\n")
}

/// What `podrail status` says, without what no kernel knows: the GPUs of a job and how its rails lie
/// to them, whether there was a better choice, and the setting of the namespace before.
fn status(node: &Node) -> Value {
    let mut status = node.podrail_json("status");
    for sandbox in status.as_array_mut().unwrap() {
        for key in ["gpus", "near", "exact"] {
            sandbox[key] = Value::Null;
        }
        for sysctl in sandbox["plan"]["namespace_sysctls"].as_array_mut().unwrap() {
            sysctl["previous"] = Value::Null;
        }
        for rail in sandbox["rails"].as_array_mut().unwrap() {
            (rail["gpu"], rail["distance"]) = (Value::Null, Value::Null);
        }
    }
    status
}

fn assert_known_again(node: &Node, (known, stands): &(Value, String)) {
    assert_eq!(&status(node), known);
    assert_eq!(&kernel(node), stands);
    // A job without GPUs is the same to the last letter.
    let text = node.podrail_ok("status");
    let line = text.lines().find(|line| line.starts_with("job ")).unwrap();
    assert!(line.contains("ready") && line.contains("0/3"), "{line}");
    assert_eq!(node.podrail_json("state check")["findings"], json!([]));
    // Twice the same attach is still one.
    let again = attach(node, "job", "--rails 3");
    assert_eq!(again["rails"], known[0]["rails"]);
}

/// With a CDI file the slot and the pod are known too, and DEL takes all of it away.
fn runtime_takes_a_pod_away(node: &Node, pod: &Value) {
    let uverbs = pod["rails"][0]["uverbs"].as_str().unwrap();
    let device = json!({ "name": "slot-05", "containerEdits": {
        "deviceNodes": [{ "path": format!("/dev/infiniband/{uverbs}"), "permissions": "rw" }] } });
    let document = json!({ "cdiVersion": "0.6.0", "kind": "podrail.io/rail", "devices": [device],
        "annotations": { "podrail.io/sandbox": "pod", "podrail.io/pod": "jobs/train",
                         "podrail.io/pod-uid": UID } });
    node.sh("mkdir -p /var/run/cdi");
    let text = document.to_string();
    node.lab.write_file(FILE, 0o644, text.as_bytes()).unwrap();
    node.podrail_ok("state rebuild --force");
    let status = node.podrail_json("status");
    let found = &status[1];
    assert_eq!(found["pod"]["uid"], UID, "{found}");
    assert_eq!(found["rails"][0]["slot"], "slot-05", "{found}");
    assert_eq!(node.podrail_json("state check")["findings"], json!([]));
    let conf = r#"{"cniVersion":"1.0.0","name":"cluster","type":"podrail-cni"}"#;
    node.sh(&format!(
        "echo '{conf}' | CNI_COMMAND=DEL CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod \
         CNI_IFNAME=eth0 CNI_PATH=/usr/bin CNI_ARGS=K8S_POD_UID={UID} podrail-cni; \
         test ! -e {FILE}"
    ));
}

fn sandboxes(rebuilt: &Value) -> usize {
    rebuilt["sandboxes"].as_array().unwrap().len()
}

fn addresses(attachment: &Value) -> Vec<Value> {
    let rails = attachment["rails"].as_array().unwrap().iter();
    rails
        .flat_map(|rail| rail["addresses"].as_array().unwrap().clone())
        .collect()
}
