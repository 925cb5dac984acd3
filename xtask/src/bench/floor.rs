//! The floor: what an attachment costs when every name and number is known beforehand and iproute2
//! and a shell only carry it out.
//!
//! The values are those of a plan that the product made and printed; that both come to the same in
//! the kernel is compared before anything is timed.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write;

/// Settings of each child that stand before it is up.
const SYSCTLS: [(&str, &str); 6] = [
    ("ipv4/arp_announce", "2"),
    ("ipv4/arp_filter", "1"),
    ("ipv4/arp_ignore", "1"),
    ("ipv4/rp_filter", "0"),
    ("ipv4/accept_local", "1"),
    ("ipv6/accept_ra", "0"),
];

/// What `podrail attach -o json` says of its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    sandbox: String,
    group: u64,
    rails: Vec<Rail>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rail {
    index: u64,
    parent: String,
    child: String,
    mtu: u64,
    address: String,
}

impl Plan {
    pub(super) fn read(json: &str) -> Result<Self> {
        let shown: Value = serde_json::from_str(json).context("read the plan")?;
        let plan = field(&shown, "plan")?;
        let rails = field(plan, "rails")?.as_array().context("rails: no list")?;
        Ok(Self {
            sandbox: text(plan, "sandbox")?,
            group: number(plan, "group")?,
            rails: rails.iter().map(Rail::read).collect::<Result<_>>()?,
        })
    }

    /// Name and content of the files of the guest's script, for this number of rails.
    pub(super) fn files(&self, gpus: &str) -> Vec<(String, String)> {
        let rails = self.rails.len();
        let per_rail = |line: fn(&Rail, &Self) -> String| -> String {
            self.rails.iter().map(|rail| line(rail, self)).collect()
        };
        let batch = format!("/run/bench/{rails}.batch");
        let script = format!(
            "set -e\necho 0 >/proc/sys/net/ipv4/conf/all/rp_filter\n{}exec ip -batch {batch}\n",
            per_rail(Rail::sysctls)
        );
        let files = [
            ("links", per_rail(Rail::link)),
            ("batch", per_rail(Rail::settings)),
            ("sh", script),
            (
                "deletes",
                per_rail(|rail, _| format!("link del {}\n", rail.child)),
            ),
            ("group", self.group.to_string()),
            ("gpus", gpus.to_owned()),
        ];
        files
            .map(|(kind, content)| (format!("/run/bench/{rails}.{kind}"), content))
            .into()
    }
}

impl Rail {
    fn read(rail: &Value) -> Result<Self> {
        let addresses = field(rail, "addresses")?;
        Ok(Self {
            index: number(rail, "rail")?,
            parent: text(rail, "parent")?,
            child: text(rail, "child")?,
            mtu: number(rail, "mtu")?,
            address: addresses
                .pointer("/0")
                .and_then(Value::as_str)
                .context("addresses: no first one")?
                .to_owned(),
        })
    }

    fn link(&self, plan: &Plan) -> String {
        let (parent, child, mtu) = (&self.parent, &self.child, self.mtu);
        let (pod, group) = (&plan.sandbox, plan.group);
        format!(
            "link add link {parent} name {child} netns {pod} mtu {mtu} group {group} \
             type ipvlan mode l2\n"
        )
    }

    fn sysctls(&self, _: &Plan) -> String {
        let mut lines = String::new();
        for (setting, value) in SYSCTLS {
            let (family, key) = setting.split_once('/').unwrap_or((setting, ""));
            let path = format!("/proc/sys/net/{family}/conf/{}/{key}", self.child);
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "echo {value} >{path}");
        }
        lines
    }

    fn settings(&self, plan: &Plan) -> String {
        let (child, address, index) = (&self.child, &self.address, self.index);
        let (source, table) = (address.split('/').next().unwrap_or(address), 100 + index);
        let (pod, priority) = (&plan.sandbox, 30_000 + table);
        let subnet = subnet(address);
        format!(
            "link set dev {child} alias podrail:{pod}:{index}\n\
             link set dev {child} up\n\
             addr add {address} dev {child}\n\
             route add {subnet} dev {child} src {source} table {table} protocol 112\n\
             rule add from {source} lookup {table} priority {priority} protocol 112\n"
        )
    }
}

/// The pool of the benchmark is a /24.
fn subnet(address: &str) -> String {
    let network = address
        .rsplit_once('.')
        .map_or(address, |(network, _)| network);
    format!("{network}.0/24")
}

fn field<'a>(value: &'a Value, name: &str) -> Result<&'a Value> {
    value.get(name).with_context(|| format!("no {name}"))
}

fn text(value: &Value, name: &str) -> Result<String> {
    let text = field(value, name)?.as_str();
    Ok(text.with_context(|| format!("{name}: no text"))?.to_owned())
}

fn number(value: &Value, name: &str) -> Result<u64> {
    let number = field(value, name)?.as_u64();
    number.with_context(|| format!("{name}: no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"state": "ready", "plan": {"sandbox": "job", "group": 1574186972,
        "namespace_sysctls": [], "rails": [{"rail": 3, "parent": "rdma3", "child": "net4",
        "mtu": 4220, "addresses": ["10.239.255.30/24"], "gateways": []}]}}"#;

    fn file(kind: &str) -> String {
        let files = Plan::read(JSON).unwrap().files("0,1");
        let name = format!("/run/bench/1.{kind}");
        let found = files.into_iter().find(|(path, _)| *path == name);
        found.unwrap().1
    }

    #[test]
    fn the_floor_makes_the_links_and_settings_of_the_plan() {
        assert_eq!(
            file("links"),
            "link add link rdma3 name net4 netns job mtu 4220 group 1574186972 type ipvlan mode l2\n"
        );
        let batch = file("batch");
        assert!(
            batch.contains("link set dev net4 alias podrail:job:3\n"),
            "{batch}"
        );
        assert!(
            batch.contains("addr add 10.239.255.30/24 dev net4\n"),
            "{batch}"
        );
        let route = "route add 10.239.255.0/24 dev net4 src 10.239.255.30 table 103 protocol 112\n";
        assert!(batch.contains(route), "{batch}");
        let rule = "rule add from 10.239.255.30 lookup 103 priority 30103 protocol 112\n";
        assert!(batch.ends_with(rule), "{batch}");
        let script = file("sh");
        assert!(
            script.starts_with("set -e\necho 0 >/proc/sys/net/ipv4/conf/all/rp_filter\n"),
            "{script}"
        );
        assert!(
            script.contains("echo 2 >/proc/sys/net/ipv4/conf/net4/arp_announce\n"),
            "{script}"
        );
        assert!(
            script.contains("echo 0 >/proc/sys/net/ipv6/conf/net4/accept_ra\n"),
            "{script}"
        );
        assert!(
            script.ends_with("exec ip -batch /run/bench/1.batch\n"),
            "{script}"
        );
    }

    #[test]
    fn deletes_are_one_by_one_or_by_group() {
        assert_eq!(file("deletes"), "link del net4\n");
        assert_eq!(file("group"), "1574186972");
        assert_eq!(file("gpus"), "0,1");
    }

    #[test]
    fn a_plan_that_lacks_something_is_an_error() {
        for missing in ["\"plan\"", "\"group\"", "\"mtu\"", "\"child\"", "\"rails\""] {
            let broken = JSON.replace(missing, "\"other\"");
            assert!(Plan::read(&broken).is_err(), "{missing}");
        }
        assert!(Plan::read(&JSON.replace("[\"10.239.255.30/24\"]", "[]")).is_err());
        assert!(Plan::read("no JSON").is_err());
    }
}
