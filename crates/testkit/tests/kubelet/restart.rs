//! Restarts of the kubelet and of the node.

use crate::bench::{Bench, PATIENCE, count};
use podrail_kubelet::proto::podresources::ListPodResourcesRequest;
use podrail_testkit::kubelet::Condition;

const POD: &str = "{containers: [{name: main, command: [sleep, infinity],
                   resources: {limits: {nvidia.com/gpu: 2}}}]}";

#[tokio::test]
async fn running_pods_do_not_notice_a_restart() {
    let mut bench = Bench::new();
    let _plugs = bench.plug(4, 1).await;
    bench.apply("p", POD);
    let before = bench.ready("p").await;
    bench.stop();
    bench.start();
    bench
        .kubelet()
        .wait_allocatable("nvidia.com/gpu", 4, PATIENCE)
        .await
        .unwrap();
    let after = bench.ready("p").await;
    assert_eq!(
        (&after.containers, &after.devices),
        (&before.containers, &before.devices)
    );
    assert_eq!(after.sandbox, before.sandbox);
    assert_eq!(count(&after, "Allocated"), 0);
    bench.apply("q", POD);
    let other = bench.ready("q").await;
    let ids = |status: &podrail_testkit::status::PodStatus| {
        status.devices["main"]["nvidia.com/gpu"].clone()
    };
    assert!(ids(&other).iter().all(|id| !ids(&after).contains(id)));
    let list = bench
        .pod_resources()
        .await
        .list(ListPodResourcesRequest {})
        .await
        .unwrap();
    assert_eq!(list.into_inner().pod_resources.len(), 2);
}

#[tokio::test]
async fn a_pod_that_was_being_deleted_is_deleted_by_the_next_kubelet() {
    let mut bench = Bench::new();
    bench.apply(
        "p",
        "{containers: [{name: main, command: [sh, -c, \"trap '' TERM; echo up; while :; do sleep 0.1; done\"]}]}",
    );
    bench
        .until("p", "up", |s| {
            s.ready && (bench.kubelet().logs("default/p", None)).is_ok_and(|text| text == "up\n")
        })
        .await;
    bench.kubelet().delete("default/p", false, Some(1)).unwrap();
    bench.stop();
    bench.start();
    bench.wait("p", Condition::Gone).await;
}

#[tokio::test]
async fn after_a_power_cut_pods_start_again_with_their_devices_if_the_plugins_are_in_time() {
    let mut bench = Bench::new();
    let plugs = bench.plug(2, 1).await;
    bench.apply("p", POD);
    let before = bench.ready("p").await;
    bench.stop();
    drop(plugs);
    bench.runtime.power_cut();
    bench.start();
    let _plugs = bench.plug(2, 1).await;
    let after = bench
        .until("p", "in a new sandbox", |s| {
            s.ready && s.sandbox != before.sandbox
        })
        .await;
    assert_eq!(after.devices, before.devices);
    assert_eq!(count(&after, "Allocated"), 0);
}

#[tokio::test]
async fn after_a_power_cut_without_plugins_a_pod_fails_for_good() {
    let mut bench = Bench::new();
    let plugs = bench.plug(2, 1).await;
    bench.apply("p", POD);
    bench.ready("p").await;
    bench.stop();
    drop(plugs);
    bench.runtime.power_cut();
    bench.start();
    let rejected = bench.wait("p", Condition::Failed).await.unwrap();
    assert!(
        rejected.message.contains("no healthy devices present"),
        "{}",
        rejected.message
    );
    let _plugs = bench.plug(2, 1).await;
    bench.wait("p", Condition::Failed).await;
}

#[tokio::test]
async fn the_directory_of_plugins_is_emptied_but_for_the_checkpoint() {
    let mut bench = Bench::new();
    let plugs = bench.plug(1, 1).await;
    bench.apply(
        "p",
        "{containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}",
    );
    bench.ready("p").await;
    drop(plugs);
    bench.stop();
    bench.start();
    let mut names: Vec<String> = std::fs::read_dir(bench.plugins())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["kubelet.sock", "kubelet_internal_checkpoint"]);
}
