//! Renders a shape as QEMU arguments. Pure: the machine module starts the process.

use std::path::Path;

use crate::shape::{Device, Kind, Root, Shape};
use crate::wire::PORT;

/// How the CPU is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accel {
    /// Emulation: works everywhere.
    Tcg,
    /// The host's KVM: only when asked for, since its device node proves nothing.
    Kvm,
}

impl Accel {
    /// The accelerator and the CPU model.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            // One thread for all CPUs: with several, the guest's text patching races now and then.
            Self::Tcg => ("tcg,thread=single,tb-size=512", "Nehalem"),
            Self::Kvm => ("kvm", "host"),
        }
    }
}

/// The files and words of one start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) accel: Accel,
    pub(crate) vmlinux: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) console: &'a Path,
    pub(crate) agent_socket: &'a Path,
    /// A raw image for the node's state.
    pub(crate) disk: Option<&'a Path>,
    pub(crate) kernel_arguments: &'a [String],
}

/// Each word for a reason: `reboot=t` and `panic=-1` end QEMU when the kernel dies (`-no-reboot`);
/// self-tests, mitigations, the delay-loop and TSC calibrations and port services cost seconds
/// under emulation, as does routing legacy interrupts by ACPI (all devices have MSI-X); `nokaslr` keeps addresses in a kept console readable.
const KERNEL: &str = "console=ttyS0 panic=-1 reboot=t mitigations=off nokaslr quiet \
                      cryptomgr.notests pcie_ports=compat acpi=noirq tsc=reliable no_timer_check lpj=4000000";

/// The arguments after the program's name.
pub(crate) fn arguments(shape: &Shape, launch: &Launch<'_>) -> Vec<String> {
    let mut out = Arguments {
        rail_speed_mbit: shape.rail_speed_mbit,
        ..Arguments::default()
    };
    out.machine(shape, launch);
    out.numa(shape);
    out.cpus(shape, launch.accel);
    for (index, root) in shape.roots.iter().enumerate() {
        out.root(index, root);
    }
    out.agent(launch.agent_socket);
    if let Some(image) = launch.disk {
        out.disk(image);
    }
    out.words
}

#[derive(Default)]
struct Arguments {
    words: Vec<String>,
    /// Root and downstream ports so far: each needs its own chassis and slot number.
    slots: u32,
    /// Network functions so far, for their MAC addresses.
    functions: u32,
    gpus: u32,
    rail_speed_mbit: u32,
}

impl Arguments {
    fn option(&mut self, name: &str, value: impl Into<String>) {
        self.words.extend([name.into(), value.into()]);
    }

    fn machine(&mut self, shape: &Shape, launch: &Launch<'_>) {
        let sockets = shape.sockets;
        let (accel, cpu) = launch.accel.words();
        let memory = shape.memory_mib_per_numa_node * shape.numa_nodes;
        let cpus = shape.cpus();
        let cores = cpus / sockets;
        self.option("-accel", accel);
        self.option("-machine", "q35");
        self.option("-cpu", cpu);
        // Possible CPUs; those present are added one by one.
        let possible = format!("1,maxcpus={cpus},sockets={sockets},cores={cores},threads=1");
        self.option("-smp", possible);
        self.option("-m", memory.to_string());
        self.words
            .extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
        self.option("-display", "none");
        self.option("-serial", format!("file:{}", launch.console.display()));
        self.option("-kernel", launch.vmlinux.display().to_string());
        self.option("-initrd", launch.initrd.display().to_string());
        let mut words = vec![KERNEL.to_owned()];
        words.extend_from_slice(launch.kernel_arguments);
        self.option("-append", words.join(" "));
    }

