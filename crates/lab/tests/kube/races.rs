//! Calls that meet: slots with two pods, names used again, ADD beside ADD and DEL, kills.

use crate::hand::{
    Call, Hand, Said, namespaces, processes, remove_namespaces, signal, until, until_within,
};
use crate::support::{Scenario, ok, status};
use podrail_lab::Lab;
use podrail_lab::kube::{Kube, Pod};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// In this order: the last one counts over all.
pub(crate) const LONG: [Scenario; 8] = [
    (
        "rails_stay_with_a_container_that_outlives_its_pod",
        rails_stay_with_a_container_that_outlives_its_pod,
    ),
    (
        "a_slot_goes_to_the_new_pod_while_rails_are_free",
        a_slot_goes_to_the_new_pod_while_rails_are_free,
    ),
    (
        "a_pod_of_the_same_name_is_another_pod",
        a_pod_of_the_same_name_is_another_pod,
    ),
    ("two_pods_at_the_same_instant", two_pods_at_the_same_instant),
    (
        "a_sandbox_made_again_gets_near_rails_again",
        a_sandbox_made_again_gets_near_rails_again,
    ),
    (
        "a_container_started_21_times_keeps_its_devices",
        a_container_started_21_times_keeps_its_devices,
    ),
    (
        "a_pod_deleted_during_add_leaves_nothing",
        a_pod_deleted_during_add_leaves_nothing,
    ),
    (
        "a_container_waits_for_its_device_file",
        a_container_waits_for_its_device_file,
    ),
];

/// Those that take seconds: part of every run.
pub(crate) const SHORT: [Scenario; 4] = [
    (
        "two_calls_at_the_same_instant",
        two_calls_at_the_same_instant,
    ),
    (
        "a_killed_add_is_finished_by_the_next_call",
        a_killed_add_is_finished_by_the_next_call,
    ),
    (
        "del_waits_for_the_add_of_its_sandbox",
        del_waits_for_the_add_of_its_sandbox,
    ),
    (
        "device_files_are_there_in_time",
        device_files_are_there_in_time,
    ),
];

/// The sandbox that a pod has now.
pub(crate) fn sandbox(kube: Kube<'_>, name: &str) -> String {
    let pod = kube.get(name).unwrap();
    pod["sandbox"]["id"].as_str().unwrap().to_owned()
}

/// Slots of a pod's container, from the kubelet.
fn slots(kube: Kube<'_>, name: &str) -> BTreeSet<String> {
    let pod = kube.get(name).unwrap();
    let slots = pod["devices"]["main"]["podrail.io/rail"].as_array();
    let slots = slots.into_iter().flatten();
    slots
        .map(|slot| slot.as_str().unwrap().to_owned())
        .collect()
}

/// The owners that the CDI files of slots name.
fn owners(lab: &Lab, slots: &BTreeSet<String>) -> BTreeSet<String> {
    let owner = |slot: &String| {
        let path = format!("/var/run/cdi/podrail.io-rail_{slot}.json");
        let file: Value = serde_json::from_slice(&lab.read_file(&path).unwrap()).unwrap();
        let owner = file["annotations"]["podrail.io/sandbox"].as_str();
        owner.unwrap().to_owned()
    };
    slots.iter().map(owner).collect()
}

/// Sandboxes that hold rails.
fn holders(lab: &Lab) -> BTreeSet<String> {
    let all = status(lab);
    let all = all.as_array().unwrap().iter();
    all.map(|s| s["sandbox"].as_str().unwrap().to_owned())
        .collect()
}

fn one(id: &str) -> BTreeSet<String> {
    BTreeSet::from([id.to_owned()])
}

/// What a container sees of its rails.
fn inside(kube: Kube<'_>, name: &str) -> String {
    let script = "ls /dev/infiniband; ip -br addr | grep net; ip rule; ibv_devices; \
                  env | grep PCIDEVICE | sort";
    ok(kube.exec(name, script).unwrap())
}

/// How many verbs devices a container has.
pub(crate) fn devices(kube: Kube<'_>, name: &str) -> String {
    ok(kube
        .exec(name, "ls /dev/infiniband | grep -c uverbs")
        .unwrap())
}

/// A pod that no TERM ends, with these slots.
fn stubborn(kube: Kube<'_>, name: &str, rails: usize) -> Pod {
    let main = "/spec/containers/0/command";
    Pod::sleeping(kube, name, &[], rails).with(main, json!(["sleep", "31337"]))
}

/// Ends what [`stubborn`] made.
fn end_stubborn(lab: &Lab) {
    signal(lab, "sleep 31337", "KILL");
}

