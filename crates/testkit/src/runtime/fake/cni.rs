//! Runs a chain of CNI plugins as libcni does under containerd.

use crate::proto::cri::PodSandboxConfig;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The capability by which a plugin gets the pod's annotations.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Where configurations and programs are.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Its first `*.conflist` by name counts.
    pub configurations: PathBuf,
    /// Where programs are looked for.
    pub programs: Vec<PathBuf>,
}

/// One sandbox as plugins see it.
pub(super) struct Attachment<'a> {
    pub(super) id: &'a str,
    /// Empty when it is gone.
    pub(super) netns: &'a str,
    pub(super) config: &'a PodSandboxConfig,
}

struct List {
    name: String,
    version: String,
    plugins: Vec<Map<String, Value>>,
}

impl Chain {
    /// ADD through the whole chain; gives the last result.
    pub(super) async fn add(&self, attachment: &Attachment<'_>) -> Result<Value, String> {
        let list = self.list()?;
        let mut result = Value::Null;
        for plugin in &list.plugins {
            let input = stdin(&list, plugin, attachment, &result);
            let output = self.run("ADD", plugin, attachment, input).await?;
            result = serde_json::from_slice(&output).map_err(|error| {
                format!("plugin {:?} printed no result: {error}", plugin.get("type"))
            })?;
        }
        Ok(result)
    }

    /// DEL in reverse; the cached result is there the first time only.
    pub(super) async fn del(
        &self,
        attachment: &Attachment<'_>,
        cached: &Value,
    ) -> Result<(), String> {
        let list = self.list()?;
        for plugin in list.plugins.iter().rev() {
            let input = stdin(&list, plugin, attachment, cached);
            self.run("DEL", plugin, attachment, input).await?;
        }
        Ok(())
    }

    fn list(&self) -> Result<List, String> {
        let path = self.first()?;
        let unusable = |what: &str| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| unusable(&error.to_string()))?;
        let document: Value =
            serde_json::from_str(&text).map_err(|error| unusable(&error.to_string()))?;
        let field = |name: &str| {
            document
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let plugins = document.get("plugins").and_then(Value::as_array);
        let plugins = plugins.ok_or_else(|| unusable("no plugins"))?.iter();
        Ok(List {
            name: field("name").to_owned(),
            version: field("cniVersion").to_owned(),
            plugins: plugins
                .filter_map(|plugin| plugin.as_object().cloned())
                .collect(),
        })
    }

    fn first(&self) -> Result<PathBuf, String> {
        let entries = std::fs::read_dir(&self.configurations);
        let entries =
            entries.map_err(|error| format!("{}: {error}", self.configurations.display()))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let lists = paths.filter(|path| path.extension().is_some_and(|end| end == "conflist"));
        lists.min().ok_or_else(|| {
            format!(
                "no network config found in {}",
                self.configurations.display()
            )
        })
    }

    async fn run(
        &self,
        verb: &str,
        plugin: &Map<String, Value>,
        attachment: &Attachment<'_>,
        input: Value,
    ) -> Result<Vec<u8>, String> {
        let kind = plugin
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let program = self.program(kind)?;
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut child = Command::new(&program)
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", attachment.id)
            .env("CNI_NETNS", attachment.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", arguments(attachment))
            .env("CNI_PATH", self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that does not read its input shows by its exit code.
            let _ = stdin.write_all(input.to_string().as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(failed)?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(failure(kind, verb, &output)),
        }
    }

    fn program(&self, kind: &str) -> Result<PathBuf, String> {
        let found = self.programs.iter().map(|directory| directory.join(kind));
        let mut found = found.filter(|path| path.is_file());
        found
            .next()
            .ok_or_else(|| format!("failed to find plugin {kind:?} in path {:?}", self.programs))
    }

    fn path(&self) -> String {
        let all: Vec<String> = self.programs.iter().map(|path| display(path)).collect();
        all.join(":")
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// Order and names as containerd gives them.
fn arguments(attachment: &Attachment<'_>) -> String {
    let metadata = attachment.config.metadata.clone().unwrap_or_default();
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        metadata.namespace, metadata.name, attachment.id, metadata.uid
    )
}

fn stdin(
    list: &List,
    plugin: &Map<String, Value>,
    attachment: &Attachment<'_>,
    previous: &Value,
) -> Value {
    let mut input = plugin.clone();
    input.insert("name".to_owned(), json!(list.name));
    input.insert("cniVersion".to_owned(), json!(list.version));
    if !previous.is_null() {
        input.insert("prevResult".to_owned(), previous.clone());
    }
    let capabilities = input.remove("capabilities").unwrap_or_default();
    if capabilities.get(ANNOTATIONS) == Some(&json!(true)) {
        let annotations = json!({ ANNOTATIONS: attachment.config.annotations });
        input.insert("runtimeConfig".to_owned(), annotations);
    }
    Value::Object(input)
}

/// A plugin that fails prints an error object.
fn failure(kind: &str, verb: &str, output: &std::process::Output) -> String {
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let text = |name: &str| {
        printed
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    format!(
        "plugin type={kind:?} failed ({verb}): {} {} {}{}",
        printed.get("code").cloned().unwrap_or_default(),
        text("msg"),
        text("details"),
        errors.trim()
    )
}
