//! Manifests as people write them.

use super::{Object, Pod, RestartPolicy, parse};

fn pod(text: &str) -> Pod {
    match parse(text).unwrap().objects.remove(0) {
        Object::Pod(pod) => *pod,
        other => panic!("no pod: {other:?}"),
    }
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: job
  annotations: { k8s.v1.cni.cncf.io/networks: "rail-0,rail-1" }
spec:
  restartPolicy: Never
  nodeSelector: { kubernetes.io/hostname: "10.0.0.1" }
  initContainers:
    - { name: prepare, image: busybox, resources: { limits: { podrail.io/rail: "2" } } }
    - { name: proxy, image: busybox, restartPolicy: Always }
  containers:
    - name: main
      image: busybox
      command: [sleep, infinity]
      securityContext: { runAsUser: 1000, capabilities: { add: [IPC_LOCK] } }
      resources: { limits: { podrail.io/rail: 16, cpu: 500m, memory: 1Gi } }
      volumeMounts: [{ name: tools, mountPath: /opt, readOnly: true }]
  volumes:
    - { name: tools, configMap: { name: tools, defaultMode: 0555 } }
"#;

#[test]
fn a_pod_of_every_used_field_is_read() {
    let pod = pod(POD);
    assert_eq!(pod.metadata.key(), "default/job");
    assert_eq!(pod.spec.restart_policy, RestartPolicy::Never);
    assert!(pod.is_plain_init("prepare") && !pod.is_plain_init("proxy"));
    let main = &pod.spec.containers[0];
    assert_eq!(main.extended(), [("podrail.io/rail".to_owned(), 16)].into());
    assert_eq!(main.security_context.run_as_user, Some(1000));
    let volume = pod.spec.volumes[0].config_map.as_ref().unwrap();
    assert_eq!(volume.default_mode, Some(0o555));
}

#[test]
fn skipped_fields_are_named() {
    assert_eq!(parse(POD).unwrap().notes, ["spec.nodeSelector is skipped"]);
}

#[test]
fn several_documents_and_json_are_read() {
    let two = format!("---\nkind: ConfigMap\nmetadata: {{ name: tools }}\n---{POD}");
    assert_eq!(parse(&two).unwrap().objects.len(), 2);
    let json = r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c"}]},
        "podrail.test/devices":{"c":{"nvidia.com/gpu":["GPU-1"]}}}"#;
    assert_eq!(pod(json).devices["c"]["nvidia.com/gpu"], ["GPU-1"]);
}

#[test]
fn what_cannot_be_used_is_refused_in_words() {
    for (text, words) in [
        ("kind: Node\nmetadata: {name: a}", "kind \"Node\""),
        (
            "kind: Pod\nmetadata: {name: a}\nspec: {containers: []}",
            "is empty",
        ),
        (
            "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {a/b: 1.5}}}]}",
            "1.5 is no count",
        ),
        ("kind: Pod\nspec: {containers: []}", "metadata"),
        ("{", "manifest is not usable"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?} gives {error:?}");
    }
}
