//! Devices: admission, PodResources, the checkpoint.

use crate::bench::{Bench, PATIENCE, count};
use podrail_kubelet::proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use podrail_kubelet::proto::podresources::{
    ContainerDevices, GetPodResourcesRequest, ListPodResourcesRequest, ListPodResourcesResponse,
};
use podrail_testkit::kubelet::Condition;
use serde_json::json;
use std::collections::BTreeSet;
use tonic::Code;
use tonic::transport::Channel;

const JOB: &str = "{containers: [{name: main, command: [sleep, infinity],
                   resources: {limits: {nvidia.com/gpu: 2, test.io/rail: 2}}}]}";

fn get(name: &str) -> GetPodResourcesRequest {
    GetPodResourcesRequest {
        pod_name: name.into(),
        pod_namespace: "default".into(),
    }
}

#[tokio::test]
async fn a_container_waits_for_its_cdi_files_in_the_same_sandbox() {
    let bench = Bench::new();
    let _plugs = bench.plug(2, 2).await;
    bench.apply("p", JOB);
    let status = bench
        .until("p", "refused", |status| {
            status.containers[0].reason == "CreateContainerError"
        })
        .await;
    let message = &status.containers[0].message;
    assert!(
        message.contains("unresolvable CDI devices test.io/rail=slot-"),
        "{message}"
    );
    bench.write_cdi("slot-0");
    bench.write_cdi("slot-1");
    let after = bench.ready("p").await;
    assert_eq!(after.sandbox, status.sandbox);
    assert_eq!(
        count(&after, "Allocated"),
        2,
        "one for each resource, no more"
    );
    let got = bench
        .runtime
        .got(after.containers[0].id.as_ref().unwrap())
        .unwrap();
    assert_eq!(got.devices, ["/dev/null", "/dev/null"]);
    assert_eq!(got.env["RAIL_OF_slot_0"], "here");
    assert_eq!(got.env["NVIDIA_VISIBLE_DEVICES"].split(',').count(), 2);
}

#[tokio::test]
async fn pod_resources_leave_plain_init_containers_out_and_the_checkpoint_has_them() {
    let bench = Bench::new();
    let _plugs = bench.plug(2, 4).await;
    let limits = |count: usize| format!("resources: {{limits: {{test.io/rail: {count}}}}}");
    bench.apply(
        "p",
        &format!(
            "{{initContainers: [{{name: init, {}}}, {{name: side, restartPolicy: Always, {}}}],
              containers: [{{name: main, {}}}]}}",
            limits(3),
            limits(1),
            limits(2)
        ),
    );
    bench
        .until("p", "admitted", |status| count(status, "Allocated") == 3)
        .await;
    let mut client = bench.pod_resources().await;
    let list = client
        .list(ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    let pod = &list.pod_resources[0];
    let names: Vec<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["side", "main"]);
    let got = client.get(get("p")).await.unwrap().into_inner();
    assert_eq!(got.pod_resources.as_ref(), Some(pod));
    let entries = bench.checkpoint()["Data"]["PodDeviceEntries"]
        .as_array()
        .unwrap()
        .clone();
    let of = |name: &str| -> BTreeSet<String> {
        let entry = entries
            .iter()
            .find(|entry| entry["ContainerName"] == name)
            .unwrap();
        let ids = entry["DeviceIDs"]["-1"].as_array().unwrap().iter();
        ids.map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    let (init, side, main) = (of("init"), of("side"), of("main"));
    assert_eq!((init.len(), side.len(), main.len()), (3, 1, 2));
    assert!(
        side.is_subset(&init) && main.is_subset(&init),
        "devices of init go first"
    );
    assert!(side.is_disjoint(&main), "a sidecar keeps its own");
}

#[tokio::test]
async fn too_few_devices_reject_a_pod_and_a_forced_split_is_kept() {
    let bench = Bench::new();
    let _plugs = bench.plug(4, 4).await;
    for slot in 0..4 {
        bench.write_cdi(&format!("slot-{slot}"));
    }
    bench
        .kubelet()
        .apply(&format!(
            "kind: Pod\nmetadata: {{name: p}}\nspec: {JOB}\npodrail.test/devices: {{main: {{nvidia.com/gpu: [gpu-1, gpu-3]}}}}"
        ))
        .unwrap();
    let status = bench.ready("p").await;
    assert_eq!(status.devices["main"]["nvidia.com/gpu"], ["gpu-1", "gpu-3"]);
    bench.apply("q", &JOB.replace("gpu: 2", "gpu: 3"));
    let rejected = bench.wait("q", Condition::Failed).await.unwrap();
    assert_eq!(rejected.reason, "UnexpectedAdmissionError");
    let words =
        "requested number of devices unavailable for nvidia.com/gpu. Requested: 3, Available: 2";
    assert!(rejected.message.contains(words), "{}", rejected.message);
    assert!(rejected.devices.is_empty());
    bench.delete("p");
    bench.wait("p", Condition::Gone).await;
    bench.apply("r", JOB);
    bench.ready("r").await;
}

