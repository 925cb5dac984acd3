//! `cargo xtask demo`: the main job on a virtual node, step by step, for a person to watch.
//!
//! Everything that is printed below a step comes from the node; a step that fails ends the demo
//! with its output and a non-zero exit.

use anyhow::{Context, Result, bail};
use podrail_lab::{Lab, LabError, Shape, testing};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Instant;

const CONFIG: &str = "\
gpus: { generic: true }        # the virtual GPUs are plain display functions
pool:
  name: rails
  subnets: [10.239.255.0/24]
  blockSize: 32
";

/// The two jobs of the post: name, GPUs.
const JOBS: [(&str, &str); 2] = [("job1", "0,1,6,7"), ("job2", "2,3,4,5")];

/// A message from one end to the other over the pod's own GID, both ends in the pod. The client is
/// tried until the server listens.
const TRANSFER: &str = "\
run() { ib_write_bw -d $DEV -x $IDX -F -n 200 -s 65536 \"$@\"; }
run >/tmp/server 2>&1 & server=$!
for try in $(seq 100); do
    if run $IP >/tmp/client 2>&1; then break; fi
    kill -0 $server 2>/dev/null || break
done
wait $server || { cat /tmp/server /tmp/client; exit 1; }
grep -E '#bytes|^ 65536' /tmp/client
";

/// Runs the demo.
pub(crate) fn run() -> Result<ExitCode> {
    let start = Instant::now();
    let step = |text: &str| println!("\n==> [{:4.1} s] {text}", start.elapsed().as_secs_f64());
    step("building podrail");
    let program = testing::cargo_binary("podrail", "podrail").map_err(report)?;
    step("booting a virtual BM.GPU.B4.8: 8 GPUs, 16 rails, a real kernel under emulation");
    let shape = Shape::named("B4.8").map_err(report)?;
    let node = Node(
        Lab::builder(shape)
            .program("podrail", program)
            .boot()
            .map_err(report)?,
    );
    println!("up after {:.1} s", node.0.boot_time().as_secs_f64());
    node.prepare()?;
    step("podrail topo");
    node.show("podrail topo")?;
    for (job, gpus) in JOBS {
        step(&format!("{job}: a pod with GPUs {gpus} asks for 8 rails"));
        node.show(&attach(job, gpus))?;
    }
    step("podrail status");
    node.show("podrail status")?;
    for (job, _) in JOBS {
        step(&format!("podrail map and check, inside {job}"));
        node.show(&format!("ip netns exec {job} podrail check --rails 8"))?;
    }
    step("an RDMA write inside job1, over the pod's own GID");
    node.transfer("job1")?;
    step("detaching both jobs");
    node.finish()?;
    step("done: each job had 8 of 8 rails next to its GPUs, and nothing is left");
    Ok(ExitCode::SUCCESS)
}

fn attach(job: &str, gpus: &str) -> String {
    format!("podrail attach --netns /run/netns/{job} --id {job} --gpus {gpus} --rails 8")
}

fn report(error: LabError) -> anyhow::Error {
    anyhow::anyhow!(error.report())
}

struct Node(Lab);

impl Node {
    /// Runs a line of shell on the node; its standard output, or all of its output as an error.
    fn sh(&self, line: &str) -> Result<String> {
        let output = self
            .0
            .cmd(["bash", "-c", line])
            .env("PODRAIL_ROOT", "/lab/root")
            .env("PODRAIL_NODE_ADDRESS", "10.140.67.66")
            .run()
            .map_err(report)?;
        if output.status.shell_code() != 0 {
            bail!("{line}\n{}{}", output.text(), output.stderr_text());
        }
        Ok(output.text())
    }

    /// Runs a line of shell and prints what it says.
    fn show(&self, line: &str) -> Result<()> {
        println!("$ {line}");
        println!("{}", self.sh(line)?.trim_end());
        Ok(())
    }

    fn prepare(&self) -> Result<()> {
        self.sh("mkdir -p /etc/podrail")?;
        let config = "/etc/podrail/config.yaml";
        self.0
            .write_file(config, 0o644, CONFIG.as_bytes())
            .map_err(report)?;
        for (job, _) in JOBS {
            self.sh(&format!("ip netns add {job} && ip -n {job} link set lo up"))?;
        }
        Ok(())
    }

    fn transfer(&self, job: &str) -> Result<()> {
        let text = self.sh(&format!("ip netns exec {job} podrail map -o json"))?;
        let map: Value = serde_json::from_str(&text).context("read the map")?;
        let field = |name: &str| {
            map.pointer(&format!("/0/{name}"))
                .cloned()
                .unwrap_or_default()
        };
        let (device, address) = (field("device"), field("address"));
        let (device, address) = (
            device.as_str().unwrap_or(""),
            address.as_str().unwrap_or(""),
        );
        let index = field("gid_index");
        println!("$ ib_write_bw -d {device} -x {index} … {address}");
        let script = format!("DEV={device} IDX={index} IP={address}\n{TRANSFER}");
        let output = self.0.in_netns(job).sh(&script).map_err(report)?;
        println!("{}", output.text().trim_end());
        if output.status.shell_code() != 0 {
            bail!("the transfer failed: {}", output.stderr_text());
        }
        Ok(())
    }

    /// Detaches and proves that nothing is left, by iproute2 and not by our own reader.
    fn finish(&self) -> Result<()> {
        for (job, _) in JOBS {
            self.show(&format!("podrail detach --id {job}"))?;
        }
        self.show("podrail status")?;
        for (job, _) in JOBS {
            let left = self.sh(&format!(
                "ip -n {job} -br link show type ipvlan; ip -n {job} rule show | grep 'proto 112'; \
                 ip -n {job} route show table all proto 112"
            ))?;
            if !left.trim().is_empty() {
                bail!("left in {job}:\n{left}");
            }
            println!(
                "{job}: no IPvlan interface, no rule, no route left (ip link, ip rule, ip route)"
            );
        }
        Ok(())
    }
}
