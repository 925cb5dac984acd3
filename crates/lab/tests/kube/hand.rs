//! The plugin called by hand, as a runtime calls it, for a pod that the kubelet has admitted.

use podrail_lab::kube::Pod;
use podrail_lab::{Cmd, Lab, Output};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Asks again and again until there is an answer; the last state is told when there is none in time.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Result<T, Value>) -> T {
    until_within(Duration::from_secs(120), what, ask)
}

/// The same with another limit, for what takes many steps.
pub(crate) fn until_within<T>(
    limit: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<T, Value>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(last) => assert!(Instant::now() < end, "not in time: {what}; last: {last}"),
        }
    }
}

/// Ids of the processes whose command line begins so.
pub(crate) fn processes(lab: &Lab, line: &str) -> String {
    let script = format!(
        "for f in /proc/[0-9]*/cmdline; do mapfile -d '' a 2>/dev/null <$f || continue; \
         [[ \"${{a[*]}}\" != '{line}'* ]] || echo $(basename ${{f%/cmdline}}); done"
    );
    let found = lab.cmd(["bash", "-c", &script]).run().unwrap();
    found.text().replace('\n', " ")
}

/// Sends them a signal; there must be some.
pub(crate) fn signal(lab: &Lab, line: &str, signal: &str) {
    let found = processes(lab, line);
    lab.sh(&format!("kill -{signal} {found}")).unwrap();
}

/// The plugin with its fault points, on the node.
pub(crate) const WITH_FAULTS: &str = "podrail-cni-with-faults";

/// A pod that the plugin is called for.
pub(crate) struct Hand<'a> {
    lab: &'a Lab,
    pod: (String, String),
}

/// One call, to be refined and run.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    lab: &'a Lab,
    pod: (String, String),
    program: &'static str,
    command: &'static str,
    sandbox: String,
    netns: String,
    conf: Value,
    fault: Option<String>,
}

/// What the plugin said.
#[derive(Debug)]
pub(crate) struct Said {
    /// Exit code.
    pub(crate) code: i32,
    /// Standard output, if it is JSON.
    pub(crate) answer: Value,
    /// Standard error.
    pub(crate) notes: String,
    /// How long it took.
    pub(crate) took: Duration,
}

impl<'a> Hand<'a> {
    /// Applies a pod and has the kubelet stop before its sandbox, until the pod is deleted.
    pub(crate) fn admit(lab: &'a Lab, pod: &Pod) -> Self {
        let (kube, name) = (lab.kube(), pod.name());
        kube.kubelet("set sandbox-delay-ms 1000000000").unwrap();
        kube.apply(pod).unwrap();
        until(&format!("{name} waits for its sandbox"), || {
            let events = kube.get(&name).unwrap()["events"].clone();
            let events = events.as_array().cloned().unwrap_or_default();
            let held = events.iter().any(|e| e["reason"] == "SandboxDelayed");
            held.then_some(()).ok_or(json!(events))
        });
        kube.kubelet("set sandbox-delay-ms 0").unwrap();
        Self::of(lab, &name)
    }

    /// A pod that is there.
    pub(crate) fn of(lab: &'a Lab, name: &str) -> Self {
        let pod = lab.kube().get(name).unwrap();
        let uid = pod["uid"].as_str().unwrap().to_owned();
        Self {
            lab,
            pod: (name.to_owned(), uid),
        }
    }

    /// A pod that the kubelet's devices know nothing of.
    pub(crate) fn without_rails(lab: &'a Lab) -> Self {
        let uid = "0f0f0f0f-0000-4000-8000-000000000001".to_owned();
        Self {
            lab,
            pod: ("plain".to_owned(), uid),
        }
    }

    /// A call for one of its sandboxes, in the namespace of the same name.
    pub(crate) fn call(&self, command: &'static str, sandbox: &str) -> Call<'a> {
        Call {
            lab: self.lab,
            pod: self.pod.clone(),
            program: "podrail-cni",
            command,
            sandbox: id(sandbox),
            netns: format!("/run/netns/{sandbox}"),
            conf: json!({
                "cniVersion": "1.0.0", "name": "cluster", "type": "podrail-cni",
                "prevResult": PREVIOUS.parse::<Value>().unwrap(),
            }),
            fault: None,
        }
    }
}

/// What the cluster's plugin has answered.
const PREVIOUS: &str = r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.88.0.9/16"}]}"#;

/// Id of the sandbox of a name.
pub(crate) fn id(sandbox: &str) -> String {
    format!("{sandbox:0<64}")
}

impl<'a> Call<'a> {
    /// With another setting of the plugin: `state`, `podResources`, `checkpoint`, `cdi`.
    pub(crate) fn with(mut self, key: &str, path: &str) -> Self {
        self.conf[key] = path.into();
        self
    }

    /// Of another sandbox or namespace.
    pub(crate) fn netns(mut self, path: &str) -> Self {
        path.clone_into(&mut self.netns);
        self
    }

