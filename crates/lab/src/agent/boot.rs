//! Sets the node up: drivers, interface names, addresses, RDMA devices.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

use super::modules::Loader;
use super::{Trouble, disk, mounts, uptime_ms};
use crate::plan::{Interface, NodePlan, PLAN_PATH};
use crate::wire::{BootReport, PORT};

/// Drivers of the agent's port.
const PORT_MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Drivers of the rails, and the user's ways to them.
const RAIL_MODULES: [&str; 4] = ["virtio_net", "rdma_rxe", "ib_uverbs", "rdma_ucm"];

/// Loads the port's drivers and opens it.
pub(super) fn open_port(loader: &Loader) -> Result<File, Trouble> {
    PORT_MODULES.iter().try_for_each(|name| loader.load(name))?;
    let class = "/sys/class/virtio-ports";
    for entry in fs::read_dir(class).map_err(Trouble::at(format!("read {class}")))? {
        let path = entry?.path();
        let name = fs::read_to_string(path.join("name")).unwrap_or_default();
        if name.trim() == PORT {
            let device = format!(
                "/dev/{}",
                path.file_name().unwrap_or_default().to_string_lossy()
            );
            let opened = File::options().read(true).write(true).open(&device);
            return opened.map_err(Trouble::at(format!("open {device}")));
        }
    }
    Err(Trouble(format!("no virtio port is called {PORT}")))
}

/// Makes the node what the plan says.
pub(super) fn set_up(loader: &Loader) -> Result<BootReport, Trouble> {
    let agent_ms = uptime_ms();
    let plan = fs::read(format!("/{PLAN_PATH}")).map_err(Trouble::at("read the plan"))?;
    let plan: NodePlan = serde_json::from_slice(&plan).map_err(Trouble::at("the plan"))?;
    if plan.disk {
        disk::attach(loader)?;
    }
    RAIL_MODULES.iter().try_for_each(|name| loader.load(name))?;
    batch("ip", "-batch", &interface_lines(&plan.interfaces)?)?;
    batch("ip", "-batch", &plan.routes)?;
    quiet_rails(&plan.interfaces);
    batch("rdma", "-b", &plan.rdma)?;
    mounts::root_view(&plan.gpus)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(BootReport {
        kernel: kernel.trim().into(),
        agent_ms,
        ready_ms: uptime_ms(),
    })
}

fn interface_lines(interfaces: &[Interface]) -> Result<Vec<String>, Trouble> {
    let mut lines = vec!["link set dev lo up".to_owned()];
    for Interface {
        pci,
        name,
        mtu,
        address,
    } in interfaces
    {
        let found = kernel_name(pci)?;
        lines.push(format!("link set dev {found} name {name} mtu {mtu}"));
        if let Some(address) = address {
            lines.push(format!("address add {address} dev {name}"));
        }
        lines.push(format!("link set dev {name} up"));
    }
    Ok(lines)
}

/// The interface of a PCI function: a virtio function has its `net` one level down.
fn kernel_name(pci: &str) -> Result<String, Trouble> {
    let device = format!("/sys/bus/pci/devices/{pci}");
    let entries = fs::read_dir(&device).map_err(Trouble::at(format!("read {device}")))?;
    for entry in entries.filter_map(Result::ok) {
        let names = fs::read_dir(entry.path().join("net"));
        if let Some(Ok(name)) = names.ok().and_then(|mut names| names.next()) {
            return Ok(name.file_name().to_string_lossy().into_owned());
        }
    }
    Err(Trouble(format!("no interface at {pci}")))
}

/// Sixteen addresses of one subnet in one namespace: each rail answers and announces its own. Set on
/// the rails only: `all` and `default` would be inherited by new namespaces and hide what a pod's
/// attachment forgets. Best effort, as a node's own configuration is not what is tested.
fn quiet_rails(interfaces: &[Interface]) {
    for Interface { name, .. } in interfaces {
        for (key, value) in [
            ("arp_ignore", "1"),
            ("arp_announce", "2"),
            ("rp_filter", "0"),
        ] {
            drop(fs::write(
                format!("/proc/sys/net/ipv4/conf/{name}/{key}"),
                value,
            ));
        }
    }
}

/// One process for many lines: a start costs 20 ms and more under emulation.
fn batch(program: &str, flag: &str, lines: &[String]) -> Result<(), Trouble> {
    let mut child = Command::new(program)
        .args([flag, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Trouble::at(format!("start {program}")))?;
    if let Some(mut input) = child.stdin.take() {
        let text = lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>();
        input
            .write_all(text.as_bytes())
            .map_err(Trouble::at(format!("write to {program}")))?;
    }
    let output = child
        .wait_with_output()
        .map_err(Trouble::at(format!("wait for {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Trouble(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    )))
}
