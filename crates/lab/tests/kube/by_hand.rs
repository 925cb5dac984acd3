//! The plugin called by hand as a runtime calls it, on pods that a runtime has attached.

use crate::inside::{held, rails_of};
use crate::support::{ok, status};
use podrail_lab::{Lab, Output};
use serde_json::{Value, json};

/// What the plugin before has answered, in a spelling that no program would write again as it is.
const PREVIOUS: &str =
    r#"{ "cniVersion":"1.0.0" ,"interfaces":[],"ips":[ {"address":"10.244.0.9/24"}],"x":1e3}"#;

/// A pod's sandbox as the runtime knows it.
struct Sandbox {
    id: String,
    netns: String,
    uid: String,
    name: String,
}

impl Sandbox {
    fn of(lab: &Lab, pod: &str) -> Self {
        let held = held(lab, pod);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            id: text(&held["sandbox"]),
            netns: text(&held["netns"]),
            uid: text(&held["pod"]["uid"]),
            name: pod.to_owned(),
        }
    }

    /// The namespace as `ip` calls it.
    fn netns_name(&self) -> &str {
        self.netns.rsplit('/').next().unwrap()
    }
}

/// Standard input: this version, and more fields.
fn conf(version: &str, more: &str) -> String {
    format!(
        r#"{{"cniVersion":"{version}","name":"cluster","type":"podrail-cni","capabilities":{{"io.kubernetes.cri.pod-annotations":true}}{more}}}"#
    )
}

fn with_previous(version: &str) -> String {
    conf(version, &format!(r#","prevResult":{PREVIOUS}"#))
}

/// One call about a sandbox.
fn call(lab: &Lab, command: &str, sandbox: &Sandbox, netns: &str, input: &str) -> Output {
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};K8S_POD_UID={};\
         K8S_POD_INFRA_CONTAINER_ID={}",
        sandbox.name, sandbox.uid, sandbox.id
    );
    lab.cmd(["/opt/cni/bin/podrail-cni"])
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", &sandbox.id)
        .env("CNI_NETNS", netns)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_ARGS", &args)
        .env("CNI_PATH", "/opt/cni/bin")
        .stdin(input)
        .run()
        .unwrap()
}

/// One call about the node.
fn call_node(lab: &Lab, command: &str, input: &str) -> Output {
    lab.cmd(["/opt/cni/bin/podrail-cni"])
        .env("CNI_COMMAND", command)
        .env("CNI_PATH", "/opt/cni/bin")
        .stdin(input)
        .run()
        .unwrap()
}

/// The error of a call that must have failed.
fn error(output: &Output) -> Value {
    assert_ne!(output.status.shell_code(), 0, "{}", output.text());
    serde_json::from_str(&output.text()).unwrap()
}

/// ADD again changes nothing and answers the same; CHECK tells what is missing, and ADD repairs it.
/// Case 16.
pub(crate) fn add_and_check(lab: &Lab, pod: &str, interface: &str) {
    let (sandbox, before) = (Sandbox::of(lab, pod), status(lab));
    let input = with_previous("1.0.0");
    let add = || ok(call(lab, "ADD", &sandbox, &sandbox.netns, &input));
    let check = || call(lab, "CHECK", &sandbox, &sandbox.netns, &input);
    assert_eq!(add(), PREVIOUS);
    assert_eq!(status(lab), before);
    assert_eq!(ok(check()), "");
    let rail = rails_of(lab, pod)[0];
    let netns = sandbox.netns_name();
    ok(lab
        .sh(&format!("ip -n {netns} link del {interface}"))
        .unwrap());
    let error = error(&check());
    assert_eq!(error["code"], 104);
    let details = error["details"].as_str().unwrap();
    assert!(details.contains(&format!("rail {rail}")), "{details}");
    assert!(details.contains(interface), "{details}");
    add();
    assert_eq!(ok(check()), "");
    assert_eq!(status(lab), before);
}

/// GC takes what the runtime does not name, with interfaces and files, and leaves the rest; then
/// DEL as often as a runtime likes. Case 8, 15, 17.
pub(crate) fn collected(lab: &Lab, stays: &str, goes: &str) {
    let kept = held(lab, stays);
    let (stays, goes) = (Sandbox::of(lab, stays), Sandbox::of(lab, goes));
    let valid = json!([{ "containerID": stays.id, "ifname": "eth0" }]);
    // No list is not an empty one.
    ok(call_node(lab, "GC", &conf("1.1.0", "")));
    assert_eq!(status(lab).as_array().unwrap().len(), 2);
    let list = format!(r#","cni.dev/valid-attachments":{valid}"#);
    ok(call_node(lab, "GC", &conf("1.1.0", &list)));
    assert_eq!(status(lab), json!([kept]));
    let files = ok(lab.sh("cat /var/run/cdi/podrail*").unwrap());
    assert!(files.contains(&stays.id), "{files}");
    assert!(!files.contains(&goes.id), "{files}");
    let input = with_previous("1.1.0");
    ok(call(lab, "CHECK", &stays, &stays.netns, &input));
    let links = format!("ip -n {} -br link", goes.netns_name());
    let links = ok(lab.sh(&links).unwrap());
    assert!(!links.contains("net"), "an interface is left: {links}");
    for sandbox in [&goes, &stays] {
        ok(call(lab, "DEL", sandbox, &sandbox.netns, &input));
        for _ in 0..2 {
            ok(call(lab, "DEL", sandbox, "", &conf("1.1.0", "")));
        }
    }
    assert_eq!(status(lab), json!([]));
}

/// Every version since 0.3.0 is spoken, others are refused with code 1; STATUS says yes whatever is
/// broken, since a no would make the whole node NotReady. Case 17.
pub(crate) fn versions_and_status(lab: &Lab, pod: &str) {
    let (kube, before) = (lab.kube(), status(lab));
    let sandbox = Sandbox::of(lab, pod);
    let add = |version: &str| {
        call(
            lab,
            "ADD",
            &sandbox,
            &sandbox.netns,
            &with_previous(version),
        )
    };
    let versions: Value =
        serde_json::from_str(&ok(call_node(lab, "VERSION", &conf("1.0.0", "")))).unwrap();
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let all = versions["supportedVersions"].as_array().unwrap();
        assert!(all.iter().any(|known| known == version), "{versions}");
        assert_eq!(ok(add(version)), PREVIOUS);
    }
    for version in ["0.2.0", "2.0.0"] {
        assert_eq!(error(&add(version))["code"], 1);
    }
    kube.kill("podrail-agent").unwrap();
    let healthy = |what: &str| {
        ok(lab.sh(what).unwrap());
        assert_eq!(
            ok(call_node(lab, "STATUS", &conf("1.1.0", ""))),
            "",
            "{what}"
        );
    };
    healthy("mv /var/lib/podrail /var/lib/podrail.away");
    healthy("mkdir -p /var/lib/podrail/state.db");
    healthy("rm -r /var/lib/podrail; mv /var/lib/podrail.away /var/lib/podrail");
    kube.start_agent().unwrap();
    kube.wait_slots("podrail.io/rail", 16).unwrap();
    assert_eq!(status(lab), before);
}