fn of_slots(pod: Pod, slots: &[&str]) -> Pod {
    pod.with(
        "/podrail.test~1devices",
        json!({ "main": { "podrail.io/rail": slots } }),
    )
}

/// Deleted by force, the kubelet gives the slots away at once: case 30b.
fn rails_stay_with_a_container_that_outlives_its_pod(lab: &Lab) {
    let kube = lab.kube();
    kube.run(&stubborn(kube, "holder", 8)).unwrap();
    let (old, before) = (sandbox(kube, "holder"), inside(kube, "holder"));
    let pods = status(lab);
    kube.kubelet("delete default/holder --force --grace 600")
        .unwrap();
    kube.apply(&Pod::sleeping(kube, "heir", &[], 8)).unwrap();
    until("the heir is refused", || {
        let pod = kube.get("heir").unwrap();
        let text = pod["message"].as_str().unwrap_or_default();
        let named = text.contains("pod default/holder") && text.contains(&old);
        named.then_some(()).ok_or(pod["events"].clone())
    });
    namespaces(lab, &["heir2"]);
    let add = Hand::of(lab, "heir").call("ADD", "heir2");
    add.fails(11, &["pod default/holder", &old]);
    remove_namespaces(lab, &["heir2"]);
    assert_eq!(inside(kube, "holder"), before);
    assert_eq!(status(lab), pods);
    let files = lab.sh("ls /var/run/cdi | wc -l").unwrap().text();
    assert_eq!(files, "0", "slots that were given away stand for nothing");
    end_stubborn(lab);
    kube.wait("heir", "ready").unwrap();
    let new = one(&sandbox(kube, "heir"));
    assert_eq!(holders(lab), new);
    assert_eq!(owners(lab, &slots(kube, "heir")), new);
    assert_eq!(devices(kube, "heir"), "8");
}

fn a_slot_goes_to_the_new_pod_while_rails_are_free(lab: &Lab) {
    let kube = lab.kube();
    let taken = ["slot-00", "slot-01"];
    kube.run(&of_slots(stubborn(kube, "holder", 2), &taken))
        .unwrap();
    let (old, before) = (sandbox(kube, "holder"), inside(kube, "holder"));
    kube.kubelet("delete default/holder --force --grace 600")
        .unwrap();
    let heir = Pod::sleeping(kube, "heir", &[], 2);
    kube.run(&of_slots(heir, &taken)).unwrap();
    let new = sandbox(kube, "heir");
    let of_heir = slots(kube, "heir");
    assert_eq!(of_heir, taken.map(String::from).into());
    assert_eq!(holders(lab), BTreeSet::from([old, new.clone()]));
    assert_eq!(owners(lab, &of_heir), one(&new));
    assert_eq!(inside(kube, "holder"), before);
    let seen = inside(kube, "heir");
    end_stubborn(lab);
    kube.wait("holder", "gone").unwrap();
    assert_eq!(holders(lab), one(&new));
    assert_eq!(owners(lab, &of_heir), one(&new));
    assert_eq!(inside(kube, "heir"), seen);
}

fn a_pod_of_the_same_name_is_another_pod(lab: &Lab) {
    let kube = lab.kube();
    let mut uids = BTreeSet::new();
    for _ in 0..3 {
        kube.run(&Pod::sleeping(kube, "same", &[], 2)).unwrap();
        uids.insert(kube.get("same").unwrap()["uid"].to_string());
        kube.kubelet("delete default/same --force --grace 0")
            .unwrap();
    }
    kube.run(&Pod::sleeping(kube, "same", &[], 2)).unwrap();
    assert_eq!(uids.len(), 3);
    let new = one(&sandbox(kube, "same"));
    until("the earlier ones are gone", || {
        let found = holders(lab);
        (found == new).then_some(()).ok_or(json!(found))
    });
    assert_eq!(owners(lab, &slots(kube, "same")), new);
    let files = lab.sh("ls /var/run/cdi | wc -l").unwrap().text();
    assert_eq!(files, "2");
}

/// Rails and addresses of all sandboxes, each once.
fn assert_disjoint(lab: &Lab, sandboxes: usize, rails: usize) {
    let all = status(lab);
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), sandboxes);
    let held: Vec<&Value> = all
        .iter()
        .flat_map(|s| s["rails"].as_array().unwrap())
        .collect();
    assert_eq!(held.len(), rails);
    for field in ["netdev", "addresses"] {
        let each: BTreeSet<String> = held.iter().map(|rail| rail[field].to_string()).collect();
        assert!(!each.contains("null"), "{held:?}");
        assert_eq!(each.len(), rails, "{field} twice: {all:?}");
    }
}

