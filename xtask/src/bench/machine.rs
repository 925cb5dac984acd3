//! What was measured on: facts of this machine and of the node on it.

use anyhow::{Context, Result};
use std::process::Command;

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Facts, in the page's order.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) facts: Vec<(&'static str, String)>,
}

/// What only the run knows.
pub(super) struct Run<'a> {
    pub(super) rounds: u32,
    /// Output of [`ASK_NODE`] on the node.
    pub(super) node: &'a str,
    pub(super) load_before: String,
}

/// Prints one line each: kernel, CPUs, clocks, iproute2.
pub(super) const ASK_NODE: &str = "\
uname -r; nproc; cat /sys/devices/system/clocksource/clocksource0/available_clocksource; ip -V";

impl Machine {
    pub(super) fn survey(run: &Run<'_>) -> Result<Self> {
        let cpu = read("/proc/cpuinfo")?;
        let cores = std::thread::available_parallelism().context("count the cores")?;
        let load = format!(
            "{} before, {} after; the node itself is 1",
            run.load_before,
            load_average()?
        );
        let command = format!(
            "`cargo xtask bench --rounds {}`, release build of {}",
            run.rounds,
            revision()?
        );
        Ok(Self {
            facts: vec![
                ("command", command),
                ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?),
                ("CPU", format!("{}, {cores} cores", cpu_model(&cpu))),
                ("load average (1 min)", load),
                (
                    "emulator",
                    emulator(&said("qemu-system-x86_64", &["--version"])?, run.node),
                ),
                ("node", node(run.node)),
            ],
        })
    }

    /// As a Markdown list.
    pub(super) fn list(&self) -> String {
        let lines = self.facts.iter();
        lines
            .map(|(name, fact)| format!("- {name}: {fact}\n"))
            .collect()
    }
}

/// The load average of the last minute.
pub(super) fn load_average() -> Result<String> {
    let text = read("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or("unknown").to_owned())
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// The commit, and whether the program was built from something else.
fn revision() -> Result<String> {
    let commit = said("git", &["-C", ROOT, "rev-parse", "--short", "HEAD"])?;
    let sources = ["crates", "Cargo.toml", "Cargo.lock"];
    let words = [
        ["-C", ROOT, "diff", "--quiet", "HEAD", "--"].as_slice(),
        &sources,
    ]
    .concat();
    let same = Command::new("git")
        .args(words)
        .status()
        .context("run git")?;
    let changes = if same.success() { "" } else { ", with changes" };
    Ok(format!("{commit}{changes}"))
}

/// The first line that a program prints.
fn said(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("run {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|_| output.status.success());
    Ok(line.unwrap_or("unknown").to_owned())
}

fn cpu_model(cpuinfo: &str) -> &str {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "model name")
        .map_or("unknown", |(_, model)| model.trim())
}

/// A guest of KVM is offered KVM's clock.
fn emulator(version: &str, node: &str) -> String {
    let clocks = node.lines().nth(2).unwrap_or_default();
    let how = if clocks.contains("kvm-clock") {
        "KVM"
    } else {
        "TCG (no KVM)"
    };
    let version = version.split(" (").next().unwrap_or(version);
    format!("{version}, {how}")
}

fn node(said: &str) -> String {
    let mut lines = said.lines();
    let mut line = || lines.next().unwrap_or("unknown");
    let (kernel, cpus) = (line(), line());
    let iproute = said.lines().last().unwrap_or("unknown");
    let iproute = iproute.trim_start_matches("ip utility, ");
    let iproute = iproute.split(',').next().unwrap_or(iproute);
    format!("shape B4.8 (16 rails), Linux {kernel}, {cpus} CPUs, {iproute}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str =
        "7.3.4+deb13-amd64\n5\ntsc hpet acpi_pm \nip utility, iproute2-6.15.0, libbpf 1.5.0\n";

    #[test]
    fn facts_are_read_from_what_programs_say() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2 GHz\n\nprocessor: 1\n";
        assert_eq!(cpu_model(cpuinfo), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model(""), "unknown");
        assert_eq!(
            node(NODE),
            "shape B4.8 (16 rails), Linux 7.3.4+deb13-amd64, 5 CPUs, iproute2-6.15.0"
        );
    }

    #[test]
    fn kvm_is_not_called_emulation() {
        let version = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)";
        assert_eq!(
            emulator(version, NODE),
            "QEMU emulator version 7.2.22, TCG (no KVM)"
        );
        let kvm = NODE.replace("hpet", "kvm-clock");
        assert_eq!(emulator(version, &kvm), "QEMU emulator version 7.2.22, KVM");
    }

    #[test]
    fn the_list_has_a_line_for_each_fact() {
        let facts = vec![("CPU", "one".to_owned()), ("date", "today".to_owned())];
        assert_eq!(Machine { facts }.list(), "- CPU: one\n- date: today\n");
    }

    #[test]
    fn this_machine_can_be_surveyed() {
        let load: f64 = load_average().unwrap().parse().unwrap();
        assert!(load >= 0.0);
        assert_eq!(said("sh", &["-c", "echo a; echo b"]).unwrap(), "a");
        assert_eq!(said("sh", &["-c", "echo a; false"]).unwrap(), "unknown");
    }
}
