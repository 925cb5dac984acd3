//! What the agent may do on a node, and what is left when it goes.

use crate::hand::until;
use crate::restarts::{admit, binding, go_on};
use crate::support::{ok, status};
use podrail_lab::Lab;
use podrail_lab::kube::{Kube, Pod};
use podrail_lab::testing::{CONFIG, ENVIRONMENT};
use serde_json::{Value, json};
use std::time::Instant;

const RAIL: &str = "podrail.io/rail";
const ORPHAN: &str = "/run/cdi/podrail.io-rail_slot-07.json";
const PLUGIN: &str = "/opt/cni/bin/podrail-cni";
const CHAIN: &str = "/etc/cni/net.d/00-podrail.conflist";
/// Root without any capability, and none to be had.
const NOTHING: &str =
    "setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs";

/// Somebody else holds the write lock for five seconds, of which `work` begins within.
fn locked(lab: &Lab, work: impl FnOnce()) {
    let hold = "rm -f /run/locked; setsid -f bash -c '( echo \"BEGIN EXCLUSIVE;\"; echo \".system touch /run/locked\"; sleep 5; \
         echo \"COMMIT;\" ) | sqlite3 /var/lib/podrail/state.db; rm -f /run/locked' >/run/log/sqlite3 2>&1 </dev/null";
    lab.sh(hold).unwrap();
    let is_locked = || {
        lab.sh("test -e /run/locked && echo yes || cat /run/log/sqlite3")
            .unwrap()
            .text()
    };
    until("the file is locked", || match is_locked() {
        seen if seen == "yes" => Ok(()),
        seen => Err(json!(seen)),
    });
    work();
}

/// ADD, DEL and `Allocate` wait for a file that is locked, and are right in the end.
pub(crate) fn state_file_locked(lab: &Lab) {
    let kube = lab.kube();
    admit(lab, &Pod::sleeping(kube, "first", &[0], 2));
    let started = Instant::now();
    locked(lab, || {
        assert_eq!(status(lab), json!([]), "reading needs no lock");
        go_on(lab);
        kube.wait("first", "ready").unwrap();
    });
    println!(
        "ADD with a locked file: ready after {:.1} s",
        started.elapsed().as_secs_f64()
    );
    let events = kube.get("first").unwrap()["events"].to_string();
    assert!(!events.contains("FailedCreatePodSandBox"), "{events}");
    let started = Instant::now();
    locked(lab, || {
        kube.apply(&Pod::sleeping(kube, "second", &[1], 1)).unwrap();
        kube.delete("first").unwrap();
    });
    println!(
        "DEL with a locked file: gone after {:.1} s",
        started.elapsed().as_secs_f64()
    );
    assert_eq!(binding(lab, "first"), Value::Null);
    kube.wait("second", "ready").unwrap();
    let held = ok(kube
        .exec("second", "ls /dev/infiniband | grep -c uverbs")
        .unwrap());
    assert_eq!(held, "1");
}

/// Kills the agent and starts it as somebody else, with the plugin to install and a CDI file without
/// an owner to remove. Both are done when this returns, and with them a round of garbage.
fn start_agent_as(lab: &Lab, wrapper: &str) {
    let kube = lab.kube();
    kube.kill("podrail-agent").unwrap();
    let text = json!({
        "cdiVersion": "0.6.0", "kind": RAIL, "annotations": { "podrail.io/sandbox": "0".repeat(64) },
        "devices": [{ "name": "slot-07", "containerEdits": { "env": ["A=B"] } }],
    });
    lab.write_file(ORPHAN, 0o644, text.to_string().as_bytes())
        .unwrap();
    lab.sh(&format!("rm -f {PLUGIN} {CHAIN}")).unwrap();
    kube.start_agent_under(wrapper).unwrap();
    settled(lab);
}

