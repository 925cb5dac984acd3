//! Pods of several containers: each has its own slots, and rails next to its own GPUs.

use crate::inside::{PATIENCE, held, plain_names, rails_of, see};
use crate::pods::halves;
use crate::support::ok;
use podrail_lab::kube::Pod;
use podrail_lab::{Containerd, Lab};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A container that sleeps, with so many rails and GPUs.
fn sleeper(name: &str, rails: usize, gpus: usize) -> Value {
    container(name, rails, gpus, json!(["sleep", "1000000"]))
}

fn container(name: &str, rails: usize, gpus: usize, command: Value) -> Value {
    let wanted = [("podrail.io/rail", rails), ("nvidia.com/gpu", gpus)];
    let limits: BTreeMap<&str, usize> = wanted.into_iter().filter(|(_, n)| *n > 0).collect();
    json!({
        "name": name,
        "image": Containerd::IMAGE,
        "command": command,
        "resources": { "limits": limits },
    })
}

/// An init container that ends well only if it sees so many uverbs devices, and its environment
/// names as many rails or fewer.
fn init(name: &str, rails: usize) -> Value {
    let script = format!(
        "set -- /dev/infiniband/uverbs*; echo sees $* and ${{PCIDEVICE_PODRAIL_IO_RAIL}}; \
         [ -c $1 ] && [ $# = {rails} ] && [ -n \"${{PCIDEVICE_PODRAIL_IO_RAIL}}\" ] && \
         [ -e /sys/class/net/eth0 ]"
    );
    container(name, rails, 0, json!(["bash", "-c", script]))
}

/// A pod of these containers; GPUs by container.
fn pod(lab: &Lab, name: &str, containers: &[Value], gpus: &[(&str, &[usize])]) -> Pod {
    let kube = lab.kube();
    let uuids = kube.gpus();
    let chosen = gpus.iter().map(|(container, gpus)| {
        let ids: Vec<&String> = gpus.iter().map(|gpu| &uuids[*gpu]).collect();
        ((*container).to_owned(), json!({ "nvidia.com/gpu": ids }))
    });
    Pod::sleeping(kube, name, &[], 0)
        .with("/spec/containers", json!(containers))
        .with("/podrail.test~1devices", Value::Object(chosen.collect()))
}

/// Pods of all kinds of containers, and beside them one whose four rails are two whole NICs, with
/// four addresses (case 10, 27).
pub(crate) fn several(lab: &Lab) {
    let kube = lab.kube();
    let mut sidecar = sleeper("proxy", 1, 0);
    sidecar["restartPolicy"] = json!("Always");
    let main = [
        sleeper("left", 2, 1),
        sleeper("right", 3, 2),
        sleeper("network", 1, 0),
        sleeper("compute", 0, 1),
    ];
    let gpus: [(&str, &[usize]); 3] = [("left", &[0]), ("right", &[6, 7]), ("compute", &[1])];
    let mixed = pod(lab, "mixed", &main, &gpus);
    let first = json!([sidecar, init("prepare", 3)]);
    kube.apply(&mixed.with("/spec/initContainers", first))
        .unwrap();
    kube.apply(&Pod::sleeping(kube, "four", &[2, 3, 4, 5], 4))
        .unwrap();
    for (name, first, main) in INIT {
        let pod = pod(lab, name, &[sleeper("main", main, 0)], &[]);
        let first = json!([init("prepare", first)]);
        kube.apply(&pod.with("/spec/initContainers", first))
            .unwrap();
    }
    each_has_its_own(lab);
    whole_nics(lab);
    init_containers_saw_theirs(lab);
}

/// Devices and environment of each container are its own, near its own GPUs; the pod's interfaces
/// are all containers'. One with slots and no GPU (and a sidecar, for the pod's whole life) is
/// served for the GPUs of the pod; one with a GPU and no slots has no device.
fn each_has_its_own(lab: &Lab) {
    lab.kube().wait("mixed", "ready").unwrap();
    let rails = rails_of(lab, "mixed");
    assert_eq!(rails.len(), 7);
    assert!(
        rails.iter().all(|rail| *rail < 4 || *rail >= 12),
        "{rails:?}"
    );
    let mut all: Vec<usize> = vec![];
    for (container, count, range) in [
        ("left", 2, 0..4),
        ("right", 3, 12..16),
        ("network", 1, 0..16),
        ("proxy", 1, 0..16),
        ("compute", 0, 0..16),
    ] {
        let seen = see(lab, "mixed", container);
        let own = listed_rails(lab, &seen.list);
        assert_eq!(own.len(), count, "{container}: {own:?}");
        assert!(
            own.iter().all(|rail| range.contains(rail)),
            "{container}: {own:?}"
        );
        seen.assert_devices(lab, &own);
        seen.assert_interfaces(lab, "mixed", &plain_names(&rails));
        all.extend(own);
    }
    all.sort_unstable();
    assert_eq!(all, rails);
}

