//! What a container runtime says: standard input, the previous result in it, the environment.

use crate::told::words;
use podrail_cni::protocol::{self, Call, CniError, Code, Command, NetConf};
use podrail_core::networks;
use podrail_node::Markers;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;

/// Standard input, up to where a pod with rails is served.
pub(crate) fn stdin(input: &[u8]) {
    let conf = match protocol::parse(input) {
        Ok(conf) => conf,
        Err(error) => return refusal(&error, &["line", "cniVersion", "CNI version"]),
    };
    fields(&conf);
    if let Some(result) = served(&conf, input) {
        passed_on(&conf, &result);
    }
}

/// Any text as the result of the plugins before: it leaves as it came.
pub(crate) fn prev_result(input: &[u8]) {
    let conf = [
        br#"{"cniVersion":"1.0.0","name":"n","type":"podrail-cni","state":"/nonexistent/state.db","prevResult":"#,
        input,
        b"}",
    ]
    .concat();
    let is_json = serde_json::from_slice::<IgnoredAny>(input).is_ok();
    match protocol::parse(&conf) {
        Ok(parsed) => {
            let Some(result) = served(&parsed, &conf) else {
                assert!(!is_json, "nobody has rails at a place that is not there");
                return;
            };
            passed_on(&parsed, &result);
            let text = str::from_utf8(input).unwrap_or_default().trim_ascii();
            if is_json && text != "null" {
                assert_eq!(result, text);
            }
        }
        Err(error) => {
            // JSON that is read and thrown away may hold what texts may not.
            let is_text = str::from_utf8(input).is_ok();
            assert!(!(is_json && is_text), "refused: {error}: {}", error.details);
            refusal(&error, &["line", "CNI version", "cniVersion"]);
        }
    }
}

/// `KEY=VALUE`, each ended by a NUL, as the kernel has them.
pub(crate) fn environment(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    let vars: BTreeMap<&str, &str> = pairs.collect();
    let call = match Call::read(|name| vars.get(name).map(|value| (*value).to_owned())) {
        Ok(call) => call,
        Err(error) => return refusal(&error, &["CNI_COMMAND"]),
    };
    match call.sandbox() {
        Ok(sandbox) => assert_eq!(sandbox.as_str(), call.container),
        Err(error) => refusal(&error, &["CNI_CONTAINERID"]),
    }
    match call.cluster_interface() {
        Ok(interface) => assert_eq!(interface.as_str(), call.interface),
        Err(error) => refusal(&error, &["CNI_IFNAME"]),
    }
    match call.args.pod() {
        Ok(Some(pod)) => assert_eq!(Some(&pod.uid), call.args.uid().as_ref()),
        Ok(None) => assert_eq!(call.args.namespace, None),
        Err(error) => refusal(&error, &["K8S_POD_UID", "K8S_POD_NAME"]),
    }
}

/// Every field that a call may ask for.
fn fields(conf: &NetConf) {
    let lenient = conf.lenient_settings();
    assert_eq!(lenient.state, conf.state());
    match conf.settings() {
        Ok(settings) => assert_eq!(settings, lenient),
        Err(error) => refusal(&error, &["network configuration: "]),
    }
    match conf.networks() {
        Ok(text) => _ = text.map(|text| networks::parse(&text)),
        Err(error) => refusal(&error, &["runtimeConfig"]),
    }
    if let Err(error) = conf.valid_attachments() {
        refusal(
            &error,
            &["cni.dev/valid-attachments", "cni.dev/attachments"],
        );
    }
}

/// ADD for a pod that has no rails; none where somebody could have some.
fn served(conf: &NetConf, input: &[u8]) -> Option<String> {
    let state = conf.state();
    let nobody = Markers::at(state.parent()?).wants_rails(None);
    if !matches!(nobody, Ok(false)) {
        return None;
    }
    let add = |name: &str| (name == "CNI_COMMAND").then(|| "ADD".to_owned());
    let call = Call::read(add).expect("ADD is a command");
    assert_eq!(call.command, Command::Add);
    let answer = podrail_cni::run(&call, input).map_err(|(error, _)| error);
    let answer = answer.expect("a pod without rails is never refused");
    assert!(answer.notes.is_empty());
    Some(answer.result)
}

fn passed_on(conf: &NetConf, result: &str) {
    match conf.previous() {
        Some(previous) => assert_eq!(result, previous),
        None => {
            let result: Value = serde_json::from_str(result).expect("our own result is JSON");
            assert_eq!(result["cniVersion"].as_str(), Some(conf.version()));
        }
    }
}

/// The words, and the JSON that the runtime reads.
fn refusal(error: &CniError, names: &[&str]) {
    words(&format!("{}\n{}", error.message, error.details), names);
    assert!(!error.message.is_empty());
    let printed: Value = serde_json::from_str(&error.to_json("1.0.0")).expect("an answer is JSON");
    assert_eq!(printed["code"], error.code as u32);
    let codes = [Code::Decode, Code::Version, Code::Config, Code::Environment];
    assert!(codes.contains(&error.code), "{error:?}");
}
