//! A network namespace of one test, made and judged by `ip`, gone when dropped.

use podrail_netlink::{NetNs, Rtnl};
use serde_json::Value;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A namespace below `/run/netns`, named after this process.
pub(crate) struct Sandbox {
    name: String,
}

impl Sandbox {
    /// A fresh namespace; `None` where this machine cannot make one, which is a failure where
    /// `PODRAIL_REQUIRE_NETNS` is set.
    pub(crate) fn new() -> Option<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("podrail-nl-{}-{number}", std::process::id());
        match Command::new("ip").args(["netns", "add", &name]).output() {
            Ok(output) if output.status.success() => Some(Self { name }),
            Ok(output) => skip(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => skip(&format!("cannot start ip: {error}")),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    pub(crate) fn netns(&self) -> NetNs {
        NetNs::open(self.path()).unwrap()
    }

    pub(crate) fn rtnl(&self) -> Rtnl {
        Rtnl::open_in(&self.netns()).unwrap()
    }

    /// Runs `ip` in the namespace; words are separated by spaces.
    pub(crate) fn ip(&self, words: &str) {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {words}: {errors}");
    }

    /// What `ip -j` says.
    pub(crate) fn judge(&self, words: &str) -> Vec<Value> {
        let output = self.run(&format!("-j -d {words}"));
        assert!(output.status.success(), "ip {words}");
        match serde_json::from_slice(&output.stdout) {
            Ok(Value::Array(items)) => items
                .into_iter()
                .filter(|item| item != &Value::Object(serde_json::Map::new()))
                .collect(),
            _ if output.stdout.trim_ascii().is_empty() => Vec::new(),
            other => panic!("ip {words}: {other:?}"),
        }
    }

    /// Index of an interface, according to sysfs-free `ip`.
    pub(crate) fn index(&self, name: &str) -> u32 {
        let found = self.judge(&format!("link show dev {name}"));
        u32::try_from(found[0]["ifindex"].as_u64().unwrap()).unwrap()
    }

    /// A sysctl, read by `cat` inside the namespace.
    pub(crate) fn sysctl(&self, key: &str) -> String {
        let output = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.name,
                "cat",
                &format!("/proc/sys/{key}"),
            ])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn run(&self, words: &str) -> Output {
        Command::new("ip")
            .args(["-n", &self.name])
            .args(words.split(' '))
            .output()
            .unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let deleted = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
        drop(deleted);
    }
}

fn skip(why: &str) -> Option<Sandbox> {
    assert!(
        std::env::var_os("PODRAIL_REQUIRE_NETNS").is_none(),
        "network namespaces are required here: {why}"
    );
    println!("skipped: {why}");
    None
}
