//! What ADD, DEL and CHECK do when something that they stand on is missing, slow or broken.
//!
//! Wherever it can be, the plugin is called by hand with one place changed, so that the rest of the
//! node stays whole and a case costs a moment.

use crate::hand::{Hand, Said, assert_untouched, namespaces, remove_namespaces, signal, until};
use crate::races::{at_the_same_time, devices, lock_state, sandbox, traces};
use crate::support::{Scenario, ok, status};
use podrail_lab::Lab;
use podrail_lab::kube::Pod;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// In this order.
pub(crate) const LONG: [Scenario; 6] = [
    (
        "without_the_agent_pods_come_and_go",
        without_the_agent_pods_come_and_go,
    ),
    (
        "a_hanging_kubelet_holds_up_nobody_else",
        a_hanging_kubelet_holds_up_nobody_else,
    ),
    (
        "without_a_good_checkpoint_the_kubelet_is_enough",
        without_a_good_checkpoint_the_kubelet_is_enough,
    ),
    (
        "a_plain_init_container_without_a_checkpoint_fails_closed",
        a_plain_init_container_without_a_checkpoint_fails_closed,
    ),
    (
        "a_bad_directory_for_device_files_leaves_nothing_behind",
        a_bad_directory_for_device_files_leaves_nothing_behind,
    ),
    (
        "thirty_in_a_row_leave_no_trace",
        thirty_in_a_row_leave_no_trace,
    ),
];

/// Those that take seconds: part of every run.
pub(crate) const SHORT: [Scenario; 4] = [
    (
        "nothing_that_is_wrong_with_rails_stops_a_pod_without",
        nothing_that_is_wrong_with_rails_stops_a_pod_without,
    ),
    (
        "a_bad_state_file_stops_only_pods_with_rails",
        a_bad_state_file_stops_only_pods_with_rails,
    ),
    (
        "del_says_what_is_left_and_cleans_later",
        del_says_what_is_left_and_cleans_later,
    ),
    ("odd_answers_of_the_kubelet", odd_answers_of_the_kubelet),
];

const CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// Slots are allocated, then the agent dies: cases 13 and 30.
fn without_the_agent_pods_come_and_go(lab: &Lab) {
    let kube = lab.kube();
    kube.kubelet("set sandbox-delay-ms 3000").unwrap();
    kube.apply(&Pod::sleeping(kube, "job", &[0], 2)).unwrap();
    until("slots wait", || {
        let found = lab.sh("ls /var/lib/podrail/waiting").unwrap().text();
        (found.lines().count() == 2)
            .then_some(())
            .ok_or(json!(found))
    });
    kube.kill("podrail-agent").unwrap();
    kube.kubelet("set sandbox-delay-ms 0").unwrap();
    kube.wait("job", "ready").unwrap();
    assert_eq!(devices(kube, "job"), "2");
    let id = sandbox(kube, "job");
    let held = status(lab);
    let netns = held[0]["netns"].as_str().unwrap();
    let check = Hand::of(lab, "job").call("CHECK", "any");
    check.clone().sandbox(&id).netns(netns).ok();
    kube.run(&Pod::sleeping(kube, "plain", &[], 0)).unwrap();
    kube.delete("job").unwrap();
    assert_eq!(status(lab), json!([]));
    kube.start_agent().unwrap();
    kube.wait_slots("podrail.io/rail", 8).unwrap();
}

const HANGING: &str = "standin-kubelet --root /run/hang";

/// A kubelet that takes calls and never answers, beside the real one.
fn hanging_kubelet(lab: &Lab) -> &'static str {
    // It has no runtime, so it touches no pod.
    let start = "mkdir -p /run/hang; setsid -f standin-kubelet --root /run/hang run \
                 --cri unix:///nowhere >/run/hang.log 2>&1 </dev/null";
    lab.sh(start).unwrap();
    until("the other kubelet listens", || {
        let found = lab.sh("ls /run/hang/pod-resources || true").unwrap().text();
        found
            .contains("kubelet.sock")
            .then_some(())
            .ok_or(json!(found))
    });
    signal(lab, HANGING, "STOP");
    "/run/hang/pod-resources/kubelet.sock"
}