fn two_pods_at_the_same_instant(lab: &Lab) {
    let kube = lab.kube();
    let pods = [("one", 0), ("two", 1)].map(|(name, gpu)| Pod::sleeping(kube, name, &[gpu], 2));
    let both: Vec<String> = pods.iter().map(|pod| pod.manifest.to_string()).collect();
    kube.apply_text(&both.join("\n---\n")).unwrap();
    for pod in &pods {
        kube.wait(&pod.name(), "ready").unwrap();
    }
    assert_disjoint(lab, 2, 4);
    for pod in &pods {
        let name = pod.name();
        assert_eq!(owners(lab, &slots(kube, &name)), one(&sandbox(kube, &name)));
    }
}

/// Starts all, then waits for all.
pub(crate) fn at_the_same_time(calls: &[Call<'_>]) -> Vec<Said> {
    let started = Instant::now();
    let running: Vec<_> = calls
        .iter()
        .map(|call| call.cmd().spawn().unwrap())
        .collect();
    let ended = running.into_iter().map(|process| process.wait().unwrap());
    ended.map(|output| Said::of(&output, started)).collect()
}

fn two_calls_at_the_same_instant(lab: &Lab) {
    let kube = lab.kube();
    let one = Hand::admit(lab, &Pod::sleeping(kube, "one", &[], 4));
    let two = Hand::admit(lab, &Pod::sleeping(kube, "two", &[], 4));
    namespaces(lab, &["one", "two"]);
    let all = |command| {
        [
            one.call(command, "one"),
            one.call(command, "one"),
            two.call(command, "two"),
        ]
    };
    for said in at_the_same_time(&all("ADD")) {
        assert_eq!(said.code, 0, "{said:?}");
    }
    assert_disjoint(lab, 2, 8);
    for check in [one.call("CHECK", "one"), two.call("CHECK", "two")] {
        check.ok();
    }
    for said in at_the_same_time(&all("DEL")) {
        assert_eq!(said.code, 0, "{said:?}");
    }
    remove_namespaces(lab, &["one", "two"]);
}

/// The pause process is killed: no new `Allocate`, the same slots.
fn a_sandbox_made_again_gets_near_rails_again(lab: &Lab) {
    let kube = lab.kube();
    let pod = Pod::sleeping(kube, "job", &[0, 1], 2);
    // Its program does not heed TERM.
    let pod = pod.with("/spec/terminationGracePeriodSeconds", json!(0));
    kube.run(&pod).unwrap();
    let (old, of_job) = (sandbox(kube, "job"), slots(kube, "job"));
    lab.sh(&format!("ctr -n k8s.io tasks kill -s KILL {old}"))
        .unwrap();
    let new = until("another sandbox runs the pod", || {
        let pod = kube.get("job").unwrap();
        let id = pod["sandbox"]["id"].as_str().unwrap_or_default().to_owned();
        let done = id != old && pod["ready"] == true;
        done.then_some(id).ok_or(pod["events"].clone())
    });
    assert_eq!(slots(kube, "job"), of_job);
    let events = kube.get("job").unwrap()["events"].to_string();
    assert_eq!(events.matches("podrail.io/rail: ").count(), 1, "{events}");
    assert_eq!(holders(lab), one(&new));
    assert_eq!(owners(lab, &of_job), one(&new));
    let text = kube.podrail("explain --pod default/job").unwrap();
    assert!(text.contains("2 of 2 rails next to its GPUs"), "{text}");
    assert_eq!(devices(kube, "job"), "2");
    // The kubelet removes the old sandbox later, which is one more DEL of it.
    until("the old sandbox is removed", || {
        let pod = kube.get("job").unwrap();
        let removed = pod["events"].to_string().contains("SandboxRemoved");
        removed.then_some(()).ok_or(pod["events"].clone())
    });
    assert_eq!(owners(lab, &of_job), one(&new));
}

fn a_container_started_21_times_keeps_its_devices(lab: &Lab) {
    let kube = lab.kube();
    let script = "echo $(ls /dev/infiniband; ip -br addr | grep net; env | grep PCIDEVICE | sort) \
                  >>/out/starts";
    let pod = Pod::sleeping(kube, "again", &[], 1)
        .with("/spec/containers/0/command", json!(["bash", "-c", script]))
        .with(
            "/spec/containers/0/volumeMounts",
            json!([{ "name": "out", "mountPath": "/out" }]),
        )
        .with(
            "/spec/volumes",
            json!([{ "name": "out", "hostPath": { "path": "/run/out" } }]),
        );
    lab.sh("rm -rf /run/out; mkdir /run/out").unwrap();
    kube.kubelet("set backoff-ms 0").unwrap();
    kube.apply(&pod).unwrap();
    until_within(Duration::from_secs(400), "20 restarts", || {
        let pod = kube.get("again").unwrap();
        let restarts = pod["containers"][0]["restarts"].as_u64();
        let enough = restarts.is_some_and(|count| count > 20);
        enough.then_some(()).ok_or(pod["containers"].clone())
    });
    let (id, pod) = (sandbox(kube, "again"), kube.get("again").unwrap());
    let seen = lab.sh("sort /run/out/starts | uniq -c").unwrap().text();
    kube.delete("again").unwrap();
    kube.kubelet("set backoff-ms 1000").unwrap();
    assert_eq!(seen.lines().count(), 1, "{seen}");
    assert!(seen.contains("rdma_cm uverbs"), "{seen}");
    let count: u32 = seen.split_whitespace().next().unwrap().parse().unwrap();
    assert!(count > 20, "{seen}");
    assert_eq!(pod["sandbox"]["attempt"], 0, "{pod}");
    let calls = lab
        .sh(&format!(
            "grep -c 'RunPodSandbox.*{id}' /var/log/containerd.log"
        ))
        .unwrap();
    assert_eq!(calls.text(), "1", "one sandbox, one ADD");
}

/// The kubelet gives its call of the runtime up, which kills the plugin.
fn a_pod_deleted_during_add_leaves_nothing(lab: &Lab) {
    let kube = lab.kube();
    let before = traces(lab);
    let taken = ["slot-00", "slot-01"];
    let pod = |name: &str| of_slots(Pod::sleeping(kube, name, &[], 2), &taken);
    // While the kubelet is asked, and while the state file is waited for.
    kube.kubelet("set delay-ms 4000").unwrap();
    kube.apply(&pod("short")).unwrap();
    plugin_runs(lab);
    kube.delete("short").unwrap();
    kube.kubelet("set delay-ms 0").unwrap();
    let locked = lock_state(lab, 4);
    kube.apply(&pod("short")).unwrap();
    plugin_runs(lab);
    kube.delete("short").unwrap();
    ok(locked.wait().unwrap());
    // Slots that never came to a pod wait for the next one, or for the agent after a minute.
    kube.run(&pod("next")).unwrap();
    let new = sandbox(kube, "next");
    assert_eq!(holders(lab), one(&new));
    kube.delete("next").unwrap();
    until("all is as before", || {
        let now = traces(lab);
        (now == before).then_some(()).ok_or(json!([now, before]))
    });
}

fn plugin_runs(lab: &Lab) {
    until("the plugin runs", || {
        let found = processes(lab, "/opt/cni/bin/podrail-cni") + &processes(lab, "podrail-cni");
        (!found.is_empty()).then_some(()).ok_or(Value::Null)
    });
}

/// Keeps the state file's write lock for so many seconds, from now on.
pub(crate) fn lock_state(lab: &Lab, seconds: u32) -> podrail_lab::Process<'_> {
    let script = format!(
        "printf '%s\\n' '.timeout 10000' 'BEGIN IMMEDIATE;' '.shell echo locked; sleep {seconds}' \
         'COMMIT;' | sqlite3 /var/lib/podrail/state.db"
    );
    let mut process = lab.cmd(["bash", "-c", &script]).spawn().unwrap();
    process.wait_for_output("locked").unwrap();
    process
}

