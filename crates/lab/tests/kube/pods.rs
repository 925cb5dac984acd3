//! Pods of the post's shape, and of all others: rails, devices, environment, data.

use crate::inside::{
    PATIENCE, exec, map, plain_names, rails_of, see, uverbs, wait_for_words, with_program,
};
use crate::support::{bare_node, ok, run_all};
use crate::{annotation, by_hand, containers, resource};
use podrail_lab::Lab;
use podrail_lab::kube::Pod;
use podrail_lab::testing::CONFIG;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

#[test]
fn pods_have_the_rails_next_to_their_gpus() {
    let Some(lab) = started() else { return };
    run_all(&lab, &[("two_jobs_on_one_node", two_jobs_on_one_node)]);
}

#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn all_kinds_of_pods_have_their_rails() {
    let Some(lab) = started() else { return };
    run_all(
        &lab,
        &[
            ("several_containers", containers::several),
            ("host_network_and_others", host_network_and_others),
            ("wrong_names_are_named", annotation::wrong_names_are_named),
            // Changes the node's configuration; the last.
            ("two_shares_of_hostdev", resource::two_shares_of_hostdev),
        ],
    );
}

fn started() -> Option<Lab> {
    let lab = bare_node("B4.8", |builder| builder)?;
    let kube = lab.kube();
    lab.containerd().start().unwrap();
    configure(&lab, &[]);
    kube.start_kubelet("").unwrap();
    kube.start_gpus().unwrap();
    kube.start_agent().unwrap();
    kube.wait_slots("podrail.io/rail", 16).unwrap();
    Some(lab)
}

/// Writes the configuration: names of networks as clusters with Multus have them, and more.
pub(crate) fn configure(lab: &Lab, more: &[&str]) {
    let networks = "networks: [{ name: 'rdma-ipvlan-{rail}' }]\n";
    let text = format!("{CONFIG}{networks}{}", more.concat());
    lab.kube().configure(&text).unwrap();
}

/// Both jobs of the post, one of them as another user than root; neither has any right that a pod
/// does not have by default. The first names all sixteen networks, backwards, and gets eight.
/// Case 6, 22, 26, 30c.
fn two_jobs_on_one_node(lab: &Lab) {
    let kube = lab.kube();
    let first = with_program(Pod::sleeping(kube, "first", &[2, 3, 4, 5], 8));
    let first = annotation::named(first, &annotation::all_names((0..16).rev()));
    let user = json!({ "runAsUser": 1000 });
    kube.apply(&first.with("/spec/containers/0/securityContext", user))
        .unwrap();
    let second = with_program(Pod::sleeping(kube, "second", &[0, 1, 6, 7], 8));
    kube.apply(&second).unwrap();
    let of_first: Vec<usize> = (4..12).collect();
    let of_second: Vec<usize> = (0..4).chain(12..16).collect();
    let backwards = of_first.iter().map(|rail| format!("net{}", 16 - rail));
    let jobs = [
        ("first", "1000", &of_first, backwards.collect()),
        ("second", "0", &of_second, plain_names(&of_second)),
    ];
    for (name, uid, rails, interfaces) in &jobs {
        kube.wait(name, "ready").unwrap();
        assert_eq!(rails_of(lab, name), **rails);
        let told = kube
            .podrail(&format!("explain --pod default/{name}"))
            .unwrap();
        assert!(told.contains("8 of 8 rails next to its GPUs"), "{told}");
        let seen = see(lab, name, "main");
        assert_eq!(seen.uid, *uid);
        seen.assert_devices(lab, rails);
        seen.assert_interfaces(lab, name, interfaces);
        the_programs_pass(lab, name, rails, interfaces);
        data_flows(lab, name);
    }
    annotation::assert_parents(lab, "first", &of_first, &jobs[0].3);
    devices_have_no_owner(lab);
    foreign_devices_stay_closed(lab);
    by_hand::add_and_check(lab, "first", "net12");
    by_hand::versions_and_status(lab, "first");
    by_hand::collected(lab, "first", "second");
}

