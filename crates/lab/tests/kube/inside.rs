//! What a container sees of its rails, and what it should see.

use crate::support::{ok, status};
use podrail_lab::kube::Pod;
use podrail_lab::{Lab, Output};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long something may take to come about on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// What every pod has without Podrail.
const DEFAULT_ROUTE: &str = "default via 10.244.0.1 dev eth0";

/// Looks at devices, interfaces, routes and the environment; one line each.
const LOOK: &str = r#"
echo "uid $(id -u)"
echo "nodes $(cd /dev/infiniband 2>/dev/null && echo *)"
echo "interfaces $(cd /sys/class/net && echo *)"
echo "list ${LIST-}"
echo "info ${INFO-}"
echo "route $(ip -4 route show default)"
echo "eth0 $(ip -4 -br addr show eth0 | awk '{ print $3 }')"
"#;

/// What a container sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    /// Names in `/dev/infiniband`.
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) interfaces: BTreeSet<String>,
    /// `PCIDEVICE_<RESOURCE>`.
    pub(crate) list: String,
    /// `PCIDEVICE_<RESOURCE>_INFO`.
    pub(crate) info: String,
    /// Default routes.
    pub(crate) route: String,
    /// Address of `eth0`.
    pub(crate) eth0: String,
}

/// Runs a bash script in a container of a pod of the default namespace.
pub(crate) fn exec(lab: &Lab, pod: &str, container: &str, script: &str) -> Output {
    let key = format!("default/{pod}");
    let argv = [
        "standin-kubelet",
        "exec",
        &key,
        "-c",
        container,
        "--",
        "bash",
        "-c",
        script,
    ];
    lab.cmd(argv).timeout(PATIENCE).run().unwrap()
}

/// Looks around in a container; slots are counted as `podrail.io/rail`.
pub(crate) fn see(lab: &Lab, pod: &str, container: &str) -> Seen {
    see_resource(lab, pod, container, "PODRAIL_IO_RAIL")
}

/// Looks around in a container, where the resource has this name in the environment.
pub(crate) fn see_resource(lab: &Lab, pod: &str, container: &str, resource: &str) -> Seen {
    let look = LOOK
        .replace("LIST", &format!("PCIDEVICE_{resource}"))
        .replace("INFO", &format!("PCIDEVICE_{resource}_INFO"));
    let mut seen = Seen::default();
    for line in ok(exec(lab, pod, container, &look)).lines() {
        let (key, value) = line.split_once(' ').unwrap();
        let names = || value.split_whitespace().map(str::to_owned).collect();
        match key {
            "uid" => seen.uid = value.into(),
            "nodes" => seen.nodes = names(),
            "interfaces" => seen.interfaces = names(),
            "list" => seen.list = value.into(),
            "info" => seen.info = value.into(),
            "route" => seen.route = value.trim_end().into(),
            "eth0" => seen.eth0 = value.into(),
            other => panic!("{other}"),
        }
    }
    seen
}

impl Seen {
    /// Exactly the devices of these rails, in this order in the environment.
    pub(crate) fn assert_devices(&self, lab: &Lab, rails: &[usize]) {
        let (ports, uverbs) = (lab.shape().rails(), uverbs(lab));
        let own: Vec<_> = rails.iter().map(|rail| &ports[*rail]).collect();
        let mut nodes: BTreeSet<String> =
            own.iter().map(|port| uverbs[&port.rdma].clone()).collect();
        let mut info = serde_json::Map::new();
        for port in &own {
            info.insert(
                port.pci.clone(),
                json!({
                    "generic": { "deviceID": port.pci },
                    "rdma": {
                        "rdma_cm": "/dev/infiniband/rdma_cm",
                        "rdma_dev": port.rdma,
                        "uverbs": format!("/dev/infiniband/{}", uverbs[&port.rdma]),
                    },
                }),
            );
        }
        if !rails.is_empty() {
            nodes.insert("rdma_cm".into());
        }
        let list: Vec<&str> = own.iter().map(|port| port.pci.as_str()).collect();
        assert_eq!(self.nodes, nodes, "{rails:?}");
        assert_eq!(self.list, list.join(","), "{rails:?}");
        match rails.is_empty() {
            true => assert_eq!(self.info, ""),
            false => assert_eq!(
                serde_json::from_str::<Value>(&self.info).unwrap(),
                Value::Object(info)
            ),
        }
    }