    fn numa(&mut self, shape: &Shape) {
        let cpus = cpus_of_nodes(shape);
        for node in 0..shape.numa_nodes {
            let size = shape.memory_mib_per_numa_node;
            self.option(
                "-object",
                format!("memory-backend-ram,id=mem{node},size={size}M"),
            );
            let own = cpus.iter().zip(0..).filter(|(of, _)| **of == node);
            let own: String = own
                .map(|(_, cpu): (_, u32)| format!(",cpus={cpu}"))
                .collect();
            self.option("-numa", format!("node,nodeid={node},memdev=mem{node}{own}"));
        }
        for from in 0..shape.numa_nodes {
            for to in from + 1..shape.numa_nodes {
                // What a two-socket EPYC reports.
                let near = shape.socket(from) == shape.socket(to);
                let distance = if near { 12 } else { 32 };
                self.option("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }

    /// CPUs on the nodes that have roots; CPU 0 is there anyway. An emulated CPU costs half a second
    /// of every boot.
    fn cpus(&mut self, shape: &Shape, accel: Accel) {
        let cores = shape.cpus() / shape.sockets;
        let (_, model) = accel.words();
        for (cpu, node) in (0..).zip(cpus_of_nodes(shape)).skip(1) {
            if shape.roots.iter().any(|root| root.numa_node == node) {
                let (socket, core) = (cpu / cores, cpu % cores);
                let place = format!("socket-id={socket},core-id={core},thread-id=0");
                self.option("-device", format!("{model}-x86_64-cpu,{place}"));
            }
        }
    }

    fn root(&mut self, index: usize, root: &Root) {
        let id = format!("rc{index}");
        let (bus, node) = (root.bus, root.numa_node);
        self.option(
            "-device",
            format!("pxb-pcie,id={id},bus=pcie.0,bus_nr={bus},numa_node={node}"),
        );
        for (place, device) in root.devices.iter().enumerate() {
            let next = root.devices.get(place + 1).map(|next| next.bus);
            let port = format!("p{:02x}", device.bus);
            self.slots += 1;
            let slot = self.slots;
            // SeaBIOS honours the reserve: the gap up to the next device's bus number. Without
            // hotplug and I/O windows the kernel has less to probe.
            let gap = next.map_or(0, |next| next.saturating_sub(device.bus).saturating_sub(1));
            let reserve = if gap > 0 {
                format!(",bus-reserve={gap}")
            } else {
                String::new()
            };
            self.option(
                "-device",
                format!(
                    "pcie-root-port,id={port},bus={id},addr={place:#x},chassis={slot},slot={slot},\
                     hotplug=off,io-reserve=0{reserve}"
                ),
            );
            self.device(&port, device);
        }
    }

    fn device(&mut self, port: &str, device: &Device) {
        match &device.kind {
            Kind::Nic(names) => {
                let speed = format!(",speed={},duplex=full", self.rail_speed_mbit);
                self.nic(port, device.bus, names.len(), &speed);
            }
            Kind::FrontEnd(_) => self.nic(port, device.bus, 1, ""),
            Kind::Gpu => self.gpu(port),
            Kind::Switch(below) => self.switch(port, device.bus, below),
        }
    }

    fn gpu(&mut self, port: &str) {
        let number = self.gpus;
        self.gpus += 1;
        let gpu = format!("bochs-display,id=gpu{number},bus={port},vgamem=4194304,romfile=");
        self.option("-device", gpu);
    }

    fn nic(&mut self, port: &str, bus: u8, ports: usize, link: &str) {
        for function in 0..ports {
            let number = self.functions;
            self.functions += 1;
            let many = if function == 0 && ports > 1 {
                ",multifunction=on"
            } else {
                ""
            };
            // Two functions of one slot are a dual-port NIC. No backend: nothing is on the wire.
            // Event descriptors only
            // serve other threads, and each costs QEMU a rebuild of its memory map.
            // A second node would give `netdev=` here.
            self.option(
                "-device",
                format!(
                    "virtio-net-pci,id=n{bus:02x}f{function},bus={port},addr=0x0.{function},\
                     mac=08:c0:eb:00:01:{number:02x},disable-legacy=on,ioeventfd=off,\
                     romfile={link}{many}"
                ),
            );
        }
    }

    fn switch(&mut self, port: &str, bus: u8, below: &[Device]) {
        let upstream = format!("u{bus:02x}");
        self.option(
            "-device",
            format!("x3130-upstream,id={upstream},bus={port}"),
        );
        for (place, device) in below.iter().enumerate() {
            self.slots += 1;
            let slot = self.slots;
            let down = format!("d{:02x}", device.bus);
            self.option(
                "-device",
                format!(
                    "xio3130-downstream,id={down},bus={upstream},addr={place:#x},chassis={slot},\
                     slot={slot},hotplug=off"
                ),
            );
            self.device(&down, device);
        }
    }

    /// `cache=unsafe`: what the guest flushed is in the host's page cache, which a killed QEMU does
    /// not take along; what it did not flush is lost, as in a power cut.
    fn disk(&mut self, image: &Path) {
        let image = image.display();
        self.option(
            "-drive",
            format!("file={image},if=none,id=disk,format=raw,cache=unsafe,discard=unmap"),
        );
        self.option(
            "-device",
            "virtio-blk-pci,drive=disk,bus=pcie.0,addr=0x1e,disable-legacy=on,ioeventfd=off",
        );
    }

    /// The agent's port: QEMU connects to the socket on which the host listens already, so the
    /// guest never meets a port without a peer.
    fn agent(&mut self, socket: &Path) {
        self.option(
            "-chardev",
            format!("socket,id=agent,path={}", socket.display()),
        );
        self.option(
            "-device",
            "virtio-serial-pci,id=serial,bus=pcie.0,addr=0x1d,disable-legacy=on,ioeventfd=off",
        );
        self.option(
            "-device",
            format!("virtserialport,bus=serial.0,chardev=agent,name={PORT}"),
        );
    }
}

/// The NUMA node of each CPU, in order, every node with at least one: the guest's kernel numbers
/// nodes as they first appear in the SRAT, where QEMU lists CPUs before memory.
fn cpus_of_nodes(shape: &Shape) -> Vec<u32> {
    let count = shape.cpus();
    (0..count)
        .map(|cpu| cpu * shape.numa_nodes / count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(shape: &str) -> String {
        let launch = Launch {
            accel: Accel::Tcg,
            vmlinux: Path::new("VMLINUX"),
            initrd: Path::new("INITRD"),
            console: Path::new("CONSOLE"),
            agent_socket: Path::new("SOCKET"),
            disk: None,
            kernel_arguments: &["ib_core.netns_mode=0".into()],
        };
        let words = arguments(&Shape::named(shape).unwrap(), &launch);
        words
            .iter()
            .map(|word| {
                if word.starts_with('-') {
                    format!("\n{word}")
                } else {
                    format!(" {word}")
                }
            })
            .collect()
    }

    /// `UPDATE_EXPECT=1 cargo test -p podrail-lab` writes the expected texts anew.
    fn check(shape: &str) {
        let path = format!("{}/src/qemu/{shape}.txt", env!("CARGO_MANIFEST_DIR"));
        let got = format!("{}\n", rendered(shape).trim_start());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        assert_eq!(
            got,
            std::fs::read_to_string(&path).unwrap_or_default(),
            "{path}"
        );
    }

    #[test]
    fn b4_8_is_rendered_as_expected() {
        check("B4.8");
    }

    #[test]
    fn switches_are_rendered_as_expected() {
        check("S8");
    }

    #[test]
    fn every_node_has_a_cpu_in_order() {
        let nodes = |name| cpus_of_nodes(&Shape::named(name).unwrap());
        assert_eq!(nodes("B4.8"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(nodes("H100.8"), [0, 0, 1, 1]);
    }
}