    /// Of a sandbox by its full id.
    pub(crate) fn sandbox(mut self, id: &str) -> Self {
        id.clone_into(&mut self.sandbox);
        self
    }

    /// As cri-dockerd calls: without the pod's UID.
    pub(crate) fn without_uid(mut self) -> Self {
        self.pod.1.clear();
        self
    }

    /// Killed right behind a step.
    pub(crate) fn killed(mut self, step: &str) -> Self {
        self.program = WITH_FAULTS;
        self.fault = Some(format!("{step}:kill"));
        self
    }

    /// The command, for one that runs in the background.
    pub(crate) fn cmd(&self) -> Cmd<'a> {
        let (name, uid) = &self.pod;
        let (sandbox, conf) = (&self.sandbox, self.conf.to_string());
        let mut args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};\
             K8S_POD_INFRA_CONTAINER_ID={sandbox}"
        );
        if !uid.is_empty() {
            args.push_str(&format!(";K8S_POD_UID={uid}"));
        }
        let cmd = self.lab.cmd([self.program]);
        let cmd = cmd.env("CNI_COMMAND", self.command);
        let cmd = cmd.env("CNI_CONTAINERID", sandbox);
        let cmd = cmd.env("CNI_NETNS", &self.netns).env("CNI_IFNAME", "eth0");
        let cmd = cmd.env("CNI_ARGS", &args).env("CNI_PATH", "/opt/cni/bin");
        let cmd = match &self.fault {
            Some(fault) => cmd.env("PODRAIL_FAULT", fault),
            None => cmd,
        };
        cmd.stdin(conf).timeout(Duration::from_secs(120))
    }

    /// Runs it to its end, however it ends.
    pub(crate) fn run(&self) -> Said {
        let started = Instant::now();
        Said::of(&self.cmd().run().unwrap(), started)
    }

    /// Runs it; it must succeed, and ADD must hand on what the plugin before it said.
    pub(crate) fn ok(&self) -> Said {
        let said = self.run();
        assert_eq!(said.code, 0, "{} {said:?}", self.command);
        if self.command == "ADD" {
            assert_eq!(said.answer, PREVIOUS.parse::<Value>().unwrap());
        }
        said
    }

    /// Runs it; it must fail with this code, and say all of these words.
    pub(crate) fn fails(&self, code: u64, words: &[&str]) -> Said {
        let said = self.run();
        let text = said.answer.to_string();
        assert_eq!(said.code, 1, "{} {said:?}", self.command);
        assert_eq!(said.answer["code"], code, "{text}");
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
        said
    }
}

impl Said {
    pub(crate) fn of(output: &Output, started: Instant) -> Self {
        Self {
            code: output.status.shell_code(),
            answer: serde_json::from_slice(&output.stdout).unwrap_or_default(),
            notes: output.stderr_text(),
            took: started.elapsed(),
        }
    }
}

/// Makes network namespaces.
pub(crate) fn namespaces(lab: &Lab, names: &[&str]) {
    for name in names {
        // A scenario that failed may have left one.
        let make = format!("ip netns delete {name} 2>/dev/null || true; ip netns add {name}");
        lab.sh(&make).unwrap();
    }
}

/// Removes network namespaces, which must be as they were made.
pub(crate) fn remove_namespaces(lab: &Lab, names: &[&str]) {
    for name in names {
        assert_untouched(lab, name);
        lab.sh(&format!("ip netns delete {name}")).unwrap();
    }
}

/// Whether a namespace has a loopback interface, the kernel's three rules, and nothing else.
pub(crate) fn assert_untouched(lab: &Lab, name: &str) {
    let look = format!(
        "ip -n {name} -j link | jq -r '.[].ifname'; ip -n {name} rule | wc -l; \
         ip -n {name} route show table all | wc -l"
    );
    let left = lab.sh(&look).unwrap().text();
    assert_eq!(left, "lo\n3\n0", "left in {name}");
}

/// The plugin with its fault points: a ready one, else built once more.
pub(crate) fn with_faults() -> PathBuf {
    if let Some(ready) = std::env::var_os("PODRAIL_BIN_PODRAIL_CNI_WITH_FAULTS") {
        return ready.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let words = "build --quiet --package podrail-cni --features faults";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(words.split(' '))
        .current_dir(&root)
        .status()
        .unwrap();
    assert!(built.success(), "cargo {words} failed");
    // A copy: a build without the feature would put another program in its place.
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let copy = target.join("debug").join(WITH_FAULTS);
    std::fs::copy(target.join("debug/podrail-cni"), &copy).unwrap();
    copy
}

/// A node with 8 rails and the plugin with its fault points beside the real one.
pub(crate) fn node() -> Option<Lab> {
    let lab =
        crate::support::bare_node("S8", |builder| builder.program(WITH_FAULTS, with_faults()))?;
    // The first `ip netns add` mounts its directory over itself: not under pods that are there.
    lab.sh("ip netns add first; ip netns delete first").unwrap();
    lab.kube().start().unwrap();
    Some(lab)
}