/// Case 12 in short: pods without rails ask nobody, whoever waits meanwhile.
fn a_hanging_kubelet_holds_up_nobody_else(lab: &Lab) {
    let kube = lab.kube();
    let socket = hanging_kubelet(lab);
    let started = Instant::now();
    kube.run(&Pod::sleeping(kube, "warm", &[], 0)).unwrap();
    let alone = started.elapsed().as_secs_f64();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "stuck", &[], 2));
    namespaces(lab, &["stuck"]);
    let add = pod.call("ADD", "stuck");
    let started = Instant::now();
    let hanging = add.clone().with("podResources", socket).cmd().spawn();
    let slow = Pod::sleeping(kube, "slow", &[0], 2);
    kube.kubelet("set delay-ms 8000").unwrap();
    let calls = || kube.kubelet("node").unwrap()["pod_resources_calls"].clone();
    let before = calls();
    let at_once = Instant::now();
    let plain = Hand::without_rails(lab);
    for said in at_the_same_time(&vec![plain.call("ADD", "plain"); 12]) {
        assert_eq!(said.code, 0, "{said:?}");
    }
    let twelve = at_once.elapsed().as_secs_f64();
    let at = Instant::now();
    kube.run(&Pod::sleeping(kube, "plain", &[], 0)).unwrap();
    let beside = at.elapsed().as_secs_f64();
    assert_eq!(calls(), before, "a pod without rails has asked the kubelet");
    println!(
        "a pod without rails: {alone:.1} s alone, {beside:.1} s while one waits; \
         twelve calls at once: {twelve:.1} s"
    );
    let at = Instant::now();
    kube.run(&slow).unwrap();
    assert!(at.elapsed() > Duration::from_secs(8));
    kube.kubelet("set delay-ms 0").unwrap();
    let said = Said::of(&hanging.unwrap().wait().unwrap(), started);
    assert_eq!(said.answer["code"], 11, "{said:?}");
    let text = said.answer.to_string();
    assert!(text.contains("no answer from the kubelet") && text.contains("hint: "));
    // Its own measure: it is waited for here only after all the others.
    let own = text
        .split(" after ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let own: u64 = own.unwrap().parse().unwrap();
    assert!((40_000..60_000).contains(&own), "{text}");
    assert_untouched(lab, "stuck");
    signal(lab, HANGING, "KILL");
    lab.sh("rm -r /run/hang").unwrap();
    add.ok();
    pod.call("DEL", "stuck").ok();
    remove_namespaces(lab, &["stuck"]);
}

fn odd_answers_of_the_kubelet(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    namespaces(lab, &["job"]);
    let (add, del) = (pod.call("ADD", "job"), pod.call("DEL", "job"));
    let set = |knob: &str, value: &str| {
        let argv = ["standin-kubelet", "set", knob, value];
        lab.run_ok(argv).unwrap();
    };
    let near = || status(lab)[0]["near"].clone();
    // Larger than what is taken: asked again later, in a time that leaves the rest of ADD its own.
    set("padding-mib", "17");
    let said = add.fails(11, &["larger than 16 MiB", "hint: "]);
    assert!(said.took < Duration::from_secs(60), "{said:?}");
    assert_eq!(status(lab), json!([]));
    for (knob, value, usual) in [
        ("padding-mib", "15", "0"),
        ("get", "off", "on"),
        ("layout", "numa", "device"),
        (
            "extra-pods",
            r#"{"other": {"example.com/thing": ["a"], "podrail.io/other": ["slot-00"]}, "bare": {}}"#,
            "{}",
        ),
    ] {
        set(knob, value);
        let said = add.ok();
        assert_eq!(near(), 2, "{knob}: {said:?}");
        println!("{knob} {value}: {:.1} s", said.took.as_secs_f64());
        set(knob, usual);
        del.ok();
    }
    // Unknown GPUs: rails as for a pod without, and a word about it.
    let gpus = json!({ &kube.gpus()[0]: "GPU-of-nobody" }).to_string();
    set("rename-devices", &gpus);
    let said = add.clone().with("checkpoint", "/nowhere").ok();
    assert!(said.notes.contains("GPU-of-nobody"), "{said:?}");
    assert_eq!(status(lab)[0]["rails"].as_array().unwrap().len(), 2);
    set("rename-devices", "{}");
    del.ok();
    // No socket: a hint for who wants rails, nothing for who does not.
    add.clone()
        .with("podResources", "/nowhere/kubelet.sock")
        .fails(11, &["/nowhere/kubelet.sock", "does not exist", "hint: "]);
    // Somebody keeps the state file for five seconds.
    let locked = lock_state(lab, 5);
    assert!(add.ok().took > Duration::from_secs(4));
    ok(locked.wait().unwrap());
    del.ok();
    remove_namespaces(lab, &["job"]);
}

