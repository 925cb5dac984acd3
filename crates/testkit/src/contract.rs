//! What the stand-in kubelet relies on in a runtime, as a list of behaviours: run against the fake
//! in the tests and against containerd in the lab.

use crate::kubelet::Settings;
use crate::manifest::{Container, Metadata, Pod, PodSpec};
use crate::proto::cri::{CdiDevice, KeyValue};
use crate::runtime::{Doing, Runtime, Seen};
use crate::worker::configs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Patience for one condition; a node under emulation is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the behaviours need.
#[derive(Clone)]
pub struct Setting {
    /// Who is tried.
    pub runtime: Arc<dyn Runtime>,
    /// An image with `sh`, `sleep` and `env`.
    pub image: String,
    /// A directory that the runtime reads CDI files from.
    pub cdi: PathBuf,
    /// A folder for logs.
    pub directory: PathBuf,
}

/// How one behaviour went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its name.
    pub name: &'static str,
    /// In words, if it is not as relied upon.
    pub result: Result<(), String>,
}

type Proof = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

type Behaviour = (&'static str, fn(Case) -> Proof);

/// All behaviours by name.
const BEHAVIOURS: [Behaviour; 8] = [
    ("a sandbox lives, stops and goes", |case| {
        Box::pin(sandbox_life(case))
    }),
    ("a name is taken once", |case| Box::pin(names(case))),
    ("the end of a container is told with its code", |case| {
        Box::pin(exit_codes(case))
    }),
    ("a command runs beside a container", |case| {
        Box::pin(exec(case))
    }),
    ("a CDI name counts from when its file is there", |case| {
        Box::pin(cdi(case))
    }),
    ("who ignores TERM is killed", |case| {
        Box::pin(stubborn(case))
    }),
    ("an ended container starts as its next attempt", |case| {
        Box::pin(restart(case))
    }),
    ("a stopped sandbox has no running container", |case| {
        Box::pin(stop_all(case))
    }),
];

/// Tries all behaviours, one after the other, each with a pod of its own that is removed again.
pub async fn run(setting: &Setting) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (number, (name, prove)) in BEHAVIOURS.iter().enumerate() {
        let case = Case::new(setting.clone(), number);
        let result = prove(case.clone()).await;
        let cleaned = case.clean().await;
        outcomes.push(Outcome {
            name,
            result: result.and(cleaned),
        });
    }
    outcomes
}

#[derive(Clone)]
struct Case {
    setting: Setting,
    settings: Settings,
    pod: Pod,
}

impl Case {
    fn new(setting: Setting, number: usize) -> Self {
        let container = Container {
            name: "main".to_owned(),
            image: setting.image.clone(),
            ..Container::default()
        };
        let pod = Pod {
            metadata: Metadata {
                name: format!("contract-{number}"),
                namespace: "contract".to_owned(),
                uid: format!("00000000-0000-4000-8000-{number:012}"),
                ..Metadata::default()
            },
            spec: PodSpec {
                containers: vec![container],
                ..PodSpec::default()
            },
            devices: std::collections::BTreeMap::new(),
        };
        Self {
            settings: Settings::at(&setting.directory),
            setting,
            pod,
        }
    }

    fn runtime(&self) -> &dyn Runtime {
        self.setting.runtime.as_ref()
    }

    async fn sandbox(&self, attempt: u32) -> Result<String, String> {
        let config = configs::sandbox(&self.settings, &self.pod, attempt);
        told(self.runtime().run_sandbox(&config).await)
    }

    async fn create(
        &self,
        sandbox: &str,
        attempt: u32,
        command: &[&str],
        cdi: &[&str],
    ) -> Result<String, String> {
        let mut container = Container::default();
        container.name.push_str("main");
        container.image.clone_from(&self.setting.image);
        container.command = command.iter().map(|word| (*word).to_owned()).collect();
        let logs = configs::log_directory(&self.settings, &self.pod).join("main");
        std::fs::create_dir_all(&logs).map_err(|error| error.to_string())?;
        let mut config = configs::container(&self.settings, &self.pod, &container, attempt, &[]);
        config.cdi_devices = cdi
            .iter()
            .map(|name| CdiDevice {
                name: (*name).to_owned(),
            })
            .collect();
        config.envs = vec![KeyValue {
            key: "OF_POD".to_owned(),
            value: "given".to_owned(),
        }];
        let sandbox_config = configs::sandbox(&self.settings, &self.pod, 0);
        told(
            self.runtime()
                .create_container(sandbox, &config, &sandbox_config)
                .await,
        )
    }