/// `podrail map` and `podrail check`, run by the pod's own user.
fn the_programs_pass(lab: &Lab, pod: &str, rails: &[usize], interfaces: &[String]) {
    let lines = map(lab, pod, "main");
    let ports = lab.shape().rails();
    let told: BTreeSet<(String, String)> = lines
        .iter()
        .map(|line| (line.interface.clone(), line.device.clone()))
        .collect();
    let devices = rails.iter().map(|rail| ports[*rail].rdma.clone());
    let wanted: BTreeSet<(String, String)> = interfaces.iter().cloned().zip(devices).collect();
    assert_eq!(told, wanted);
    let gids = lines.iter().map(|line| {
        let port = format!("/sys/class/infiniband/{}/ports/1", line.device);
        format!("echo $(<{port}/gids/{})\n", line.index)
    });
    let gids = ok(exec(lab, pod, "main", &gids.collect::<String>()));
    let wanted: Vec<String> = lines.iter().map(|line| gid_of(&line.address)).collect();
    assert_eq!(gids.lines().collect::<Vec<_>>(), wanted);
    let check = format!("podrail check --rails {}", rails.len());
    ok(exec(lab, pod, "main", &check));
}

/// The GID of an IPv4 address, in the kernel's spelling.
fn gid_of(address: &str) -> String {
    let [a, b, c, d] = address.parse::<std::net::Ipv4Addr>().unwrap().octets();
    format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}")
}

/// An RDMA write from the pod to itself, over the device and the GID that `podrail map` names.
fn data_flows(lab: &Lab, pod: &str) {
    // 18515 is 0x4853; state 0A listens.
    let script = r#"
        set -e
        podrail map >/tmp/map
        read -r interface address device index </tmp/map
        words="ib_write_bw -F -n 50 -s 4096 -d $device -x $index"
        $words >/tmp/server 2>&1 &
        server=$!
        until grep -q ':4853 [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6; do
            kill -0 $server || { cat /tmp/server; exit 1; }
            [ $SECONDS -lt 60 ] || { cat /tmp/server /proc/net/tcp; exit 1; }
        done
        $words $address || { cat /tmp/server; exit 1; }
        wait $server
        echo "address $address"
    "#;
    let told = ok(exec(lab, pod, "main", script));
    let address = told.lines().last().unwrap().strip_prefix("address ");
    let octets: Vec<String> = address
        .unwrap()
        .split('.')
        .map(|number| format!("{:02}", number.parse::<u8>().unwrap()))
        .collect();
    let gid = format!(
        "GID: 00:00:00:00:00:00:00:00:00:00:255:255:{}",
        octets.join(":")
    );
    assert_eq!(told.matches(&gid).count(), 2, "{told}");
}

