//! A node with the product on it, pods, and pictures of the kernel's state taken by `ip -j`.

pub(crate) use podrail_lab::testing::CONFIG;
use podrail_lab::testing::{ENVIRONMENT, lab_with_or_skip};
use podrail_lab::{Builder, Lab, Output};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A virtual node with the product in `/usr/bin` and its configuration in place.
pub(crate) struct Node {
    pub(crate) lab: Lab,
}

impl Node {
    /// Boots; nothing where the lab is not set up (a counted skip).
    pub(crate) fn boot(shape: &str) -> Option<Self> {
        Self::boot_with(shape, |builder| builder)
    }

    /// Boots with changes to the node.
    pub(crate) fn boot_with(shape: &str, change: impl FnOnce(Builder) -> Builder) -> Option<Self> {
        let with_program = |builder: Builder| change(builder).program("podrail", program());
        let lab = lab_with_or_skip(shape, &[], with_program)?;
        let node = Self { lab };
        node.configure(CONFIG);
        Some(node)
    }

    /// Replaces the configuration file.
    pub(crate) fn configure(&self, text: &str) {
        self.sh("mkdir -p /etc/podrail");
        self.lab
            .write_file("/etc/podrail/config.yaml", 0o644, text.as_bytes())
            .unwrap();
    }

    /// Runs the product in the host's namespace.
    pub(crate) fn podrail(&self, words: &str) -> Output {
        self.podrail_with(words, &[])
    }

    /// Runs the product with further environment.
    pub(crate) fn podrail_with(&self, words: &str, env: &[(&str, &str)]) -> Output {
        let argv = std::iter::once("podrail").chain(words.split_whitespace());
        let env = ENVIRONMENT.iter().chain(env);
        env.fold(self.lab.cmd(argv), |cmd, (key, value)| cmd.env(key, value))
            .run()
            .unwrap()
    }

    /// Runs the product, which must succeed; its standard output.
    pub(crate) fn podrail_ok(&self, words: &str) -> String {
        let output = self.podrail(words);
        assert_eq!(
            code(&output),
            0,
            "podrail {words}: {}",
            output.stderr_text()
        );
        output.text()
    }

    /// Runs the product with `-o json`, which must succeed.
    pub(crate) fn podrail_json(&self, words: &str) -> Value {
        serde_json::from_str(&self.podrail_ok(&format!("{words} -o json"))).unwrap()
    }

    /// Runs a script, which must succeed; its standard output.
    pub(crate) fn sh(&self, script: &str) -> String {
        let output = self.lab.sh(script).unwrap();
        assert_eq!(
            code(&output),
            0,
            "{script}: {} {}",
            output.text(),
            output.stderr_text()
        );
        output.text()
    }

    /// Makes an empty network namespace with `lo` up.
    pub(crate) fn pod(&self, name: &str) {
        self.sh(&format!(
            "ip netns add {name} && ip -n {name} link set lo up"
        ));
    }

    /// `ip -j …` as JSON.
    pub(crate) fn ip(&self, words: &str) -> Value {
        let text = self.sh(&format!("ip -j {words}"));
        // No object at all is an empty text.
        if text.trim().is_empty() {
            Value::Array(vec![])
        } else {
            serde_json::from_str(&text).unwrap()
        }
    }

    /// Everything that an attachment touches in the host and in the given namespaces, as text:
    /// links, addresses, rules, routes of all tables, the namespace's rp_filter, and the leases.
    /// Counters, lifetimes and the state of IPv6 address detection are left out.
    pub(crate) fn picture(&self, pods: &[&str]) -> String {
        let mut script =
            String::from("echo == host; ip -d -j link | jq -cS '.[] | del(.stats, .stats64)';");
        for pod in pods {
            script.push_str(&format!(
                "echo == {pod}; ip -n {pod} -d -j link | jq -cS '.[]'; ip -n {pod} -j addr | \
                 jq -cS '.[] | [.ifname, [.addr_info[] | [.local, .prefixlen, .scope]]]'; \
                 for f in 4 6; do ip -n {pod} -$f -j rule | jq -cS '.[]'; \
                 ip -n {pod} -$f -j route show table all | jq -cS '.[]'; done; \
                 ip netns exec {pod} cat /proc/sys/net/ipv4/conf/all/rp_filter; "
            ));
        }
        script
            .push_str("echo == leases; podrail status -o json | jq -cS '.[] | [.sandbox, .rails]'");
        self.sh(&script)
    }
}

/// Exit code of a command that was not killed.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.shell_code()
}

/// The product with its fault points: the one that `PODRAIL_BIN_PODRAIL_WITH_FAULTS` names, else
/// built once per test process.
fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let ready = || std::env::var_os("PODRAIL_BIN_PODRAIL_WITH_FAULTS").map(PathBuf::from);
    BUILT.get_or_init(|| ready().unwrap_or_else(build)).clone()
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = [
        "build",
        "--quiet",
        "--package",
        "podrail",
        "--features",
        "faults",
    ];
    let status = Command::new(cargo)
        .args(words)
        .current_dir(&root)
        .status()
        .unwrap();
    assert!(status.success(), "cargo build of the product failed");
    // A copy: a build without the feature would put another program in its place.
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let copy = target.join("debug/podrail-with-faults");
    std::fs::copy(target.join("debug/podrail"), &copy).unwrap();
    copy
}