async fn list(client: &mut PodResourcesListerClient<Channel>) -> ListPodResourcesResponse {
    let answer = client.list(ListPodResourcesRequest {}).await;
    answer.unwrap().into_inner()
}

fn entries(list: ListPodResourcesResponse) -> Vec<ContainerDevices> {
    let containers = list.pod_resources.into_iter().flat_map(|p| p.containers);
    containers.flat_map(|container| container.devices).collect()
}

const FOUR_GPUS: &str = "{containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}";

#[tokio::test]
async fn lists_can_be_cut_renamed_and_extended() {
    let bench = Bench::new();
    let _plugs = bench.plug(4, 1).await;
    bench.apply("p", FOUR_GPUS);
    bench.ready("p").await;
    let mut client = bench.pod_resources().await;
    let by_device = entries(list(&mut client).await);
    assert_eq!(by_device.len(), 4, "one entry for each device");
    assert_eq!(by_device[0].topology.as_ref().unwrap().nodes[0].id, 0);
    bench.set("layout", "numa");
    bench.set("rename-devices", r#"{"gpu-0": "strange"}"#);
    bench.set("extra-pods", r#"{"other": {"nvidia.com/gpu": ["gpu-9"]}}"#);
    let all = entries(list(&mut client).await);
    let ids: BTreeSet<&str> = all
        .iter()
        .flat_map(|d| &d.device_ids)
        .map(String::as_str)
        .collect();
    let wanted = BTreeSet::from(["strange", "gpu-1", "gpu-2", "gpu-3", "gpu-9"]);
    assert_eq!((all.len(), ids), (3, wanted), "one for each NUMA node");
}

#[tokio::test]
async fn answers_can_be_large_and_get_can_be_away() {
    let bench = Bench::new();
    let mut client = bench
        .pod_resources()
        .await
        .max_decoding_message_size(32 << 20);
    bench.set("padding-mib", "15");
    let size = prost::Message::encoded_len(&list(&mut client).await);
    assert!((15 << 20..16 << 20).contains(&size), "{size}");
    for (value, code) in [("off", Code::Unimplemented), ("disabled", Code::Unknown)] {
        bench.set("get", value);
        assert_eq!(client.get(get("p")).await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn many_requests_at_once_are_limited() {
    let bench = Bench::new();
    let client = bench.pod_resources().await;
    let calls = (0..60).map(|_| {
        let mut client = client.clone();
        async move { client.get(get("absent")).await.unwrap_err().code() }
    });
    let mut calls: tokio::task::JoinSet<Code> = calls.collect();
    let mut codes = Vec::new();
    while let Some(code) = calls.join_next().await {
        codes.push(code.unwrap());
    }
    let limited = codes
        .iter()
        .filter(|code| **code == Code::ResourceExhausted)
        .count();
    assert!(limited > 0 && limited <= 50, "{limited}");
}

#[tokio::test]
async fn a_plugin_that_goes_takes_its_devices_from_the_node_and_not_from_pods() {
    let bench = Bench::new();
    let plugs = bench.plug(2, 2).await;
    bench.apply(
        "p",
        "{containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}",
    );
    let before = bench.ready("p").await;
    drop(plugs);
    bench
        .kubelet()
        .wait_allocatable("nvidia.com/gpu", 0, PATIENCE)
        .await
        .unwrap();
    let node = serde_json::to_value(bench.kubelet().node().await.unwrap()).unwrap();
    let gpus = json!({"capacity": 2, "allocatable": 0, "allocated": 2});
    assert_eq!(node["resources"]["nvidia.com/gpu"], gpus);
    assert_eq!(bench.ready("p").await.containers, before.containers);
    let _plugs = bench.plug(2, 2).await;
}

#[tokio::test]
async fn a_forced_deletion_frees_devices_and_name_while_the_container_runs() {
    let bench = Bench::new();
    let _plugs = bench.plug(2, 2).await;
    let pod = "{containers: [{name: main, command: [sh, -c, \"trap '' TERM; echo up; while :; do sleep 0.1; done\"],
               resources: {limits: {nvidia.com/gpu: 2}}}]}";
    bench.apply("p", pod);
    let old = bench.ready("p").await;
    bench
        .until("p", "up", |_| {
            let logs = bench.kubelet().logs("default/p", None);
            logs.is_ok_and(|text| text == "up\n")
        })
        .await;
    bench
        .kubelet()
        .delete("default/p", true, Some(3600))
        .unwrap();
    bench.apply("p", pod);
    let new = bench.ready("p").await;
    assert_ne!(new.uid, old.uid);
    assert_eq!(new.devices, old.devices);
    let all = bench.kubelet().pods();
    let still = all.iter().find(|status| status.uid == old.uid).unwrap();
    assert_eq!(still.running(), 1, "{still:#?}");
}