/// What an attachment leaves anywhere: links and namespaces of the host, device files, waiting
/// slots, rows, descriptors of the agent.
pub(crate) fn traces(lab: &Lab) -> String {
    let look = "ip -j link | jq -r '.[].ifname'; ip netns | wc -l; ls /var/run/cdi; \
                ls /var/lib/podrail/waiting 2>/dev/null || true; \
                sqlite3 -readonly /var/lib/podrail/state.db 'select count(*) from bindings; \
                select count(*) from binding_rails; select count(*) from leases'; \
                { ls /proc/$1/fd 2>/dev/null || true; } | wc -l";
    let agent = processes(lab, "podrail-agent");
    let look = format!("set -- {agent}; {look}");
    let mut last = String::new();
    // Twice the same: the agent may be at work.
    until("the node is quiet", || {
        let now = lab.sh(&look).unwrap().text();
        let before = std::mem::replace(&mut last, now.clone());
        (before == now).then_some(now).ok_or(json!(before))
    })
}

/// CreateContainer before the runtime has the file: it is tried again until it is there.
fn a_container_waits_for_its_device_file(lab: &Lab) {
    let kube = lab.kube();
    kube.run(&stubborn(kube, "late", 1)).unwrap();
    let before = sandbox(kube, "late");
    let file = "/var/run/cdi/podrail.io-rail_*.json";
    lab.sh(&format!("cp {file} /run/; rm {file}")).unwrap();
    end_stubborn(lab);
    until("the container waits", || {
        let pod = kube.get("late").unwrap();
        let text = pod["containers"].to_string();
        let waits = text.contains("unresolvable CDI devices");
        waits.then_some(()).ok_or(pod["containers"].clone())
    });
    lab.sh(
        "cd /run; for f in podrail.io-rail_*.json; do cp $f /var/run/cdi/.new; \
            mv /var/run/cdi/.new /var/run/cdi/$f; rm $f; done",
    )
    .unwrap();
    kube.wait("late", "ready").unwrap();
    assert_eq!(sandbox(kube, "late"), before);
    let events = kube.get("late").unwrap()["events"].to_string();
    assert_eq!(events.matches("Allocated").count(), 1, "{events}");
}