    async fn start(&self, sandbox: &str, attempt: u32, command: &[&str]) -> Result<String, String> {
        let id = self.create(sandbox, attempt, command, &[]).await?;
        told(self.runtime().start_container(&id).await)?;
        Ok(id)
    }

    async fn seen(&self, id: &str) -> Result<Option<Seen>, String> {
        let all = told(
            self.runtime()
                .containers(Some(&self.pod.metadata.uid))
                .await,
        )?;
        Ok(all.into_iter().find(|seen| seen.id == id))
    }

    /// The code of a container that ends within the patience.
    async fn code(&self, id: &str) -> Result<i32, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen(id).await?;
            if let Some(Doing::Exited { code, .. }) = seen.as_ref().map(|seen| &seen.doing) {
                return Ok(*code);
            }
            if Instant::now() > end {
                return Err(format!("it does not end; last seen: {seen:?}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn shell(&self, id: &str, script: &str) -> Result<(i32, String, String), String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        let done = told(self.runtime().exec(id, &command, 60).await)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok((done.exit_code, text(&done.stdout), text(&done.stderr)))
    }

    async fn clean(&self) -> Result<(), String> {
        let uid = &self.pod.metadata.uid;
        for sandbox in told(self.runtime().sandboxes(Some(uid)).await)? {
            told(self.runtime().stop_sandbox(&sandbox.id).await)?;
            told(self.runtime().remove_sandbox(&sandbox.id).await)?;
        }
        let left = told(self.runtime().containers(Some(uid)).await)?;
        expect("containers after removal", &left, &vec![])
    }
}

fn told<T>(result: crate::Result<T>) -> Result<T, String> {
    result.map_err(|error| crate::error::in_words(&error))
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), String> {
    match seen == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {seen:?} instead of {wanted:?}")),
    }
}

fn expect_refusal<T>(what: &str, result: Result<T, String>, words: &str) -> Result<(), String> {
    match result {
        Ok(_) => Err(format!("{what} was not refused")),
        Err(told) if told.contains(words) => Ok(()),
        Err(told) => Err(format!("{what} was refused without {words:?}: {told}")),
    }
}

async fn sandbox_life(case: Case) -> Result<(), String> {
    let id = case.sandbox(0).await?;
    let uid = case.pod.metadata.uid.clone();
    let ready = |all: Vec<crate::runtime::Sandbox>| {
        all.into_iter()
            .map(|s| (s.id, s.pod, s.attempt, s.ready))
            .collect::<Vec<_>>()
    };
    let seen = ready(told(case.runtime().sandboxes(Some(&uid)).await)?);
    expect("list", &seen, &vec![(id.clone(), uid.clone(), 0, true)])?;
    let others = told(case.runtime().sandboxes(Some("nobody")).await)?;
    expect("list of another pod", &others, &vec![])?;
    for _ in 0..2 {
        told(case.runtime().stop_sandbox(&id).await)?;
    }
    let seen = ready(told(case.runtime().sandboxes(Some(&uid)).await)?);
    expect(
        "list after stop",
        &seen,
        &vec![(id.clone(), uid.clone(), 0, false)],
    )?;
    let next = case.sandbox(1).await?;
    expect("new id", &(next == id), &false)?;
    for _ in 0..2 {
        told(case.runtime().remove_sandbox(&id).await)?;
    }
    let seen = ready(told(case.runtime().sandboxes(Some(&uid)).await)?);
    expect("list after removal", &seen, &vec![(next, uid, 1, true)])
}

async fn names(case: Case) -> Result<(), String> {
    let sandbox = case.sandbox(0).await?;
    expect_refusal("the same sandbox", case.sandbox(0).await, "is reserved")?;
    case.create(&sandbox, 0, &["sleep", "3600"], &[]).await?;
    let again = case.create(&sandbox, 0, &["sleep", "3600"], &[]).await;
    expect_refusal("the same container", again, "is reserved")
}

async fn exit_codes(case: Case) -> Result<(), String> {
    let sandbox = case.sandbox(0).await?;
    for (attempt, code) in [(0, 0), (1, 3)] {
        let id = case
            .start(&sandbox, attempt, &["sh", "-c", &format!("exit {code}")])
            .await?;
        expect("code", &case.code(&id).await?, &code)?;
    }
    Ok(())
}

async fn exec(case: Case) -> Result<(), String> {
    let sandbox = case.sandbox(0).await?;
    let id = case.start(&sandbox, 0, &["sleep", "3600"]).await?;
    let seen = case
        .seen(&id)
        .await?
        .map(|seen| (seen.name, seen.sandbox, seen.doing));
    expect(
        "list",
        &seen,
        &Some(("main".to_owned(), sandbox, Doing::Running)),
    )?;
    let done = case
        .shell(&id, "echo $OF_POD; echo oops >&2; exit 4")
        .await?;
    expect("exec", &done, &(4, "given".to_owned(), "oops".to_owned()))
}

async fn cdi(case: Case) -> Result<(), String> {
    const NAME: &str = "contract.test/thing=one";
    let sandbox = case.sandbox(0).await?;
    let file = case.setting.cdi.join("contract.test-thing.json");
    let missing = case.create(&sandbox, 0, &["sleep", "3600"], &[NAME]).await;
    expect_refusal(
        "an unknown name",
        missing,
        "unresolvable CDI devices contract.test/thing=one",
    )?;
    write_cdi(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let found = with_cdi(&case, &sandbox, NAME).await;
    let removed = std::fs::remove_file(&file).map_err(|error| error.to_string());
    found.and(removed)
}

/// A runtime notices a file a moment after it was renamed.
async fn with_cdi(case: &Case, sandbox: &str, name: &str) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    let id = loop {
        match case.create(sandbox, 0, &["sleep", "3600"], &[name]).await {
            Ok(id) => break id,
            Err(told) if Instant::now() > end => return Err(told),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    told(case.runtime().start_container(&id).await)?;
    let done = case.shell(&id, "echo $OF_CDI").await?;
    expect("environment", &done.1, &"injected".to_owned())
}

fn write_cdi(file: &Path) -> std::io::Result<()> {
    let text = r#"{"cdiVersion":"0.6.0","kind":"contract.test/thing",
        "devices":[{"name":"one","containerEdits":{"env":["OF_CDI=injected"]}}]}"#;
    let temporary = file.with_extension("new");
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(&temporary, text)?;
    std::fs::rename(temporary, file)
}

async fn stubborn(case: Case) -> Result<(), String> {
    let sandbox = case.sandbox(0).await?;
    let script = "trap '' TERM; touch /tmp/contract-trap; while :; do sleep 1; done";
    let id = case.start(&sandbox, 0, &["sh", "-c", script]).await?;
    let ready = "until [ -e /tmp/contract-trap ]; do sleep 0.1; done; rm /tmp/contract-trap";
    case.shell(&id, ready).await?;
    told(case.runtime().stop_container(&id, 1).await)?;
    expect("code", &case.code(&id).await?, &137)?;
    told(case.runtime().stop_container(&id, 1).await)
}

async fn restart(case: Case) -> Result<(), String> {
    let sandbox = case.sandbox(0).await?;
    let first = case.start(&sandbox, 0, &["sh", "-c", "exit 1"]).await?;
    case.code(&first).await?;
    let second = case.start(&sandbox, 1, &["sleep", "3600"]).await?;
    told(case.runtime().remove_container(&first).await)?;
    expect("removed", &case.seen(&first).await?, &None)?;
    let doing = case
        .seen(&second)
        .await?
        .map(|seen| (seen.attempt, seen.doing));
    expect("second start", &doing, &Some((1, Doing::Running)))
}

async fn stop_all(case: Case) -> Result<(), String> {
    let sandbox = case.sandbox(0).await?;
    let id = case.start(&sandbox, 0, &["sleep", "3600"]).await?;
    told(case.runtime().stop_sandbox(&sandbox).await)?;
    expect("code", &case.code(&id).await?, &137)
}
