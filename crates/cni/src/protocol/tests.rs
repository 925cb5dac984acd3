//! The protocol as runtimes speak it.

use super::*;
use std::collections::BTreeMap;

fn call(vars: &[(&str, &str)]) -> Result<Call, CniError> {
    let vars: BTreeMap<&str, &str> = vars.iter().copied().collect();
    Call::read(|name| vars.get(name).map(|value| (*value).to_owned()))
}

fn conf(text: &str) -> NetConf {
    parse(text.as_bytes()).unwrap()
}

#[test]
fn the_environment_of_containerd() {
    let args = "K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=8c1f-9;IgnoreUnknown=1;\
                K8S_POD_NAMESPACE=default;K8S_POD_NAME=job-0";
    let call = call(&[
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/cni-1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", args),
    ])
    .unwrap();
    assert_eq!(call.command, Command::Add);
    assert_eq!(call.sandbox().unwrap().as_str(), "c1");
    let pod = call.args.pod().unwrap().unwrap();
    assert_eq!(
        (pod.to_string(), pod.uid.as_str()),
        ("default/job-0".into(), "8c1f-9")
    );
}

#[test]
fn a_gone_namespace_is_none_and_a_runtime_without_pods_is_no_error() {
    let call = call(&[
        ("CNI_COMMAND", "DEL"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", ""),
    ])
    .unwrap();
    assert_eq!(call.netns, None);
    assert_eq!(call.args.pod(), Ok(None));
    assert_eq!(call.args.uid(), None);
    let podman = self::call(&[("CNI_COMMAND", "ADD"), ("CNI_ARGS", "K8S_POD_NAME=web")]).unwrap();
    assert_eq!(podman.args.pod(), Ok(None));
    let error = call.required_netns().unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::Environment, "CNI_NETNS is missing")
    );
}

