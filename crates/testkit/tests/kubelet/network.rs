//! Sandboxes and their CNI chain. Needs root for network namespaces.

use crate::bench::{Bench, count};
use podrail_testkit::kubelet::Condition;
use podrail_testkit::runtime::fake::Chain;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// First in the chain gives an address; each plugin writes down its calls and its input.
const PLUGIN: &str = r#"#!/bin/sh
input=$(cat)
echo "$CNI_COMMAND $CNI_CONTAINERID ${CNI_NETNS:-none} $CNI_ARGS" >> LOG
echo "$input" >> LOG.stdin
if [ -e LOG.hang ]; then sleep 3600; fi
if [ -e LOG.fail ] && [ "$CNI_COMMAND" = ADD ]; then
  echo '{"code": 11, "msg": "try again later", "details": "rails are held"}'
  exit 1
fi
echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24"}]}'
"#;

fn chain(folder: &Path) -> Chain {
    let programs = folder.join("bin");
    std::fs::create_dir(&programs).unwrap();
    let plugin = programs.join("first");
    let log = folder.join("calls").display().to_string();
    std::fs::write(&plugin, PLUGIN.replace("LOG", &log)).unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let configurations = folder.join("net.d");
    std::fs::create_dir(&configurations).unwrap();
    let list = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "first", "capabilities": {"io.kubernetes.cri.pod-annotations": true}}]}"#;
    std::fs::write(configurations.join("10-pods.conflist"), list).unwrap();
    Chain {
        configurations,
        programs: vec![programs],
    }
}

fn bench() -> Option<Bench> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    Some(Bench::with(|folder| Some(chain(folder))))
}

fn calls(bench: &Bench) -> Vec<String> {
    let text = std::fs::read_to_string(bench.folder.path().join("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn verbs(bench: &Bench) -> Vec<String> {
    let calls = calls(bench);
    calls
        .iter()
        .map(|call| call.split(' ').next().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_plugin_is_called_as_containerd_calls_it() {
    let Some(bench) = bench() else { return };
    bench
        .kubelet()
        .apply("kind: Pod\nmetadata: {name: p, annotations: {a: b}}\nspec: {containers: [{name: main}]}")
        .unwrap();
    let status = bench.ready("p").await;
    assert_eq!(status.addresses, ["10.1.0.5"]);
    let sandbox = status.sandbox.unwrap().id;
    let netns = bench.runtime.netns(&sandbox).unwrap();
    let arguments = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID={sandbox};K8S_POD_UID={}",
        status.uid
    );
    assert_eq!(
        calls(&bench),
        [format!("ADD {sandbox} {} {arguments}", netns.display())]
    );
    let own = ["readlink", "/proc/self/ns/net"].map(String::from);
    let inside = bench
        .kubelet()
        .exec("default/p", None, &own, crate::bench::PATIENCE)
        .await
        .unwrap();
    let host = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(
        String::from_utf8(inside.stdout).unwrap().trim(),
        host.to_str().unwrap()
    );
    bench.delete("p");
    bench.wait("p", Condition::Gone).await;
    assert_eq!(
        verbs(&bench),
        ["ADD", "DEL", "DEL"],
        "the collector stops once more"
    );
    assert!(
        calls(&bench)[2].contains(" none "),
        "the last one without a namespace"
    );
    let inputs = std::fs::read_to_string(bench.folder.path().join("calls.stdin")).unwrap();
    let inputs: Vec<serde_json::Value> = inputs
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let annotations = &inputs[0]["runtimeConfig"]["io.kubernetes.cri.pod-annotations"];
    assert_eq!(annotations["a"], "b");
    assert_eq!(inputs[1]["prevResult"]["ips"][0]["address"], "10.1.0.5/24");
    assert!(inputs[2].get("prevResult").is_none());
}

#[tokio::test]
async fn a_dead_pause_process_brings_del_then_add_and_no_allocation() {
    let Some(bench) = bench() else { return };
    let _plugs = bench.plug(1, 1).await;
    bench.apply(
        "p",
        "{containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}",
    );
    let before = bench.ready("p").await;
    let old = before.sandbox.clone().unwrap();
    bench.runtime.kill_pause(&old.id);
    let after = bench
        .until("p", "in a new sandbox", |s| {
            s.ready && s.sandbox != before.sandbox
        })
        .await;
    assert_eq!(after.sandbox.as_ref().unwrap().attempt, 1);
    assert_eq!(verbs(&bench)[..3], ["ADD", "DEL", "ADD"]);
    let after = bench
        .until("p", "rid of the old one", |s| {
            count(s, "SandboxRemoved") == 1
        })
        .await;
    assert_eq!(
        verbs(&bench),
        ["ADD", "DEL", "ADD", "DEL"],
        "the old one again, later"
    );
    assert_eq!(count(&after, "Allocated"), 1);
}

#[tokio::test]
async fn a_failed_add_is_followed_by_del_and_tried_again() {
    let Some(bench) = bench() else { return };
    let fail = bench.folder.path().join("calls.fail");
    std::fs::write(&fail, "").unwrap();
    bench.apply("p", "{containers: [{name: main}]}");
    let status = bench
        .until("p", "failed", |s| count(s, "FailedCreatePodSandBox") == 2)
        .await;
    assert!(
        status.message.contains("11 try again later rails are held"),
        "{}",
        status.message
    );
    assert_eq!(verbs(&bench)[..4], ["ADD", "DEL", "ADD", "DEL"]);
    std::fs::remove_file(fail).unwrap();
    bench.ready("p").await;
}

#[tokio::test]
async fn a_deletion_during_add_cuts_it_off() {
    let Some(bench) = bench() else { return };
    let hang = bench.folder.path().join("calls.hang");
    std::fs::write(&hang, "").unwrap();
    bench.apply("p", "{containers: [{name: main}]}");
    bench
        .until("p", "in ADD", |_| !calls(&bench).is_empty())
        .await;
    std::fs::remove_file(hang).unwrap();
    bench.delete("p");
    bench.wait("p", Condition::Gone).await;
    assert_eq!(verbs(&bench), ["ADD", "DEL", "DEL"]);
}

#[tokio::test]
async fn a_pod_on_the_hosts_network_has_no_add() {
    let Some(bench) = bench() else { return };
    bench.apply("p", "{hostNetwork: true, containers: [{name: main}]}");
    bench.ready("p").await;
    bench.delete("p");
    bench.wait("p", Condition::Gone).await;
    assert!(calls(&bench).is_empty());
}
