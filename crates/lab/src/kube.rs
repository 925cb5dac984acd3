//! A virtual node as a cluster has it: containerd, a stand-in kubelet, a GPU device plugin, and the
//! product's agent. Pods go through the kubelet; nothing here decides.

use crate::error::LabError;
use crate::machine::{Lab, Output};
use crate::testing::{CONFIG, ENVIRONMENT};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Programs of the workspace that such a node needs, as `(package, binary)`.
pub const PROGRAMS: [(&str, &str); 4] = [
    ("podrail", "podrail"),
    ("podrail-cni", "podrail-cni"),
    ("podrail-testkit", "standin-kubelet"),
    ("podrail-testkit", "standin-gpu-plugin"),
];

/// How long a pod may take to come or go under emulation.
const POD: Duration = Duration::from_secs(300);

/// A bash function: gives the ids of a program's processes to a command. They are found by their
/// first argument, since a process's own name is cut to 15 characters and says nothing of `exec -a`.
const NAMED: &str = r#"named() {
    local name=$1 first dir
    shift
    for dir in /proc/[0-9]*; do
        first=
        { read -r -d '' first <$dir/cmdline; } 2>/dev/null || true
        [ "$first" != "$name" ] || "$@" ${dir#/proc/} || true
    done
}"#;

/// The node's Kubernetes side. Starts nothing by itself.
#[derive(Debug, Clone, Copy)]
pub struct Kube<'a> {
    lab: &'a Lab,
}

/// A pod to be applied, as a manifest.
#[derive(Debug, Clone)]
pub struct Pod {
    /// The manifest; everything can be changed.
    pub manifest: Value,
}

impl Lab {
    /// The node's Kubernetes side; the lab was built with containerd and [`PROGRAMS`].
    pub fn kube(&self) -> Kube<'_> {
        Kube { lab: self }
    }
}

impl<'a> Kube<'a> {
    /// Starts everything, and waits until the kubelet counts a slot for each rail and all GPUs.
    ///
    /// # Errors
    /// Whatever does not start, with its log.
    pub fn start(self) -> Result<(), LabError> {
        self.configure(CONFIG)?;
        self.lab.containerd().start()?;
        self.start_kubelet("")?;
        self.start_gpus()?;
        self.start_agent()?;
        self.wait_slots("podrail.io/rail", self.lab.shape().rails().len())
    }

    /// Writes the agent's configuration.
    ///
    /// # Errors
    /// The node is gone.
    pub fn configure(self, text: &str) -> Result<(), LabError> {
        let path = "/etc/podrail/config.yaml";
        self.lab.write_file(path, 0o644, text.as_bytes())
    }

