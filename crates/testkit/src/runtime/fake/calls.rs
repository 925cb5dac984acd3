//! The calls of a runtime, on the fake's world.

use super::cni::Attachment;
use super::netns;
use super::process::{self, Program};
use super::{FakeContainer, FakeRuntime, is_host_network, lock, new_id, refused};
use crate::error::Result;
use crate::proto::cri::{ContainerConfig, ExecSyncResponse, PodSandboxConfig, PodSandboxMetadata};
use crate::runtime::{Doing, Runtime, Sandbox, Seen};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[tonic::async_trait]
impl Runtime for FakeRuntime {
    async fn run_sandbox(&self, config: &PodSandboxConfig) -> Result<String> {
        let id = new_id();
        // Reserved before ADD: when this call is cut off, the kubelet finds it and stops it.
        self.reserve(&id, config)?;
        if let Err(cause) = self.network(&id, config).await {
            self.stop_sandbox(&id).await?;
            self.remove_sandbox(&id).await?;
            return Err(refused(
                "RunPodSandbox",
                format!("failed to setup network for sandbox {id:?}: {cause}"),
            ));
        }
        self.change(&id, |sandbox| sandbox.ready = true);
        Ok(id)
    }

    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let found = self.world().sandboxes.get(id).map(|sandbox| {
            (
                sandbox.config.clone(),
                sandbox.netns.clone(),
                sandbox.result.clone(),
            )
        });
        let Some((config, path, result)) = found else {
            return Ok(());
        };
        let containers: Vec<String> = {
            let world = self.world();
            let inside = world.containers.values().filter(|c| c.seen.sandbox == id);
            inside.map(|container| container.seen.id.clone()).collect()
        };
        for container in containers {
            self.stop_container(&container, 0).await?;
        }
        if let Some(chain) = self
            .options
            .cni
            .as_ref()
            .filter(|_| !is_host_network(&config))
        {
            let netns = path
                .as_ref()
                .map(|path| path.display().to_string())
                .unwrap_or_default();
            let attachment = Attachment {
                id,
                netns: &netns,
                config: &config,
            };
            let deleted = chain.del(&attachment, &result).await;
            deleted.map_err(|cause| refused("StopPodSandbox", cause))?;
        }
        if let Some(path) = path {
            netns::remove(&path);
        }
        self.change(id, |sandbox| {
            sandbox.ready = false;
            sandbox.netns = None;
            sandbox.result = Value::Null;
        });
        Ok(())
    }

    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let ready = self.world().sandboxes.get(id).map(|sandbox| sandbox.ready);
        if ready == Some(true) {
            self.stop_sandbox(id).await?;
        }
        let mut world = self.world();
        world.sandboxes.remove(id);
        world
            .containers
            .retain(|_, container| container.seen.sandbox != id);
        Ok(())
    }

    async fn sandboxes(&self, pod: Option<&str>) -> Result<Vec<Sandbox>> {
        let world = self.world();
        let all = world.sandboxes.iter().map(|(id, sandbox)| {
            let PodSandboxMetadata { uid, attempt, .. } =
                sandbox.config.metadata.clone().unwrap_or_default();
            Sandbox {
                id: id.clone(),
                pod: uid,
                attempt,
                ready: sandbox.ready,
            }
        });
        Ok(all
            .filter(|sandbox| pod.is_none_or(|uid| sandbox.pod == uid))
            .collect())
    }

    async fn addresses(&self, sandbox: &str) -> Result<Vec<String>> {
        let world = self.world();
        let found = world.sandboxes.get(sandbox);
        Ok(found
            .map(|sandbox| sandbox.addresses.clone())
            .unwrap_or_default())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        let got = self.resolve(config)?;
        let mut world = self.world();
        let found = world.sandboxes.get(sandbox).filter(|found| found.ready);
        let Some(found) = found else {
            return Err(refused(
                "CreateContainer",
                format!("sandbox {sandbox:?} is not ready"),
            ));
        };
        let metadata = config.metadata.clone().unwrap_or_default();
        let mut command: Vec<String> = config.command.iter().chain(&config.args).cloned().collect();
        if command.is_empty() {
            command = vec!["sleep".to_owned(), "infinity".to_owned()];
        }
        let id = new_id();
        let container = FakeContainer {
            seen: Seen {
                id: id.clone(),
                pod: sandbox_config.metadata.clone().unwrap_or_default().uid,
                sandbox: sandbox.to_owned(),
                name: metadata.name,
                attempt: metadata.attempt,
                doing: Doing::Created,
            },
            program: Program {
                command,
                env: got.env.clone(),
                netns: found.netns.clone(),
            },
            got,
            log: Path::new(&sandbox_config.log_directory).join(&config.log_path),
            pid: None,
        };
        let same = |other: &FakeContainer| {
            let (a, b) = (&other.seen, &container.seen);
            (&a.pod, &a.name, a.attempt) == (&b.pod, &b.name, b.attempt)
        };
        if world.containers.values().any(same) {
            let name = &container.seen.name;
            return Err(refused(
                "CreateContainer",
                format!("name {name:?} is reserved"),
            ));
        }
        world.containers.insert(id.clone(), container);
        Ok(id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let mut world = self.world();
        let container = world.containers.get_mut(id);
        let container = container.ok_or_else(|| refused("StartContainer", format!("no {id}")))?;
        let started = container.program.start(&container.log);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let message = format!("{:?}: {error}", container.program.command);
                container.seen.doing = Doing::Exited {
                    code: 128,
                    reason: "StartError".to_owned(),
                    message: message.clone(),
                };
                return Err(refused("StartContainer", message));
            }
        };
        container.seen.doing = Doing::Running;
        container.pid = Some(child.id());
        let (world, changes, id) = (
            Arc::clone(&self.world),
            Arc::clone(&self.changes),
            id.to_owned(),
        );
        std::thread::spawn(move || {
            let code = child.wait().map_or(255, process::code);
            if let Some(container) = lock(&world).containers.get_mut(&id) {
                let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
                container.seen.doing = Doing::Exited {
                    code,
                    reason,
                    message: String::new(),
                };
                container.pid = None;
            }
            changes.send_modify(|count| *count += 1);
        });
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace: i64) -> Result<()> {
        let Some(pid) = self.pid(id) else {
            return Ok(());
        };
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        if !grace.is_zero() {
            process::signal(pid, Signal::SIGTERM);
            if self.ended(id, grace).await {
                return Ok(());
            }
        }
        process::signal(pid, Signal::SIGKILL);
        self.ended(id, Duration::from_secs(10)).await;
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.stop_container(id, 0).await?;
        self.world().containers.remove(id);
        Ok(())
    }

    async fn containers(&self, pod: Option<&str>) -> Result<Vec<Seen>> {
        let world = self.world();
        let all = world
            .containers
            .values()
            .map(|container| container.seen.clone());
        Ok(all
            .filter(|seen| pod.is_none_or(|uid| seen.pod == uid))
            .collect())
    }

    async fn exec(&self, id: &str, command: &[String], timeout: i64) -> Result<ExecSyncResponse> {
        let program = self.world().containers.get(id).map(|container| Program {
            command: command.to_vec(),
            ..container.program.clone()
        });
        let program = program.ok_or_else(|| refused("ExecSync", format!("no container {id}")))?;
        let mut line = program.line().into_iter();
        let output = tokio::process::Command::new(line.next().unwrap_or_default())
            .args(line)
            .env_clear()
            .envs(&program.env)
            .kill_on_drop(true)
            .output();
        let limit = match u64::try_from(timeout) {
            Ok(0) | Err(_) => Duration::MAX,
            Ok(seconds) => Duration::from_secs(seconds),
        };
        let output = tokio::time::timeout(limit, output).await;
        let output = output.map_err(|_| refused("ExecSync", "timeout exceeded".to_owned()))?;
        let output = output.map_err(|error| refused("ExecSync", error.to_string()))?;
        Ok(ExecSyncResponse {
            exit_code: process::code(output.status),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }

    async fn unready(&self) -> Result<Vec<String>> {
        Ok(vec![])
    }

    async fn has_image(&self, _: &str) -> Result<bool> {
        Ok(true)
    }
}
