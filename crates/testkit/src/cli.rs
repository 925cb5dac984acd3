//! The command line of `standin-kubelet`.

use crate::contract;
use crate::control::{self, Request};
use crate::error::{Error, Result};
use crate::kubelet::{Condition, Kubelet, Settings};
use crate::runtime::cri::Cri;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

/// A kubelet that stands in for the real one: no API server, pods are applied by hand.
#[derive(Debug, Parser)]
#[command(name = "standin-kubelet", version)]
pub struct Cli {
    /// The kubelet's directory.
    #[arg(long, global = true, default_value = "/var/lib/kubelet")]
    root: PathBuf,
    /// How answers are printed.
    #[arg(short, long, global = true, value_enum, default_value = "text")]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be the kubelet.
    Run(Run),
    /// Try what the kubelet relies on in a runtime; exits with 1 if anything is not so.
    Contract {
        /// The runtime's socket.
        #[arg(long, default_value = CONTAINERD)]
        cri: String,
        /// An image with `sh`, `sleep` and `env`.
        #[arg(long)]
        image: String,
        /// Where the runtime reads CDI files.
        #[arg(long, default_value = "/var/run/cdi")]
        cdi: PathBuf,
    },
    /// Take pods and config maps.
    Apply {
        /// YAML or JSON; `-` is standard input.
        #[arg(short, long)]
        file: PathBuf,
    },
    /// Pods and what they do.
    Get {
        /// NAMESPACE/NAME; all if absent.
        pod: Option<String>,
    },
    /// Delete a pod.
    Delete {
        /// NAMESPACE/NAME.
        pod: String,
        /// Free its devices and its name at once, while it may still run.
        #[arg(long)]
        force: bool,
        /// Seconds between TERM and KILL.
        #[arg(long)]
        grace: Option<i64>,
    },
    /// Run a command in a container; exits with its code.
    Exec {
        /// NAMESPACE/NAME.
        pod: String,
        /// The first main container if absent.
        #[arg(short, long)]
        container: Option<String>,
        /// Seconds; 0 is without end.
        #[arg(long, default_value_t = 0)]
        timeout: u64,
        /// Program and arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// What a container wrote.
    Logs {
        /// NAMESPACE/NAME.
        pod: String,
        /// The first main container if absent.
        #[arg(short, long)]
        container: Option<String>,
    },
    /// Wait for a pod.
    Wait {
        /// NAMESPACE/NAME.
        pod: String,
        /// For what.
        #[arg(long = "for", value_enum)]
        condition: Condition,
        /// Seconds.
        #[arg(long, default_value_t = 60)]
        timeout: u64,
    },
    /// Wait until a resource has so many healthy devices.
    WaitAllocatable {
        /// Resource.
        resource: String,
        /// How many.
        count: usize,
        /// Seconds.
        #[arg(long, default_value_t = 60)]
        timeout: u64,
    },
    /// Capacity, allocatable and allocated devices.
    Node,
    /// Turn a knob of the running kubelet.
    Set {
        /// Its name.
        key: String,
        /// JSON or text.
        value: String,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// The runtime's socket.
    #[arg(long, default_value = CONTAINERD)]
    cri: String,
    /// For its dice; printed at start.
    #[arg(long)]
    seed: Option<u64>,
    /// Instead of the image of every container.
    #[arg(long)]
    image: Option<String>,
    /// PodResources without Get, as before 1.34.
    #[arg(long)]
    no_get: bool,
    /// Turn a knob at start, KEY=VALUE.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    knobs: Vec<String>,
}

/// Runs a command line.
///
/// # Errors
/// What the kubelet or the command says.
pub async fn run(cli: Cli) -> Result<ExitCode> {
    let Cli {
        root,
        output,
        command,
    } = cli;
    let socket = Settings::at(&root).control_socket();
    let request = match command {
        Command::Run(run) => return be_kubelet(root, run).await,
        Command::Contract { cri, image, cdi } => {
            let runtime = Arc::new(runtime_at(&cri));
            let directory = root.join("contract");
            let setting = contract::Setting {
                runtime,
                image,
                cdi,
                directory,
            };
            return Ok(told(&contract::run(&setting).await));
        }
        Command::Apply { file } => Request::Apply { text: read(&file)? },
        Command::Get { pod } => Request::Get { pod },
        Command::Delete { pod, force, grace } => Request::Delete { pod, force, grace },
        Command::Exec {
            pod,
            container,
            timeout,
            command,
        } => Request::Exec {
            pod,
            container,
            command,
            timeout,
        },
        Command::Logs { pod, container } => Request::Logs { pod, container },
        Command::Wait {
            pod,
            condition,
            timeout,
        } => Request::Wait {
            pod,
            condition,
            timeout,
        },
        Command::WaitAllocatable {
            resource,
            count,
            timeout,
        } => Request::WaitAllocatable {
            resource,
            count,
            timeout,
        },
        Command::Node => Request::Node,
        Command::Set { key, value } => Request::Set { key, value },
    };
    let answer = control::ask(&socket, &request).await?;
    print(output, &answer)
}

async fn be_kubelet(root: PathBuf, run: Run) -> Result<ExitCode> {
    let seed = run.seed.unwrap_or_else(|| fastrand::u64(..));
    let settings = Settings {
        root,
        seed,
        image: run.image,
        verbose: true,
    };
    let socket = settings.control_socket();
    let runtime = Arc::new(runtime_at(&run.cri));
    let kubelet = Arc::new(Kubelet::start(settings, runtime)?);
    if run.no_get {
        kubelet.set("get", "off")?;
    }
    for knob in &run.knobs {
        let (key, value) = knob.split_once('=').unwrap_or((knob, ""));
        kubelet.set(key, value)?;
    }
    let listener = control::listen(&socket)?;
    say(&format!("standin-kubelet: seed {seed}\n"));
    control::serve(listener, kubelet).await?;
    Ok(ExitCode::SUCCESS)
}

fn runtime_at(address: &str) -> Cri {
    let path = address.strip_prefix("unix://").unwrap_or(address);
    Cri::at(Path::new(path))
}

fn told(outcomes: &[contract::Outcome]) -> ExitCode {
    for contract::Outcome { name, result } in outcomes {
        match result {
            Ok(()) => say(&format!("ok    {name}\n")),
            Err(told) => say(&format!("FAIL  {name}: {told}\n")),
        }
    }
    ExitCode::from(u8::from(
        outcomes.iter().any(|outcome| outcome.result.is_err()),
    ))
}

fn read(file: &Path) -> Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file).map_err(Error::io("read", file));
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(Error::io("read", "standard input"))?;
    Ok(text)
}

/// Nobody may be there to read it.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
}

fn print(output: Output, answer: &Value) -> Result<ExitCode> {
    let code = answer.get("code").and_then(Value::as_u64);
    match (output, answer) {
        (Output::Json, answer) => say(&format!("{answer}\n")),
        (Output::Text, Value::Null) => {}
        (Output::Text, Value::String(text)) => say(text),
        (Output::Text, answer) if code.is_some() => print_exec(answer),
        (Output::Text, answer) => say(&format!("{answer:#}\n")),
    }
    let code = code.map_or(0, |code| u8::try_from(code).unwrap_or(255));
    Ok(ExitCode::from(code))
}

fn print_exec(answer: &Value) {
    let text = |field: &str| {
        answer
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    say(text("stdout"));
    let _ = std::io::stderr().write_all(text("stderr").as_bytes());
}