    /// Starts the kubelet with further arguments of `standin-kubelet run`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn start_kubelet(self, words: &str) -> Result<(), LabError> {
        self.background("standin-kubelet", &format!("standin-kubelet run {words}"))?;
        self.until("the kubelet answers", "standin-kubelet get >/dev/null 2>&1")
    }

    /// Starts the GPU plugin with the node's GPUs.
    ///
    /// # Errors
    /// The kubelet does not count them.
    pub fn start_gpus(self) -> Result<(), LabError> {
        let gpus = self.gpus();
        let words = format!("standin-gpu-plugin {}", gpus.join(" "));
        self.background("standin-gpu-plugin", &words)?;
        self.wait_slots("nvidia.com/gpu", gpus.len())
    }

    /// UUIDs of the node's GPUs, by index.
    pub fn gpus(self) -> Vec<String> {
        let gpus = self.lab.shape().gpus();
        gpus.into_iter().map(|gpu| gpu.uuid).collect()
    }

    /// Starts the agent.
    ///
    /// # Errors
    /// The node is gone.
    pub fn start_agent(self) -> Result<(), LabError> {
        self.background("podrail-agent", "exec -a podrail-agent podrail agent")
    }

    /// Starts the agent by a program that takes rights away, `setpriv ...`.
    ///
    /// # Errors
    /// The node is gone.
    pub fn start_agent_under(self, wrapper: &str) -> Result<(), LabError> {
        let words = format!("exec {wrapper} bash -c \"exec -a podrail-agent podrail agent\"");
        self.background("podrail-agent", &words)
    }

    /// Kills a program at once, by its name.
    ///
    /// # Errors
    /// It does not go.
    pub fn kill(self, program: &str) -> Result<(), LabError> {
        self.end(program, "KILL")
    }

    /// Sends a program a signal, by its name, and waits until it is gone.
    ///
    /// # Errors
    /// It does not go.
    pub fn end(self, program: &str, signal: &str) -> Result<(), LabError> {
        self.signal(program, signal)?;
        self.until(
            &format!("{program} is gone"),
            &format!("{NAMED}; [ -z \"$(named {program} echo)\" ]"),
        )
    }

    /// Sends a program a signal, by its name.
    ///
    /// # Errors
    /// The node is gone.
    pub fn signal(self, program: &str, signal: &str) -> Result<(), LabError> {
        let script = format!("{NAMED}; named {program} kill -{signal}");
        self.lab.sh(&script).map(drop)
    }

    /// Ids of a program's processes, by its name.
    ///
    /// # Errors
    /// The node is gone.
    pub fn pids(self, program: &str) -> Result<Vec<u32>, LabError> {
        let text = self
            .lab
            .sh(&format!("{NAMED}; named {program} echo"))?
            .text();
        Ok(text
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect())
    }

    /// What a background program wrote.
    ///
    /// # Errors
    /// The node is gone.
    pub fn log(self, program: &str) -> Result<String, LabError> {
        let script = format!("cat /run/log/{program} 2>/dev/null || true");
        Ok(self.lab.sh(&script)?.text())
    }

    /// Waits until the kubelet counts so many healthy devices of a resource.
    ///
    /// # Errors
    /// It does not come to that.
    pub fn wait_slots(self, resource: &str, count: usize) -> Result<(), LabError> {
        let words = format!("wait-allocatable {resource} {count} --timeout 60");
        self.kubelet(&words).map(drop)
    }

    /// Runs a command of the stand-in kubelet, which must succeed.
    ///
    /// # Errors
    /// Its own words, and the logs.
    pub fn kubelet(self, words: &str) -> Result<Value, LabError> {
        let argv = ["standin-kubelet", "-o", "json"];
        let argv = argv.into_iter().chain(words.split_whitespace());
        let output = self.lab.cmd(argv).timeout(POD).run()?;
        if output.status.shell_code() != 0 {
            return Err(self.failed(words, &output));
        }
        Ok(serde_json::from_str(&output.text()).unwrap_or(Value::Null))
    }

    /// Applies a pod.
    ///
    /// # Errors
    /// The kubelet's words.
    pub fn apply(self, pod: &Pod) -> Result<(), LabError> {
        self.apply_text(&pod.manifest.to_string())
    }

    /// Applies a manifest.
    ///
    /// # Errors
    /// The kubelet's words.
    pub fn apply_text(self, manifest: &str) -> Result<(), LabError> {
        let path = "/run/manifest";
        self.lab.write_file(path, 0o600, manifest.as_bytes())?;
        self.kubelet(&format!("apply -f {path}")).map(drop)
    }

    /// Applies a pod and waits until it is ready.
    ///
    /// # Errors
    /// It does not become so; its last state.
    pub fn run(self, pod: &Pod) -> Result<(), LabError> {
        self.apply(pod)?;
        self.wait(&pod.name(), "ready")
    }

    /// Waits for a pod of the default namespace: `running`, `ready`, `succeeded`, `failed`, `gone`.
    ///
    /// # Errors
    /// It does not come to that; its last state.
    pub fn wait(self, name: &str, condition: &str) -> Result<(), LabError> {
        let seconds = POD.as_secs() - 10;
        let words = format!("wait default/{name} --for {condition} --timeout {seconds}");
        self.kubelet(&words).map(drop)
    }

    /// What the kubelet says of a pod of the default namespace.
    ///
    /// # Errors
    /// There is none.
    pub fn get(self, name: &str) -> Result<Value, LabError> {
        self.kubelet(&format!("get default/{name}"))
    }

    /// Deletes a pod of the default namespace and waits until it is gone.
    ///
    /// # Errors
    /// It does not go.
    pub fn delete(self, name: &str) -> Result<(), LabError> {
        self.kubelet(&format!("delete default/{name} --grace 0"))?;
        self.wait(name, "gone")
    }

    /// Runs a bash script in the first container of a pod of the default namespace.
    ///
    /// # Errors
    /// The runtime's words; a failing script is an output.
    pub fn exec(self, name: &str, script: &str) -> Result<Output, LabError> {
        let pod = format!("default/{name}");
        let argv = ["standin-kubelet", "exec", &pod, "--", "bash", "-c", script];
        self.lab.cmd(argv).timeout(POD).run()
    }

    /// Runs the product on the node, which must succeed.
    ///
    /// # Errors
    /// Its own words.
    pub fn podrail(self, words: &str) -> Result<String, LabError> {
        let argv = std::iter::once("podrail").chain(words.split_whitespace());
        let command = ENVIRONMENT
            .into_iter()
            .fold(self.lab.cmd(argv), |cmd, (key, value)| cmd.env(key, value));
        Ok(command.run_ok()?.text())
    }

    /// Runs a bash script on the node, which must succeed.
    ///
    /// # Errors
    /// Its own words.
    pub fn sh(self, script: &str) -> Result<String, LabError> {
        Ok(self.lab.sh(script)?.text())
    }

    /// Starts a program that outlives the command, with its log in `/run/log`.
    fn background(self, name: &str, words: &str) -> Result<(), LabError> {
        let environment = ENVIRONMENT
            .map(|(key, value)| format!("{key}={value}"))
            .join(" ");
        let script = format!(
            "mkdir -p /run/log; export {environment}; \
             setsid -f bash -c '{}' >>/run/log/{name} 2>&1 </dev/null",
            if words.starts_with("exec") {
                words.to_owned()
            } else {
                format!("exec {words}")
            }
        );
        self.lab.sh(&script).map(drop)
    }

    fn until(self, what: &str, script: &str) -> Result<(), LabError> {
        let wait = format!(
            "for n in {{1..300}}; do if {script}; then exit 0; fi; sleep 0.1; done; \
             echo 'not so after 30 s: {what}' >&2; tail -n 20 /run/log/* >&2; exit 1"
        );
        self.lab.sh(&wait).map(drop)
    }

    /// The end of the logs tells more than the command.
    fn failed(self, words: &str, output: &Output) -> LabError {
        let logs = self.lab.sh("tail -n 15 /run/log/* 2>/dev/null || true");
        let logs = logs.map(|output| output.text()).unwrap_or_default();
        LabError::Agent {
            message: format!(
                "standin-kubelet {words}: {} {}\n{logs}",
                output.text(),
                output.stderr_text()
            ),
        }
    }
}

