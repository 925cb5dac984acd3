//! `cargo xtask demo`: two jobs on one virtual node, in real containers, for a person to watch.
//!
//! Everything that is printed below a step comes from the node; a step that fails ends the demo
//! with its output and a non-zero exit.

mod table;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use podrail_lab::kube::{Kube, PROGRAMS, Pod};
use podrail_lab::{Lab, LabError, Shape, testing};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Instant;

/// GPUs of the node.
const GPUS: usize = 8;

/// A message from one end to the other over the pod's own GID, both ends in the pod. The client is
/// tried until the server listens.
const TRANSFER: &str = "\
read -r iface ip dev idx < <(podrail map)
echo \"$ ib_write_bw -d $dev -x $idx ... $ip   # $iface\"
run() { ib_write_bw -d $dev -x $idx -F -n 200 -s 65536 \"$@\"; }
run >/tmp/server 2>&1 & server=$!
for try in $(seq 100); do
    if run $ip >/tmp/client 2>&1; then break; fi
    kill -0 $server 2>/dev/null || break
done
wait $server || { cat /tmp/server /tmp/client; exit 1; }
grep -E '#bytes|^ 65536' /tmp/client
";

/// How to show it.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// GPUs of the first job; the second gets the others. 2 rails for each GPU.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4,5")]
    gpus: Vec<usize>,
}

/// A job: its pod's name and its GPUs.
#[derive(Debug, Clone)]
struct Job {
    name: &'static str,
    gpus: Vec<usize>,
}

impl Job {
    fn rails(&self) -> usize {
        2 * self.gpus.len()
    }
}

/// Runs the demo.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let jobs = jobs(&options.gpus)?;
    let start = Instant::now();
    let step = |text: &str| println!("\n==> [{:4.1} s] {text}", start.elapsed().as_secs_f64());
    step("building the programs");
    let shape = Shape::named("B4.8").map_err(report)?;
    let mut builder = Lab::builder(shape.clone()).containerd();
    for (package, binary) in PROGRAMS {
        let program = testing::cargo_binary(package, binary).map_err(report)?;
        builder = builder.program(binary, program);
    }
    step("booting a virtual BM.GPU.B4.8: 8 GPUs, 16 rails, a real kernel under emulation");
    let lab = builder.boot().map_err(report)?;
    println!("up after {:.1} s", lab.boot_time().as_secs_f64());
    let kube = lab.kube();
    step("starting containerd with runc, a stand-in kubelet, a GPU plugin, and 'podrail agent'");
    kube.start().map_err(report)?;
    print_end(&kube.log("podrail-agent").map_err(report)?, 4);
    step("podrail topo");
    show(kube, "topo")?;
    for job in &jobs {
        step(&described(job));
        kube.run(&pod(kube, job)).map_err(report)?;
        show(kube, &format!("explain --pod default/{}", job.name))?;
    }
    step("podrail check, inside the first job's container: unprivileged, default capabilities");
    exec(kube, "job1", "podrail check")?;
    step("an RDMA write inside it, over the pod's own GID");
    exec(kube, "job1", TRANSFER)?;
    step("the same two jobs under three allocators");
    table::print(&shape, &jobs, &status(kube)?)?;
    step("deleting both jobs");
    finish(kube, &jobs)?;
    step("done: every rail of both jobs was next to one of its GPUs, and nothing is left");
    Ok(ExitCode::SUCCESS)
}

/// Both jobs. Any split of the GPUs will do.
fn jobs(first: &[usize]) -> Result<Vec<Job>> {
    let mut gpus = first.to_vec();
    gpus.sort_unstable();
    gpus.dedup();
    ensure!(
        gpus.len() == first.len() && gpus.iter().all(|gpu| *gpu < GPUS),
        "--gpus takes different numbers from 0 to {}",
        GPUS - 1
    );
    let others = (0..GPUS).filter(|gpu| !gpus.contains(gpu)).collect();
    let jobs = [("job1", gpus), ("job2", others)];
    let jobs = jobs.map(|(name, gpus): (_, Vec<usize>)| Job { name, gpus });
    Ok(jobs
        .into_iter()
        .filter(|job| !job.gpus.is_empty())
        .collect())
}

fn described(job: &Job) -> String {
    let (gpus, rails) = (&job.gpus, job.rails());
    format!("{}: a pod with GPUs {gpus:?} and {rails} rails", job.name)
}

/// The pod of a job, with the product's program for `check` and `map`.
fn pod(kube: Kube<'_>, job: &Job) -> Pod {
    let mount = |name: &str, path: &str| {
        (
            serde_json::json!({ "name": name, "mountPath": path, "readOnly": true }),
            serde_json::json!({ "name": name, "hostPath": { "path": path } }),
        )
    };
    let (mounted, volume) = mount("podrail", "/usr/bin/podrail");
    Pod::sleeping(kube, job.name, &job.gpus, job.rails())
        .with(
            "/spec/containers/0/volumeMounts",
            Value::from(vec![mounted]),
        )
        .with("/spec/volumes", Value::from(vec![volume]))
}

fn report(error: LabError) -> anyhow::Error {
    anyhow::anyhow!(error.report())
}

fn show(kube: Kube<'_>, words: &str) -> Result<()> {
    println!("$ podrail {words}");
    println!("{}", kube.podrail(words).map_err(report)?.trim_end());
    Ok(())
}

fn print_end(text: &str, lines: usize) {
    let all: Vec<&str> = text.lines().collect();
    for line in all.iter().skip(all.len().saturating_sub(lines)) {
        println!("{line}");
    }
}

fn exec(kube: Kube<'_>, pod: &str, script: &str) -> Result<()> {
    if !script.contains('\n') {
        println!("$ {script}");
    }
    let output = kube.exec(pod, script).map_err(report)?;
    println!("{}", output.text().trim_end());
    if output.status.shell_code() != 0 {
        bail!("inside {pod}: {}", output.stderr_text());
    }
    Ok(())
}

fn status(kube: Kube<'_>) -> Result<Value> {
    let text = kube.podrail("status -o json").map_err(report)?;
    serde_json::from_str(&text).context("read the status")
}

/// Deletes the pods and proves that nothing is left, by iproute2 and `ls`, not by our own reader.
fn finish(kube: Kube<'_>, jobs: &[Job]) -> Result<()> {
    for job in jobs {
        kube.delete(job.name).map_err(report)?;
    }
    show(kube, "status")?;
    let looks = "for n in $(ip netns | cut -d' ' -f1); do ip -n $n -br link show type ipvlan; done; \
                 ls /var/run/cdi";
    let left = kube.sh(looks).map_err(report)?;
    ensure!(left.trim().is_empty(), "left on the node:\n{left}");
    println!("no IPvlan interface and no device file left (ip link, ls /var/run/cdi)");
    Ok(())
}