fn without_a_good_checkpoint_the_kubelet_is_enough(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    namespaces(lab, &["job", "plain"]);
    lab.sh(&format!(
        "mkdir -p /run/checkpoints; cd /run/checkpoints; printf '{{half' >garbage; \
         truncate -s 1G huge; mkfifo pipe; mkdir folder; \
         jq -c '.Data.PodDeviceEntries |= map(.PodUID = \"0f0f0f0f-0000-4000-8000-00000000000f\" | \
         .DeviceIDs = {{\"-1\": [\"slot-99\"]}})' \
         {CHECKPOINT} >others"
    ))
    .unwrap();
    let plain = Hand::without_rails(lab);
    for name in ["missing", "garbage", "huge", "pipe", "folder", "others"] {
        let path = format!("/run/checkpoints/{name}");
        // While slots wait.
        let said = plain.call("ADD", "plain").with("checkpoint", &path).ok();
        assert!(said.took < Duration::from_secs(10), "{name}: {said:?}");
        let said = pod.call("ADD", "job").with("checkpoint", &path).ok();
        assert!(said.took < Duration::from_secs(20), "{name}: {said:?}");
        assert_eq!(status(lab)[0]["near"], 2, "{name}");
        pod.call("DEL", "job").with("checkpoint", &path).ok();
        plain.call("DEL", "plain").ok();
    }
    // Neither of the two: only pods with rails wait.
    lab.sh("rm -r /run/checkpoints").unwrap();
    remove_namespaces(lab, &["job", "plain"]);
}

/// Only the checkpoint knows of plain init containers.
fn a_plain_init_container_without_a_checkpoint_fails_closed(lab: &Lab) {
    let kube = lab.kube();
    let main = Pod::sleeping(kube, "early", &[], 1);
    let mut init = main.manifest["spec"]["containers"][0].clone();
    init["name"] = json!("init");
    init["command"] = json!(["true"]);
    let pod = Pod::sleeping(kube, "early", &[], 0).with("/spec/initContainers", json!([init]));
    let pod = Hand::admit(lab, &pod);
    namespaces(lab, &["early"]);
    let (add, del) = (pod.call("ADD", "early"), pod.call("DEL", "early"));
    let said = add.clone().with("checkpoint", "/nowhere").run();
    // Whether it says so or not: no device file, so no container.
    let files = lab.sh("ls /var/run/cdi").unwrap().text();
    assert_eq!((files.as_str(), status(lab)), ("", json!([])), "{said:?}");
    println!(
        "a plain init container without a checkpoint: {}",
        said.answer
    );
    add.ok();
    assert_eq!(status(lab)[0]["rails"].as_array().unwrap().len(), 1);
    del.ok();
    remove_namespaces(lab, &["early"]);
}