    /// Exactly these rail interfaces beside the cluster's own, which is as it is in every pod.
    pub(crate) fn assert_interfaces<T: ToString>(&self, lab: &Lab, pod: &str, rails: &[T]) {
        let names = rails.iter().map(ToString::to_string);
        let all: BTreeSet<String> = names.chain(["eth0".into(), "lo".into()]).collect();
        assert_eq!(self.interfaces, all);
        assert_eq!(self.route, DEFAULT_ROUTE);
        let addresses = &lab.kube().get(pod).unwrap()["addresses"];
        assert_eq!(addresses, &json!([self.eth0.split('/').next()]));
    }
}

/// Names of interfaces as rails have them without an annotation.
pub(crate) fn plain_names(rails: &[usize]) -> Vec<String> {
    rails
        .iter()
        .map(|rail| format!("net{}", rail + 1))
        .collect()
}

/// The uverbs device of each RDMA device of the node.
pub(crate) fn uverbs(lab: &Lab) -> BTreeMap<String, String> {
    let script =
        "cd /sys/class/infiniband_verbs && for u in uverbs*; do echo $(<$u/ibdev) $u; done";
    let text = ok(lab.sh(script).unwrap());
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(rdma, uverbs)| (rdma.to_owned(), uverbs.to_owned()))
        .collect()
}

/// What `podrail status` says of a pod's sandbox; it has exactly one.
pub(crate) fn held(lab: &Lab, pod: &str) -> Value {
    let all = status(lab);
    let own = |entry: &&Value| entry["pod"]["name"] == pod;
    let found: Vec<&Value> = all.as_array().unwrap().iter().filter(own).collect();
    assert_eq!(found.len(), 1, "{pod}: {all}");
    found[0].clone()
}

/// Rails of a pod, by index.
pub(crate) fn rails_of(lab: &Lab, pod: &str) -> Vec<usize> {
    let held = held(lab, pod);
    let rails = held["rails"].as_array().unwrap().iter();
    rails
        .map(|rail| usize::try_from(rail["index"].as_u64().unwrap()).unwrap())
        .collect()
}

/// One line of `podrail map`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mapped {
    pub(crate) interface: String,
    pub(crate) address: String,
    pub(crate) device: String,
    pub(crate) index: String,
}

/// What `podrail map` says in a container that has it, once the kernel has entered all GIDs, which
/// it does a moment after the addresses.
pub(crate) fn map(lab: &Lab, pod: &str, container: &str) -> Vec<Mapped> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = ok(exec(lab, pod, container, "podrail map"));
        if !text.contains("none") {
            return text.lines().map(mapped).collect();
        }
        assert!(Instant::now() < deadline, "GIDs are missing still: {text}");
    }
}

fn mapped(line: &str) -> Mapped {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let [interface, address, device, index] = <[String; 4]>::try_from(words).unwrap();
    Mapped {
        interface,
        address,
        device,
        index,
    }
}

/// A pod with the program `podrail` in its first container. An image of a user would bring it; here
/// it is the node's, with the one library that the image lacks.
pub(crate) fn with_program(pod: Pod) -> Pod {
    let files = [
        ("podrail", "/usr/bin/podrail"),
        ("libgcc", "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1"),
    ];
    let volumes = files.map(|(name, path)| json!({ "name": name, "hostPath": { "path": path } }));
    let mounts =
        files.map(|(name, path)| json!({ "name": name, "mountPath": path, "readOnly": true }));
    pod.with("/spec/volumes", json!(volumes))
        .with("/spec/containers/0/volumeMounts", json!(mounts))
}

/// Waits until what the kubelet says of a pod (its own message, its containers', its events) has
/// all these words. It must not be ready.
pub(crate) fn wait_for_words(lab: &Lab, pod: &str, words: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = lab.kube().get(pod).unwrap();
        assert_eq!(state["ready"], false, "it started: {state}");
        let text = state.to_string();
        if words.iter().all(|word| text.contains(word)) {
            return;
        }
        assert!(Instant::now() < deadline, "{words:?} are not in {state:#}");
    }
}