#[test]
fn odd_environments_are_named() {
    let text = |vars: &[(&str, &str)]| match call(vars) {
        Err(error) => error.message,
        Ok(call) => match (call.sandbox(), call.args.pod()) {
            (Err(error), _) | (_, Err(error)) => error.message,
            (Ok(_), Ok(_)) => "ok".into(),
        },
    };
    assert_eq!(text(&[]), "CNI_COMMAND is \"\"");
    assert_eq!(text(&[("CNI_COMMAND", "add")]), "CNI_COMMAND is \"add\"");
    let id = text(&[("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "../x")]);
    assert!(
        id.starts_with("CNI_CONTAINERID: sandbox id \"../x\" is not valid"),
        "{id}"
    );
    let half = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c"),
        ("CNI_ARGS", "K8S_POD_NAME=a;K8S_POD_UID=u"),
    ];
    assert_eq!(text(&half), "CNI_ARGS: K8S_POD_NAMESPACE is missing");
    let bad = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c"),
        (
            "CNI_ARGS",
            "K8S_POD_UID=../etc;K8S_POD_NAME=a;K8S_POD_NAMESPACE=b",
        ),
    ];
    assert!(
        text(&bad).starts_with("CNI_ARGS: K8S_POD_UID: pod UID"),
        "{}",
        text(&bad)
    );
}

#[test]
fn the_previous_result_leaves_as_it_came() {
    let previous =
        r#"{ "cniVersion":"1.0.0",  "ips":[{"address":"10.0.0.5/24","x":1.50}], "b":1,"a":2 }"#;
    let conf = conf(&format!(
        r#"{{"cniVersion":"1.0.0","name":"n","prevResult":{previous}}}"#
    ));
    assert_eq!(conf.previous(), Some(previous));
    assert_eq!(conf.version(), "1.0.0");
}

#[test]
fn settings_have_defaults_and_no_field_is_dropped() {
    let plain = conf(
        r#"{"cniVersion":"0.3.1","name":"n","type":"podrail-cni","prevResult":null,
        "capabilities":{"io.kubernetes.cri.pod-annotations":true},"cni.dev/new":1}"#,
    );
    assert_eq!(plain.settings(), Ok(Settings::default()));
    assert_eq!(plain.previous(), None);
    let other = conf(
        r#"{"cniVersion":"1.0.0","state":"/a/s.db","cdi":"/c","podResources":"/p","checkpoint":"/k"}"#,
    );
    let settings = other.settings().unwrap();
    assert_eq!(settings.state, other.state());
    assert_eq!(settings.cdi.to_str(), Some("/c"));
    let odd = conf(r#"{"cniVersion":"1.0.0","cdi":"/c","state":7,"later":true}"#);
    let lenient = odd.lenient_settings();
    assert_eq!(
        (lenient.cdi.to_str(), lenient.state),
        (Some("/c"), Settings::default().state)
    );
    let message = |text: &str| conf(text).settings().unwrap_err().message;
    assert_eq!(
        message(r#"{"cniVersion":"1.0.0","sate":"/x"}"#),
        "network configuration: sate: unknown field"
    );
    assert_eq!(
        message(r#"{"cniVersion":"1.0.0","state":"x"}"#),
        "network configuration: state: expected an absolute path"
    );
}

#[test]
fn annotations_arrive_by_capability() {
    let networks = |runtime: &str| {
        conf(&format!(
            r#"{{"cniVersion":"1.0.0","runtimeConfig":{runtime}}}"#
        ))
        .networks()
    };
    let given = r#"{"io.kubernetes.cri.pod-annotations":{"a":"b","k8s.v1.cni.cncf.io/networks":"n0,n1"},"ips":[]}"#;
    assert_eq!(networks(given), Ok(Some("n0,n1".into())));
    assert_eq!(networks("{}"), Ok(None));
    assert_eq!(networks("null"), Ok(None));
    assert_eq!(
        networks(r#"{"io.kubernetes.cri.pod-annotations":null}"#),
        Ok(None)
    );
    let error = networks(r#"{"io.kubernetes.cri.pod-annotations":{"a":1}}"#).unwrap_err();
    assert_eq!(error.code, Code::Config);
    assert!(
        error.message.contains("io.kubernetes.cri.pod-annotations"),
        "{}",
        error.message
    );
}

#[test]
fn no_list_of_valid_attachments_is_not_an_empty_one() {
    let valid = |field: &str| {
        conf(&format!(r#"{{"cniVersion":"1.1.0"{field}}}"#))
            .valid_attachments()
            .unwrap()
    };
    assert_eq!(valid(""), None);
    assert_eq!(valid(r#","cni.dev/valid-attachments":[]"#), Some(vec![]));
    let one =
        valid(r#","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#).unwrap();
    assert_eq!(one[0].container, "c1");
}

#[test]
fn what_cannot_be_read_is_said() {
    let error = |text: &str| parse(text.as_bytes()).unwrap_err();
    for text in ["", "[]", "x", "{}", r#"{"cniVersion":1}"#, "\u{feff}{}"] {
        assert_eq!(error(text).code, Code::Decode, "{text:?}");
    }
    let old = error(r#"{"cniVersion":"0.1.0"}"#);
    assert_eq!(old.code, Code::Version);
    assert_eq!(old.details, "supported: 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0");
    assert_eq!(
        old.to_json("1.0.0"),
        r#"{"cniVersion":"1.0.0","code":1,"msg":"podrail: CNI version \"0.1.0\" is not supported","details":"supported: 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"}"#
    );
}

#[test]
fn versions() {
    assert_eq!(
        version_answer(),
        r#"{"cniVersion":"1.1.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}"#
    );
}

#[test]
fn words_of_others_are_cut_and_move_no_cursor() {
    let long = "\u{1b}[2J".repeat(10_000);
    let long = serde_json::to_string(&long).unwrap();
    let text = |error: CniError| error.to_json("1.0.0");
    let odd = conf(&format!(
        r#"{{"cniVersion":"1.0.0","runtimeConfig":{long}}}"#
    ));
    let unknown = conf(&format!(r#"{{"cniVersion":"1.0.0",{long}:1}}"#));
    for answer in [
        text(odd.networks().unwrap_err()),
        text(unknown.settings().unwrap_err()),
        text(parse(long.as_bytes()).unwrap_err()),
    ] {
        assert!(answer.len() < 1000, "{} bytes", answer.len());
        let msg: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert!(!msg["msg"].as_str().unwrap().contains('\u{1b}'), "{answer}");
    }
}