/// Case 9, through the plugin.
fn a_killed_add_is_finished_by_the_next_call(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[], 2));
    namespaces(lab, &["job"]);
    let [add, check, del] = ["ADD", "CHECK", "DEL"].map(|command| pod.call(command, "job"));
    let steps = [
        "reserved:0",
        "create:1",
        "file:0",
        "rule:1",
        "attached:0",
        "cdi-temporary:0",
        "cdi:0",
        "cdi:1",
        "exposed:0",
        "ready:0",
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let said = add.clone().killed(step).run();
        assert_eq!(said.code, 128 + 9, "{step}: {said:?}");
        if number % 2 == 0 {
            add.ok();
            check.ok();
            assert_disjoint(lab, 1, 2);
        }
        del.ok();
        assert_eq!(status(lab), json!([]), "{step}");
        let files = lab.sh("ls -A /var/run/cdi").unwrap().text();
        assert_eq!(files, "", "{step}");
    }
    for step in ["remove:0", "detached:0", "concealed:0", "released:0"] {
        add.ok();
        let said = del.clone().killed(step).run();
        assert_eq!(said.code, 128 + 9, "{step}: {said:?}");
        del.ok();
        assert_eq!(status(lab), json!([]), "{step}");
    }
    remove_namespaces(lab, &["job"]);
}

/// A runtime that was restarted may ask for DEL while the plugin that it left still runs.
fn del_waits_for_the_add_of_its_sandbox(lab: &Lab) {
    let kube = lab.kube();
    let pod = Hand::admit(lab, &Pod::sleeping(kube, "job", &[], 2));
    namespaces(lab, &["job"]);
    let (add, del) = (pod.call("ADD", "job"), pod.call("DEL", "job"));
    // ADD has its lock and waits for the state file.
    let locked = lock_state(lab, 3);
    let running = add.cmd().spawn().unwrap();
    until("ADD has its lock", || {
        let left = lab.sh("ls /var/lib/podrail/pods; cat /proc/locks").unwrap();
        let uid = kube.get("job").unwrap()["uid"].as_str().unwrap().to_owned();
        let text = left.text();
        text.contains(&uid).then_some(()).ok_or(json!(text))
    });
    let said = del.run();
    let added = running.wait().unwrap();
    ok(locked.wait().unwrap());
    assert_eq!((said.code, added.status.shell_code()), (0, 0), "{said:?}");
    assert_eq!(status(lab), json!([]));
    // ADD does not hold anything yet: DEL finds nothing, and the next one finds it all.
    kube.kubelet("set delay-ms 1500").unwrap();
    let running = add.cmd().spawn().unwrap();
    plugin_runs(lab);
    del.ok();
    ok(running.wait().unwrap());
    kube.kubelet("set delay-ms 0").unwrap();
    del.ok();
    remove_namespaces(lab, &["job"]);
}

/// Over all that was started before on this node.
fn device_files_are_there_in_time(lab: &Lab) {
    let count = |pattern: &str| -> u32 {
        let script = format!("grep -c '{pattern}' /var/log/containerd.log || true");
        lab.sh(&script).unwrap().text().parse().unwrap()
    };
    let started = count("CreateContainer within sandbox.*returns container id");
    let missed = lab
        .sh("grep 'unresolvable CDI devices' /var/log/containerd.log | \
             grep -o 'attempt:[0-9]* ' | sort | uniq -c || true")
        .unwrap()
        .text();
    println!("{started} containers were started; device files missed, by attempt: [{missed}]");
}

#[test]
#[ignore = "minutes of a quiet machine: make test-long"]
fn races_end_right() {
    let Some(lab) = crate::hand::node() else {
        return;
    };
    crate::support::run_all(&lab, &LONG);
}