fn settled(lab: &Lab) {
    let done = format!(
        "test ! -e {ORPHAN} && test -x {PLUGIN} && test -s {CHAIN} && echo yes || tail -n 5 /run/log/podrail-agent"
    );
    until("installed and collected", || {
        match lab.sh(&done).unwrap().text() {
            seen if seen == "yes" => Ok(()),
            seen => Err(json!(seen)),
        }
    });
}

/// The lines of the agent's status that tell what it may do.
fn rights(lab: &Lab, program: &str) -> String {
    let pids = lab.kube().pids(program).unwrap();
    let [pid] = pids.as_slice() else {
        panic!("one {program}: {pids:?}");
    };
    let script = format!("grep -E '^(CapPrm|CapEff|CapBnd|NoNewPrivs)' /proc/{pid}/status");
    let text = lab.sh(&script).unwrap().text();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Registration, health, allocation: what the kubelet and pods need of the agent.
fn serves(kube: Kube<'_>, lab: &Lab, name: &str) {
    kube.wait_slots(RAIL, 8).unwrap();
    kube.run(&Pod::sleeping(kube, name, &[], 2)).unwrap();
    let held = ok(kube
        .exec(name, "ls /dev/infiniband | grep -c uverbs")
        .unwrap());
    assert_eq!(held, "2");
    let last = &lab.shape().rails()[7].netdev;
    lab.sh(&format!("ip link set {last} down")).unwrap();
    kube.wait_slots(RAIL, 7).unwrap();
    lab.sh(&format!("ip link set {last} up")).unwrap();
    kube.wait_slots(RAIL, 8).unwrap();
    kube.delete(name).unwrap();
}

const NO_CAPABILITIES: &str =
    "CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1";

/// Everything but one thing works without a capability; a namespace that is gone, of which the
/// runtime never said so, needs `CAP_SYS_PTRACE` to be certain.
pub(crate) fn without_capabilities(lab: &Lab) {
    let kube = lab.kube();
    kube.run(&Pod::sleeping(kube, "vanished", &[], 1)).unwrap();
    let netns = binding(lab, "vanished")["netns"]
        .as_str()
        .unwrap()
        .to_owned();
    // Nobody is left who would say DEL.
    kube.kill("standin-kubelet").unwrap();
    lab.sh(&format!(
        "for p in /proc/[0-9]*; do [ $p/ns/net -ef {netns} ] && kill -9 ${{p#/proc/}}; done; \
         umount {netns}; rm {netns}"
    ))
    .unwrap();
    start_agent_as(lab, NOTHING);
    assert_eq!(rights(lab, "podrail-agent"), NO_CAPABILITIES);
    assert_ne!(binding(lab, "vanished"), Value::Null, "freed on a guess");
    start_agent_as(
        lab,
        "setpriv --bounding-set=-all,+sys_ptrace --no-new-privs",
    );
    assert_eq!(
        binding(lab, "vanished"),
        Value::Null,
        "its namespace is gone"
    );
    start_agent_as(lab, NOTHING);
    kube.start_kubelet("").unwrap();
    serves(kube, lab, "served");
    kube.wait("vanished", "ready").unwrap();
    kube.kill("podrail-agent").unwrap();
    kube.start_agent().unwrap();
    kube.wait_slots(RAIL, 8).unwrap();
}

/// The manifest's pod with the lab's image, programs and configuration; all else as it stands there.
fn agent_pod() -> (Value, Value) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/agent.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let of_kind = |kind: &str| {
        documents
            .iter()
            .find(|d| d["kind"] == kind)
            .unwrap()
            .clone()
    };
    let mut map = of_kind("ConfigMap");
    map["metadata"]["namespace"] = "default".into();
    map["data"]["config.yaml"] = CONFIG.into();
    let template = of_kind("DaemonSet")["spec"]["template"].clone();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "podrail-agent", "namespace": "default", "labels": template["metadata"]["labels"] },
        "spec": template["spec"],
    });
    for program in ["podrail", "podrail-cni"] {
        let (path, spec) = (format!("/usr/bin/{program}"), &mut pod["spec"]);
        let mount = json!({ "name": program, "mountPath": path, "readOnly": true });
        let volume = json!({ "name": program, "hostPath": { "path": path, "type": "File" } });
        spec["containers"][0]["volumeMounts"]
            .as_array_mut()
            .unwrap()
            .push(mount);
        spec["volumes"].as_array_mut().unwrap().push(volume);
    }
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = podrail_lab::Containerd::IMAGE.into();
    let address = ENVIRONMENT
        .iter()
        .find(|(name, _)| *name == "PODRAIL_NODE_ADDRESS")
        .unwrap();
    let env = container["env"].as_array_mut().unwrap();
    let env = env.iter_mut().find(|env| env["name"] == address.0).unwrap();
    *env = json!({ "name": address.0, "value": address.1 });
    (map, pod)
}