/// The rails of a list of PCI functions.
fn listed_rails(lab: &Lab, list: &str) -> Vec<usize> {
    let ports = lab.shape().rails();
    let place = |pci: &str| ports.iter().position(|port| port.pci == pci);
    list.split(',').filter_map(place).collect()
}

fn whole_nics(lab: &Lab) {
    lab.kube().wait("four", "ready").unwrap();
    let rails = rails_of(lab, "four");
    assert_eq!(halves(&rails), Vec::<usize>::new(), "{rails:?}");
    let near = rails.iter().filter(|rail| (4..8).contains(*rail)).count();
    assert_eq!((near, rails.len()), (2, 4), "{rails:?}");
    assert!(rails.iter().all(|rail| (4..12).contains(rail)), "{rails:?}");
    let held = held(lab, "four");
    let addresses = held["rails"].as_array().unwrap().iter();
    let addresses = addresses.flat_map(|rail| rail["addresses"].as_array().unwrap());
    assert_eq!(addresses.count(), 4);
}

/// Pods with a plain init container: name, its rails, those of the main container.
const INIT: [(&str, usize, usize); 2] = [("same", 1, 1), ("alone", 2, 0)];

/// `PodResources` leaves plain init containers out. One with as many slots as the main container
/// has the same ones; one with more (in the pod `mixed`), and one of a pod whose main container has
/// none, starts too.
fn init_containers_saw_theirs(lab: &Lab) {
    let kube = lab.kube();
    for (name, first, main) in INIT {
        kube.wait(name, "ready").unwrap();
        let state = kube.get(name).unwrap();
        assert_eq!(state["containers"][0]["exit_code"], 0, "{state}");
        let rails = rails_of(lab, name);
        assert_eq!(rails.len(), first.max(main), "{name}");
        assert_eq!(halves(&rails).len(), rails.len() % 2, "{name}: {rails:?}");
        let seen = see(lab, name, "main");
        let own = listed_rails(lab, &seen.list);
        assert_eq!(own.len(), main, "{name}");
        seen.assert_devices(lab, &own);
        seen.assert_interfaces(lab, name, &plain_names(&rails));
    }
}

/// GPUs that are shared in time have ids with `::N`; ids that nobody knows are as none, and the
/// runtime's log has a note.
pub(crate) fn odd_gpu_ids(lab: &Lab) {
    let kube = lab.kube();
    let gpu = &kube.gpus()[6];
    let ids = [format!("{gpu}::0"), format!("{gpu}::3"), "tile-17".into()];
    kube.kill("standin-gpu-plugin").unwrap();
    kube.wait_slots("nvidia.com/gpu", 0).unwrap();
    start_gpu_plugin(lab, &ids);
    kube.wait_slots("nvidia.com/gpu", ids.len()).unwrap();
    let choose = |name: &str, id: &str, rails| {
        let pod = pod(lab, name, &[sleeper("main", rails, 1)], &[]);
        let devices = json!({ "main": { "nvidia.com/gpu": [id] } });
        pod.with("/podrail.test~1devices", devices)
    };
    kube.apply(&choose("slice", &ids[1], 1)).unwrap();
    kube.apply(&choose("tile", &ids[2], 2)).unwrap();
    kube.wait("slice", "ready").unwrap();
    kube.wait("tile", "ready").unwrap();
    let rails = rails_of(lab, "slice");
    assert!(rails.len() == 1 && rails[0] >= 12, "{rails:?}");
    let rails = rails_of(lab, "tile");
    assert_eq!(halves(&rails), Vec::<usize>::new(), "{rails:?}");
    let log = lab.containerd().log().unwrap();
    let mut notes = log.lines().filter(|line| line.contains("podrail-cni: "));
    assert!(
        notes.any(|note| note.contains("tile-17")),
        "no note in {log}"
    );
    kube.delete("slice").unwrap();
    kube.delete("tile").unwrap();
    kube.kill("standin-gpu-plugin").unwrap();
    kube.wait_slots("nvidia.com/gpu", 0).unwrap();
    kube.start_gpus().unwrap();
}

fn start_gpu_plugin(lab: &Lab, ids: &[String]) {
    let script = format!(
        "setsid -f standin-gpu-plugin {} >>/run/log/standin-gpu-plugin 2>&1 </dev/null",
        ids.join(" ")
    );
    let output = lab.cmd(["bash", "-c", &script]).timeout(PATIENCE).run();
    ok(output.unwrap());
}