/// Copies of the state directory, each broken in another way.
const BROKEN: [(&str, &str, &str); 5] = [
    ("missing", "rm $d/state.db*", "state.db"),
    (
        "garbage",
        "head -c 40960 /dev/urandom >$d/state.db",
        "state.db",
    ),
    (
        "newer",
        "sqlite3 $d/state.db 'pragma user_version=9999'",
        "state.db",
    ),
    (
        "readonly",
        "mount -o bind $d $d; mount -o remount,bind,ro $d",
        "/run/state/readonly",
    ),
    (
        "full",
        "mount -t tmpfs -o size=256k tmpfs /mnt; cp -a $d/. /mnt; umount /mnt; \
         mkdir /run/state/kept; cp -a $d/. /run/state/kept; mount -t tmpfs -o size=200k tmpfs $d; \
         chmod 700 $d; cp -a /run/state/kept/. $d; rm -r /run/state/kept; \
         dd if=/dev/zero of=$d/filler bs=4k 2>/dev/null || true",
        "/run/state/full",
    ),
];

fn a_bad_state_file_stops_only_pods_with_rails(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    let plain = Hand::without_rails(lab);
    namespaces(lab, &["job", "plain"]);
    for (name, breaks, told) in BROKEN {
        let d = format!("/run/state/{name}");
        let copy = format!(
            "mkdir -p -m 700 /run/state; d={d}; mkdir -m 700 $d; cp -a /var/lib/podrail/waiting $d; \
             mkdir $d/pods; sqlite3 -readonly /var/lib/podrail/state.db \".backup $d/state.db\"; \
             chmod 600 $d/state.db; {breaks}"
        );
        lab.sh(&copy).unwrap();
        let state = format!("{d}/state.db");
        plain.call("ADD", "plain").with("state", &state).ok();
        let said = pod.call("ADD", "job").with("state", &state).run();
        assert_eq!(said.code, 1, "{name}: {said:?}");
        let text = said.answer.to_string();
        println!("{name}: {text}");
        assert!(
            text.contains(told) && text.contains("hint: "),
            "{name}: {text}"
        );
        for call in [pod.call("DEL", "job"), plain.call("DEL", "plain")] {
            let said = call.with("state", &state).run();
            assert!(said.code == 0 || said.answer.to_string().contains(told));
        }
        assert_untouched(lab, "job");
        let files = lab.sh("ls /var/run/cdi").unwrap().text();
        assert_eq!(files, "", "{name}");
        lab.sh(&format!("umount {d} 2>/dev/null || true")).unwrap();
    }
    lab.sh("rm -r /run/state").unwrap();
    pod.call("ADD", "job").ok();
    pod.call("DEL", "job").ok();
    remove_namespaces(lab, &["job", "plain"]);
}

/// While a slot waits, so that the cheap test lets every pod through to the long way.
fn nothing_that_is_wrong_with_rails_stops_a_pod_without(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    let plain = Hand::without_rails(lab);
    namespaces(lab, &["job", "plain"]);
    plain.call("ADD", "plain").with("logLevel", "debug").ok();
    let said = pod.call("ADD", "job").with("logLevel", "debug");
    said.fails(7, &["logLevel", "unknown field"]);
    plain.call("ADD", "plain").without_uid().ok();
    let said = pod.call("ADD", "job").without_uid();
    said.fails(4, &["K8S_POD_UID is missing"]);
    let d = "/run/newer";
    let tomorrow = r#"update setup set value = '{"tomorrow": 1}' where key = 'document'"#;
    lab.write_file("/run/tomorrow.sql", 0o644, tomorrow.as_bytes())
        .unwrap();
    lab.sh(&format!(
        "mkdir -m 700 {d}; cp -a /var/lib/podrail/waiting {d}; mkdir {d}/pods; \
         sqlite3 -readonly /var/lib/podrail/state.db '.backup {d}/state.db'; \
         chmod 600 {d}/state.db; sqlite3 {d}/state.db </run/tomorrow.sql"
    ))
    .unwrap();
    let state = format!("{d}/state.db");
    plain.call("ADD", "plain").with("state", &state).ok();
    let said = pod.call("ADD", "job").with("state", &state);
    said.fails(103, &["tomorrow", "hint: "]);
    assert_untouched(lab, "job");
    pod.call("ADD", "job").ok();
    pod.call("DEL", "job").ok();
    lab.sh(&format!("rm -r {d} /run/tomorrow.sql")).unwrap();
    remove_namespaces(lab, &["job", "plain"]);
}