/// Each device node of each file: path and `rw`, nothing else. Case 30c.
fn devices_have_no_owner(lab: &Lab) {
    let text = ok(lab
        .sh("cat /var/run/cdi/podrail.io-rail_slot-*.json")
        .unwrap());
    let files = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let mut count = 0;
    for file in files {
        let file = file.unwrap();
        let edits = &file["devices"][0]["containerEdits"];
        for node in edits["deviceNodes"].as_array().unwrap() {
            let path = node["path"].as_str().unwrap();
            assert!(path.starts_with("/dev/infiniband/"), "{file}");
            assert_eq!(node["permissions"], "rw", "{file}");
            for field in ["uid", "gid", "fileMode"] {
                assert!(node.get(field).is_none(), "{file}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 16);
}

/// A container's own device opens, also by a node that it makes itself; another's does not, and a
/// user without the right makes no node at all. Case 3.
fn foreign_devices_stay_closed(lab: &Lab) {
    let (ports, uverbs) = (lab.shape().rails(), uverbs(lab));
    let device = |rail: usize| uverbs[&ports[rail].rdma].clone();
    let attempt = |pod: &str, rail: usize| {
        let (node, path) = (device(rail), "/tmp/node");
        let script = format!(
            "rm -f {path}; dev=$(</sys/class/infiniband_verbs/{node}/dev); \
             mknod {path} c ${{dev/:/ }} && exec 3<>{path}"
        );
        let output = exec(lab, pod, "main", &script);
        (output.status.shell_code() == 0, output.stderr_text())
    };
    let refused = |(opened, told): (bool, String)| {
        assert!(!opened);
        assert!(told.contains("not permitted"), "{told}");
    };
    assert!(attempt("second", 0).0);
    refused(attempt("second", 4));
    refused(attempt("first", 0));
    let own = format!("exec 3<>/dev/infiniband/{}", device(4));
    ok(exec(lab, "first", "main", &own));
}

/// A pod on the host's network is never attached, so it never starts, not even with the devices of
/// the one that had its slots before (case 30a). A pod without rails starts meanwhile, without a
/// question to the kubelet and without the agent (case 12, 13). Odd pods get what there is, and the
/// slots of the first serve another pod once it is gone.
fn host_network_and_others(lab: &Lab) {
    let kube = lab.kube();
    // As a plugin that was killed before its DEL would leave them.
    let slots = ["slot-03", "slot-04"];
    let pinned = |name: &str, gpus: &[usize]| {
        let pod = Pod::sleeping(kube, name, gpus, 2);
        pod.with("/podrail.test~1devices/main/podrail.io~1rail", json!(slots))
    };
    stale_files(lab, &slots);
    let host = pinned("host", &[0]).with("/spec/hostNetwork", json!(true));
    kube.apply(&host).unwrap();
    for slot in slots {
        wait_for_words(lab, "host", &["unresolvable CDI devices", slot]);
    }
    kube.kill("podrail-agent").unwrap();
    let before = calls(lab);
    let plain = Pod::sleeping(kube, "plain", &[1], 0);
    kube.run(&annotation::named(plain, "rdma-ipvlan-99"))
        .unwrap();
    let seen = see(lab, "plain", "main");
    seen.assert_devices(lab, &[]);
    seen.assert_interfaces::<String>(lab, "plain", &[]);
    assert_eq!(calls(lab), before);
    kube.start_agent().unwrap();
    kube.wait_slots("podrail.io/rail", 16).unwrap();
    // The kubelet has tried again since.
    wait_for_tries(lab, "host", 2);
    kube.delete("host").unwrap();
    kube.apply(&pinned("after", &[0])).unwrap();
    annotation::apply_json(lab);
    kube.wait("after", "ready").unwrap();
    let rails = rails_of(lab, "after");
    assert!(rails.iter().all(|rail| *rail < 4), "{rails:?}");
    see(lab, "after", "main").assert_devices(lab, &rails);
    annotation::json_is_served(lab);
    containers::odd_gpu_ids(lab);
}

/// Files of slots that nobody has, with devices of a rail that exists.
fn stale_files(lab: &Lab, slots: &[&str]) {
    let node = uverbs(lab)[&lab.shape().rails()[9].rdma].clone();
    for slot in slots {
        let file = json!({
            "cdiVersion": "0.6.0",
            "kind": "podrail.io/rail",
            "devices": [{
                "name": slot,
                "annotations": { "podrail.io/sandbox": "gone" },
                "containerEdits": {
                    "deviceNodes": [{ "path": format!("/dev/infiniband/{node}"), "permissions": "rw" }],
                },
            }],
        });
        let path = format!("/var/run/cdi/podrail.io-rail_{slot}.json");
        let text = file.to_string();
        lab.write_file(&path, 0o644, text.as_bytes()).unwrap();
    }
}

/// Calls of the kubelet's PodResources so far.
fn calls(lab: &Lab) -> u64 {
    let node = lab.kube().kubelet("node").unwrap();
    node["pod_resources_calls"].as_u64().unwrap()
}

fn wait_for_tries(lab: &Lab, pod: &str, least: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = lab.kube().get(pod).unwrap();
        assert_eq!(state["ready"], false, "it started: {state}");
        let events = state["events"].as_array().unwrap().iter();
        let failed = |event: &&Value| {
            let message = event["message"].as_str().unwrap_or_default();
            message.contains("unresolvable CDI devices")
        };
        if events.filter(failed).count() >= least {
            return;
        }
        assert!(Instant::now() < deadline, "{state:#}");
    }
}

/// Rails whose NIC has another port that is not among them; a NIC's ports are 0 and 1, 2 and 3...
pub(crate) fn halves(rails: &[usize]) -> Vec<usize> {
    let lonely = |rail: &&usize| !rails.contains(&(**rail ^ 1));
    rails.iter().filter(lonely).copied().collect()
}
