//! `cargo xtask bench`: attach and detach beside what iproute2 needs for the same, on one virtual
//! node, in one run. Prints the tables and writes `docs/benchmarks.md`.
//!
//! The guest's script (`guest.sh`) takes the times, so that nothing of the way to the node is in
//! them. Absent on purpose: the reference CNI plugins, and any limit that fails a run.

mod floor;
mod machine;
mod page;
mod samples;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use clap::Args;
use podrail_lab::testing::CONFIG;
use podrail_lab::{Lab, LabError, Shape, Stream};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use floor::Plan;
use machine::Machine;
use samples::Samples;

const SIZES: [u32; 4] = [1, 4, 8, 16];

/// A round takes seconds; a busy machine may need many times that.
const LIMIT: Duration = Duration::from_secs(1800);

const SCRIPT: &str = include_str!("bench/guest.sh");

/// Links, addresses, rules, routes and sysctls of the pod, by iproute2 and `/proc/sys`. Interface
/// numbers and the node's order of lines differ from one attachment to the next.
const PICTURE: &str = "\
ip -n job -d -j link show type ipvlan | jq -cS '.[] | del(.ifindex)'
ip -n job -4 -j addr | jq -cS '.[] | [.ifname, (.addr_info[] | [.local, .prefixlen, .scope])]'
ip -n job -4 -j rule | jq -cS '.[]'
ip -n job -4 -j route show table all | jq -cS '.[]' | sort
nsenter --net=/run/netns/job grep -r . /proc/sys/net/ipv4/conf | sort
nsenter --net=/run/netns/job sh -c 'grep . /proc/sys/net/ipv6/conf/net*/accept_ra'
";

/// Options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each command is measured.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// Measures, prints, writes the page.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    println!("bench: building podrail (release)");
    let program = release_program()?;
    let load_before = machine::load_average()?;
    println!("bench: booting a virtual node; load average {load_before}");
    let node = Node::boot(program)?;
    let said = node.sh(machine::ASK_NODE)?;
    for rails in SIZES {
        node.prepare(rails)?;
    }
    println!("bench: both ways to attach come to the same in the kernel; measuring");
    let samples = Samples::parse(&node.measure(options.rounds)?)?;
    let machine = Machine::survey(&machine::Run {
        rounds: options.rounds,
        node: &said,
        load_before,
    })?;
    let page = page::page(&machine, &samples, &SIZES)?;
    println!("\n{}\n{}", machine.list(), page::tables(&samples, &SIZES)?);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md");
    std::fs::write(path, page).context("write docs/benchmarks.md")?;
    println!("bench: docs/benchmarks.md written");
    Ok(ExitCode::SUCCESS)
}

/// Builds the program as it is shipped.
fn release_program() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--package",
            "podrail",
            "--bin",
            "podrail",
        ])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdout(Stdio::piped())
        .spawn()
        .context("run cargo build")?;
    let output = child.stdout.take().context("read cargo's output")?;
    let mut program = None;
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message.context("read cargo's messages")? {
            program = artifact.executable.or(program);
        }
    }
    let status = child.wait().context("wait for cargo build")?;
    ensure!(status.success(), "cargo build --release failed");
    Ok(program.context("cargo built no program")?.into())
}

fn report(error: LabError) -> anyhow::Error {
    anyhow::anyhow!(error.report())
}

/// The node, with a pod called `job`.
struct Node(Lab);

impl Node {
    fn boot(program: PathBuf) -> Result<Self> {
        let shape = Shape::named("B4.8").map_err(report)?;
        let node = Lab::builder(shape).program("podrail", program).boot();
        let node = Self(node.map_err(report)?);
        node.write("/etc/podrail/config.yaml", CONFIG)?;
        node.write("/run/bench/guest.sh", SCRIPT)?;
        node.sh("ip netns add job; ip -n job link set lo up")?;
        Ok(node)
    }

    /// Has the product attach so many rails once, writes the floor's files from its plan, and sees
    /// that both come to the same.
    fn prepare(&self, rails: u32) -> Result<()> {
        let gpus = gpus(rails);
        let plan = self.sh(&format!(
            "podrail attach --netns /run/netns/job --id job --rails {rails} --gpus {gpus} -o json"
        ))?;
        let by_podrail = self.sh(PICTURE)?;
        self.sh("podrail detach --id job")?;
        for (path, content) in Plan::read(&plan)?.files(&gpus) {
            self.write(&path, &content)?;
        }
        let files = format!("/run/bench/{rails}");
        self.sh(&format!(
            "ip -batch {files}.links; nsenter --net=/run/netns/job bash {files}.sh"
        ))?;
        let by_ip = self.sh(PICTURE)?;
        self.sh(&format!(
            "ip -n job -batch {files}.deletes; ip -n job rule flush protocol 112"
        ))?;
        match difference(&by_podrail, &by_ip) {
            None => Ok(()),
            Some(lines) => bail!("{rails} rails, podrail (-) and ip (+) differ:\n{lines}"),
        }
    }

    /// Runs the guest's script; its samples. What it says on the way is shown.
    fn measure(&self, rounds: u32) -> Result<String> {
        let words = ["bash", "/run/bench/guest.sh"].map(String::from);
        let numbers = std::iter::once(rounds).chain(SIZES).map(|n| n.to_string());
        let process = self.0.cmd(words.into_iter().chain(numbers)).timeout(LIMIT);
        let mut see = |stream, bytes: &[u8]| {
            if stream == Stream::Stderr {
                // Progress only: a closed terminal does not end the measurement.
                let _ = std::io::stdout().write_all(bytes);
            }
        };
        let process = process.spawn().map_err(report)?;
        let output = process.wait_seeing(&mut see).map_err(report)?;
        ensure!(output.status.success(), "the node's script failed");
        Ok(output.text())
    }

    fn sh(&self, script: &str) -> Result<String> {
        let words = ["bash", "-euo", "pipefail", "-c", script];
        let command = self.0.cmd(words).env("PODRAIL_ROOT", "/lab/root");
        let command = command
            .env("PODRAIL_NODE_ADDRESS", "10.140.67.66")
            .timeout(LIMIT);
        Ok(command.run_ok().map_err(report)?.text())
    }

    fn write(&self, path: &str, content: &str) -> Result<()> {
        let written = self.0.write_file(path, 0o644, content.as_bytes());
        written.map_err(report)
    }
}

/// So many GPUs that each has the two rails of the NIC next to it.
fn gpus(rails: u32) -> String {
    let gpus = (0..rails.div_ceil(2)).map(|gpu| gpu.to_string());
    gpus.collect::<Vec<_>>().join(",")
}

/// The lines that only one of two texts has, marked; nothing if they are the same.
fn difference(a: &str, b: &str) -> Option<String> {
    let missing = |from: &str, of: &str, mark: &str| -> String {
        let lines = from.lines().filter(|line| !of.lines().any(|l| l == *line));
        lines.map(|line| format!("{mark}{line}\n")).collect()
    };
    (a != b).then(|| format!("{}{}", missing(a, b, "-"), missing(b, a, "+")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_its_two_rails() {
        assert_eq!(SIZES.map(gpus), ["0", "0,1", "0,1,2,3", "0,1,2,3,4,5,6,7"]);
    }

    #[test]
    fn a_difference_names_the_lines_of_each_side() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n"), Some("-b\n+c\n".into()));
        // Another order is a difference too.
        assert_eq!(difference("a\nb\n", "b\na\n"), Some(String::new()));
    }
}