fn del_says_what_is_left_and_cleans_later(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    namespaces(lab, &["job"]);
    pod.call("ADD", "job").ok();
    let d = "/run/other";
    lab.sh(&format!(
        "mkdir -m 700 {d}; cp -a /var/lib/podrail/pods {d}; cd {d}; \
         sqlite3 -readonly /var/lib/podrail/state.db '.backup {d}/state.db'; \
         chmod 600 state.db; cp -a state.db good; head -c 40960 /dev/urandom >state.db"
    ))
    .unwrap();
    let del = pod
        .call("DEL", "job")
        .with("state", &format!("{d}/state.db"));
    del.fails(103, &["state.db", "hint: "]);
    let check = pod.call("CHECK", "job");
    check.ok();
    lab.sh(&format!(
        "cd {d}; mv good state.db; mount -o bind {d} {d}; mount -o remount,bind,ro {d}"
    ))
    .unwrap();
    let said = del.run();
    assert_eq!(said.code, 1, "{said:?}");
    lab.sh(&format!("umount {d}")).unwrap();
    del.ok();
    assert_untouched(lab, "job");
    // The node's own file still has it; a namespace that is clean already is fine.
    pod.call("DEL", "job").ok();
    assert_eq!(status(lab), json!([]));
    lab.sh(&format!("rm -r {d}")).unwrap();
    remove_namespaces(lab, &["job"]);
}

fn a_bad_directory_for_device_files_leaves_nothing_behind(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    namespaces(lab, &["job"]);
    lab.sh(
        "mkdir -p /run/cdis/read-only /run/cdis/full; cd /run/cdis; ln -s /var/run/cdi link; \
         touch file; mount -t tmpfs -o ro tmpfs read-only; \
         mount -t tmpfs -o size=8k tmpfs full; dd if=/dev/zero of=full/filler 2>/dev/null || true",
    )
    .unwrap();
    let [add, del] = ["ADD", "DEL"].map(|command| pod.call(command, "job"));
    for name in ["read-only", "full", "link", "file"] {
        let path = format!("/run/cdis/{name}");
        let said = add.clone().with("cdi", &path).fails(11, &[&path, "hint: "]);
        println!("{name}: {}", said.answer);
        assert_untouched(lab, "job");
        assert_eq!(status(lab), json!([]), "{name}");
    }
    let add = add.with("cdi", "/run/cdis/made/here");
    add.ok();
    let files = lab.sh("ls /run/cdis/made/here | wc -l").unwrap().text();
    assert_eq!(files, "2");
    del.clone().with("cdi", "/run/cdis/made/here").ok();
    lab.sh("umount /run/cdis/read-only /run/cdis/full; rm -r /run/cdis")
        .unwrap();
    remove_namespaces(lab, &["job"]);
}

/// Case 32 in short.
fn thirty_in_a_row_leave_no_trace(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[0], 2));
    namespaces(lab, &["job"]);
    let (add, del) = (pod.call("ADD", "job"), pod.call("DEL", "job"));
    add.ok();
    del.ok();
    let before = traces(lab);
    for _ in 0..30 {
        add.ok();
        del.ok();
    }
    until("all is as before", || {
        let now = traces(lab);
        (now == before).then_some(()).ok_or(Value::from(now))
    });
    remove_namespaces(lab, &["job"]);
}

#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn degraded_nodes_end_right() {
    let Some(lab) = crate::hand::node() else {
        return;
    };
    crate::support::run_all(&lab, &LONG);
}
