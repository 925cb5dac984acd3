//! The post's own pods: its resource name, its annotation, its script; and two of them on one rail.

use crate::annotation::{all_names, named};
use crate::inside::{Mapped, exec, map, see_resource, with_program};
use crate::pods::configure;
use crate::support::ok;
use podrail_lab::Lab;
use podrail_lab::kube::Pod;
use serde_json::json;
use std::collections::BTreeSet;

const RESOURCE: &str = "nvidia.com/hostdev";
const RAILS: usize = 16;

/// The map that users of such pods print by a script of their own: interface, address, device and
/// index of the RoCE v2 GID of the address. Of each device it reads the first places only: the
/// kernel's table has 1024, and a pod's own are among the first here.
const TOOLS: &str = r#"
kind: ConfigMap
apiVersion: v1
metadata: { name: rail-tools, namespace: default }
data:
  rail-map.sh: |
    #!/bin/bash
    for net in /sys/class/net/net*; do
      interface=${net##*/}
      address=$(ip -4 -br addr show "$interface" | awk '{ sub("/.*", "", $3); print $3 }')
      echo "$interface $address $(/opt/tools/find-gid.sh "$interface")"
    done | sort -V
  find-gid.sh: |
    #!/bin/bash
    for table in /sys/class/infiniband/*/ports/1; do
      for place in {0..15}; do
        read -r owner 2>/dev/null <$table/gid_attrs/ndevs/$place || continue
        [ "$owner" = "$1" ] || continue
        read -r kind <$table/gid_attrs/types/$place
        read -r gid <$table/gids/$place
        [[ $kind = "RoCE v2" && $gid = 0000:0000:0000:0000:0000:ffff:* ]] || continue
        device=${table%/ports/1}
        echo "${device##*/} $place"
        exit
      done
    done 2>/dev/null
"#;

/// A pod as such clusters have it: 16 of the resource, 16 names, the right to lock memory.
fn post_pod(lab: &Lab, name: &str, gpus: &[usize]) -> Pod {
    let pod = with_program(Pod::sleeping(lab.kube(), name, gpus, 0));
    let pod = named(pod, &all_names(0..RAILS));
    let mut volumes = pod.manifest["spec"]["volumes"].clone();
    let mut mounts = pod.manifest["spec"]["containers"][0]["volumeMounts"].clone();
    let mut limits = pod.manifest["spec"]["containers"][0]["resources"]["limits"].clone();
    limits[RESOURCE] = json!(RAILS);
    let source = json!({ "name": "rail-tools", "defaultMode": 0o555 });
    volumes
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "tools", "configMap": source }));
    mounts
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "tools", "mountPath": "/opt/tools" }));
    pod.with("/spec/volumes", volumes)
        .with("/spec/containers/0/volumeMounts", mounts)
        .with("/spec/containers/0/resources", json!({ "limits": limits }))
        .with(
            "/spec/containers/0/securityContext",
            json!({ "capabilities": { "add": ["IPC_LOCK"] } }),
        )
}

/// Another name for the resource, and two shares of each rail: two pods of all rails on one node,
/// each with its own addresses and GIDs on the same devices. Case 2, 28, 29.
pub(crate) fn two_shares_of_hostdev(lab: &Lab) {
    let kube = lab.kube();
    kube.kill("podrail-agent").unwrap();
    configure(
        lab,
        &["resource: nvidia.com/hostdev\n", "rails: { shares: 2 }\n"],
    );
    kube.start_agent().unwrap();
    kube.wait_slots(RESOURCE, 2 * RAILS).unwrap();
    kube.apply_text(TOOLS).unwrap();
    kube.run(&post_pod(lab, "one", &[0, 1, 2, 3])).unwrap();
    let alone = map(lab, "one", "main");
    the_script_agrees(lab, "one", &alone);
    the_far_rails_are_told(lab, "one");
    kube.run(&post_pod(lab, "two", &[])).unwrap();
    let pods = [map(lab, "one", "main"), map(lab, "two", "main")];
    assert_eq!(pods[0], alone);
    let all: Vec<usize> = (0..RAILS).collect();
    let interfaces: Vec<String> = all.iter().map(|rail| format!("net{}", rail + 1)).collect();
    for (name, lines) in ["one", "two"].into_iter().zip(&pods) {
        let seen = see_resource(lab, name, "main", "NVIDIA_COM_HOSTDEV");
        seen.assert_devices(lab, &all);
        seen.assert_interfaces(lab, name, &interfaces);
        assert_eq!(lines.len(), RAILS);
        ok(exec(
            lab,
            name,
            "main",
            &format!("podrail check --rails {RAILS}"),
        ));
    }
    assert_distinct(&pods);
}

/// The job that a Topology Manager with the policy `restricted` rejects. Case 28.
fn the_far_rails_are_told(lab: &Lab, pod: &str) {
    let kube = lab.kube();
    let told = kube
        .podrail(&format!("explain --pod default/{pod}"))
        .unwrap();
    for words in [
        "8 of 16 rails next to its GPUs",
        "rails 8-15 are on another root than every GPU of this pod",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

/// The script's answer for a pod that is alone on its rails. That each device is an allocated PCI
/// function, as the users' check pod looks up too, it cannot say here: an RDMA device made of
/// software has no link to one. The environment is compared with the node instead.
fn the_script_agrees(lab: &Lab, pod: &str, lines: &[Mapped]) {
    let told = ok(exec(lab, pod, "main", "/opt/tools/rail-map.sh"));
    let ours = ok(exec(lab, pod, "main", "podrail map"));
    assert_eq!(told, ours, "{lines:?}");
}

fn assert_distinct(pods: &[Vec<Mapped>; 2]) {
    let lines = || pods.iter().flatten();
    let addresses: BTreeSet<&String> = lines().map(|line| &line.address).collect();
    let gids: BTreeSet<_> = lines().map(|line| (&line.device, &line.index)).collect();
    let devices: BTreeSet<&String> = lines().map(|line| &line.device).collect();
    assert_eq!(
        (addresses.len(), gids.len(), devices.len()),
        (2 * RAILS, 2 * RAILS, RAILS)
    );
}
