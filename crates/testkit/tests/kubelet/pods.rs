//! Lives of pods.

use crate::bench::{Bench, count};
use podrail_testkit::contract;
use podrail_testkit::kubelet::Condition;
use podrail_testkit::status::Phase;

#[tokio::test]
async fn the_fake_runtime_keeps_the_contract() {
    let mut bench = Bench::new();
    // It would remove sandboxes of pods that it does not know.
    bench.stop();
    let setting = contract::Setting {
        runtime: bench.runtime.clone(),
        image: "none".into(),
        cdi: bench.folder.path().join("cdi"),
        directory: bench.folder.path().join("contract"),
    };
    for outcome in contract::run(&setting).await {
        assert_eq!(outcome.result, Ok(()), "{}", outcome.name);
    }
}

#[tokio::test]
async fn init_containers_sidecars_and_main_run_in_order() {
    let bench = Bench::new();
    let mark = bench.folder.path().join("mark");
    let mark = mark.display();
    bench.apply(
        "p",
        &format!(
            "{{initContainers: [{{name: one, command: [sh, -c, 'echo one >> {mark}']}},
              {{name: side, restartPolicy: Always, command: [sleep, infinity]}},
              {{name: two, command: [sh, -c, 'echo two >> {mark}']}}],
              containers: [{{name: main, command: [sh, -c, 'echo main; sleep infinity']}}]}}"
        ),
    );
    let status = bench.ready("p").await;
    assert_eq!(
        std::fs::read_to_string(mark.to_string()).unwrap(),
        "one\ntwo\n"
    );
    assert_eq!((status.phase, status.running()), (Phase::Running, 2));
    bench
        .until("p", "wrote", |_| {
            (bench.kubelet().logs("default/p", None)).is_ok_and(|text| text == "main\n")
        })
        .await;
    bench.delete("p");
    bench.wait("p", Condition::Gone).await;
}

#[tokio::test]
async fn a_job_ends_and_frees_its_devices() {
    let bench = Bench::new();
    let _plugs = bench.plug(1, 1).await;
    let job = "{restartPolicy: Never, containers: [{name: main, command: [sh, -c, 'test $NVIDIA_VISIBLE_DEVICES = gpu-0'],
               resources: {limits: {nvidia.com/gpu: 1}}}]}";
    bench.apply("first", job);
    bench.wait("first", Condition::Succeeded).await;
    bench
        .until("first", "freed", |status| status.devices.is_empty())
        .await;
    bench.apply("second", job);
    bench.wait("second", Condition::Succeeded).await;
}

#[tokio::test]
async fn a_failing_container_is_started_again_and_counted() {
    let bench = Bench::new();
    bench.apply(
        "p",
        "{containers: [{name: main, command: [sh, -c, 'exit 1']}]}",
    );
    let status = bench
        .until("p", "restarted", |status| {
            status.containers[0].restarts >= 20
        })
        .await;
    assert_eq!(count(&status, "SandboxStarted"), 1);
    assert!(count(&status, "Started") >= 20);
}

#[tokio::test]
async fn a_missing_program_is_a_run_error() {
    let bench = Bench::new();
    bench.apply(
        "p",
        "{restartPolicy: Never, containers: [{name: main, command: [/no/such/program]}]}",
    );
    let status = bench.wait("p", Condition::Failed).await.unwrap();
    assert_eq!(status.containers[0].exit_code, Some(128));
}

#[tokio::test]
async fn a_config_map_becomes_files_and_its_lack_a_wait() {
    let bench = Bench::new();
    bench.apply(
        "p",
        "{volumes: [{name: tools, configMap: {name: tools, defaultMode: 0555}}],
          containers: [{name: main, volumeMounts: [{name: tools, mountPath: /opt}]}]}",
    );
    let status = bench
        .until("p", "waits", |status| !status.message.is_empty())
        .await;
    assert!(
        status
            .message
            .contains("configmap \"default/tools\" not found"),
        "{status:?}"
    );
    bench
        .kubelet()
        .apply("kind: ConfigMap\nmetadata: {name: tools}\ndata: {run.sh: echo hello}")
        .unwrap();
    let status = bench.ready("p").await;
    let got = bench
        .runtime
        .got(status.containers[0].id.as_ref().unwrap())
        .unwrap();
    let file = format!("{}/run.sh", got.mounts["/opt"]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "echo hello");
}

#[tokio::test]
async fn a_pod_of_a_known_name_is_refused_and_exec_tells_its_code() {
    let bench = Bench::new();
    bench.apply(
        "p",
        "{containers: [{name: main, env: [{name: A, value: b}]}]}",
    );
    let again = bench
        .kubelet()
        .apply("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}");
    assert_eq!(
        again.unwrap_err().to_string(),
        "pod default/p is there already"
    );
    bench.ready("p").await;
    let command = ["sh", "-c", "echo $A; exit 3"].map(String::from);
    let done = bench
        .kubelet()
        .exec("default/p", None, &command, crate::bench::PATIENCE)
        .await;
    let done = done.unwrap();
    assert_eq!(
        (done.exit_code, done.stdout.as_slice()),
        (3, b"b\n".as_slice())
    );
    let absent = bench
        .kubelet()
        .exec("default/p", Some("x"), &command, crate::bench::PATIENCE)
        .await;
    assert_eq!(
        absent.unwrap_err().to_string(),
        "no started container x in pod default/p"
    );
}