/// The agent as `deploy/agent.yaml` runs it serves pods, and registers with a kubelet that comes
/// back.
pub(crate) fn as_a_pod(lab: &Lab) {
    let kube = lab.kube();
    kube.kill("podrail-agent").unwrap();
    kube.wait_slots(RAIL, 0).unwrap();
    lab.sh(&format!(
        "rm -f {PLUGIN} {CHAIN}; touch /run/cdi/.podrail.io-rail_slot-03.json.tmp"
    ))
    .unwrap();
    let (map, pod) = agent_pod();
    kube.apply_text(&map.to_string()).unwrap();
    kube.apply_text(&pod.to_string()).unwrap();
    kube.wait("podrail-agent", "ready").unwrap();
    settled(lab);
    assert_eq!(rights(lab, "/usr/bin/podrail"), NO_CAPABILITIES);
    serves(kube, lab, "served");
    kube.kill("standin-kubelet").unwrap();
    kube.start_kubelet("").unwrap();
    kube.wait_slots(RAIL, 8).unwrap();
    let left = lab.sh("ls -A /run/cdi").unwrap().text();
    assert!(!left.contains("slot"), "{left}");
    kube.delete("podrail-agent").unwrap();
    kube.start_agent().unwrap();
    kube.wait_slots(RAIL, 8).unwrap();
    kube.wait_slots("nvidia.com/gpu", kube.gpus().len())
        .unwrap();
}

/// Case 14: no configuration stays, new pods start without us, and DEL of older ones is fine.
pub(crate) fn uninstalled(lab: &Lab) {
    let kube = lab.kube();
    kube.run(&Pod::sleeping(kube, "older", &[0], 1)).unwrap();
    let held = binding(lab, "older");
    kube.kill("podrail-agent").unwrap();
    kube.podrail("uninstall").unwrap();
    let left = lab
        .sh("grep -rl podrail /etc/cni/net.d || true")
        .unwrap()
        .text();
    assert_eq!(left, "", "configurations");
    kube.delete("older").unwrap();
    kube.run(&Pod::sleeping(kube, "newer", &[], 0)).unwrap();
    // As a runtime that keeps a pod's configuration says it.
    let sandbox = held["sandbox"].as_str().unwrap();
    let uid = held["pod"]["uid"].as_str().unwrap();
    let delete = format!(
        "CNI_COMMAND=DEL CNI_CONTAINERID={sandbox} CNI_NETNS= CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
         CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=older;K8S_POD_INFRA_CONTAINER_ID={sandbox};K8S_POD_UID={uid}' \
         {PLUGIN} <<<'{{\"cniVersion\":\"1.0.0\",\"name\":\"cluster\",\"type\":\"podrail-cni\"}}'"
    );
    for _ in 0..2 {
        assert_eq!(ok(lab.sh(&delete).unwrap()), "");
    }
    assert_eq!(status(lab), json!([]));
    kube.podrail("uninstall --drained").unwrap();
    lab.sh(&format!("test ! -e {PLUGIN}")).unwrap();
    kube.start_agent().unwrap();
    settled(lab);
    kube.wait_slots(RAIL, 8).unwrap();
}