impl Pod {
    /// A pod that sleeps, with GPUs (by index) and rails of the default resource.
    pub fn sleeping(kube: Kube<'_>, name: &str, gpus: &[usize], rails: usize) -> Self {
        let uuids = kube.gpus();
        let chosen: Vec<&String> = gpus.iter().filter_map(|at| uuids.get(*at)).collect();
        let wanted = [("podrail.io/rail", rails), ("nvidia.com/gpu", gpus.len())];
        let limits: BTreeMap<&str, String> = wanted
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(resource, count)| (resource, count.to_string()))
            .collect();
        // Without GPUs there is nothing to choose.
        let devices = match chosen.as_slice() {
            [] => json!({}),
            _ => json!({ "main": { "nvidia.com/gpu": chosen } }),
        };
        let container = json!({
            "name": "main",
            "image": crate::Containerd::IMAGE,
            "command": ["sleep", "1000000"],
            "resources": { "limits": limits },
        });
        Self {
            manifest: json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": name, "namespace": "default" },
                "spec": { "containers": [container] },
                "podrail.test/devices": devices,
            }),
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        let name = self.manifest.pointer("/metadata/name");
        name.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// The same with a part of the manifest replaced, by JSON pointer; the parent must be there.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        if let Some((parent, key)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = self.manifest.pointer_mut(parent)
        {
            fields.insert(key.replace("~1", "/"), value);
        }
        self
    }
}
