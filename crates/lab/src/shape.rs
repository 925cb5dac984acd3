//! A shape: what the virtual node looks like, as a checked value.
//!
//! The description is a TOML file of `shapes/`, or one given by path. It is checked once, at birth;
//! whoever holds a [`Shape`] holds one that QEMU and SeaBIOS can build.

mod check;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::error::LabError;

/// The shapes that come with the crate.
pub const NAMES: [&str; 3] = ["B4.8", "H100.8", "S8"];

/// The least number of virtual CPUs.
const CPUS: u32 = 4;

/// A node: NUMA nodes, PCIe roots, NICs, GPUs, names and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// What it is called.
    pub name: String,
    /// What the GPUs say they are.
    pub gpu_model: String,
    /// NUMA nodes, 0 to this less one.
    pub numa_nodes: u32,
    /// CPU sockets; NUMA nodes are spread over them in order.
    pub sockets: u32,
    /// Memory of each NUMA node.
    pub memory_mib_per_numa_node: u32,
    /// MTU of every rail.
    pub mtu: u32,
    /// Link speed that every rail reports.
    pub rail_speed_mbit: u32,
    /// The address of rail 0 in its subnet; the others follow.
    pub rail_address: Ipv4Net,
    /// The addresses of `fe0`, `fe1`...
    pub front_end_addresses: Vec<Ipv4Net>,
    /// The default route's gateway, by `fe0`.
    pub gateway: Ipv4Addr,
    /// The PCIe root complexes, by bus number.
    pub roots: Vec<Root>,
}

/// A PCIe root complex bound to a NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its bus number.
    pub bus: u8,
    /// The NUMA node it belongs to.
    pub numa_node: u32,
    /// What hangs below it, each behind a root port, by bus number.
    pub devices: Vec<Device>,
}

/// Something below a root or a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its bus number.
    pub bus: u8,
    /// What it is.
    pub kind: Kind,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A back-end NIC: one RDMA device name per port, each port a rail.
    Nic(Vec<String>),
    /// A front-end NIC and its RDMA device name.
    FrontEnd(String),
    /// A GPU.
    Gpu,
    /// A PCIe switch and what hangs below it.
    Switch(Vec<Device>),
}

/// A network function of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// PCI address, like `0000:0c:00.1`.
    pub pci: String,
    /// Interface name, like `rdma1` or `fe0`.
    pub netdev: String,
    /// RDMA device name, like `mlx5_6`.
    pub rdma: String,
    /// NUMA node.
    pub numa_node: u32,
}

/// A GPU of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// PCI address, like `0000:0f:00.0`.
    pub pci: String,
    /// `GPU-` and a UUID made of shape and place: the same in every run.
    pub uuid: String,
    /// Its number in PCI order.
    pub minor: u32,
    /// NUMA node.
    pub numa_node: u32,
}

/// One thing wrong with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field, like `roots[1].devices[0].bus`.
    pub path: String,
    /// What is wrong, with the allowed range.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The file as written, before any check.
#[derive(Debug, Deserialize)]
struct RawShape {
    name: String,
    gpu_model: String,
    numa_nodes: u32,
    sockets: u32,
    memory_mib_per_numa_node: u32,
    mtu: u32,
    rail_speed_mbit: u32,
    rail_address: String,
    front_end_addresses: Vec<String>,
    gateway: String,
    roots: Vec<RawRoot>,
}

#[derive(Debug, Deserialize)]
struct RawRoot {
    bus: u8,
    numa_node: u32,
    devices: Vec<RawDevice>,
}

#[derive(Debug, Deserialize)]
struct RawDevice {
    bus: u8,
    nic: Option<Vec<String>>,
    front_end: Option<String>,
    gpu: Option<bool>,
    switch: Option<Vec<RawDevice>>,
}

impl Shape {
    /// One of [`NAMES`], or the path of a `.toml` file.
    ///
    /// # Errors
    /// No such shape or file, or a description with faults.
    pub fn named(name: &str) -> Result<Self, LabError> {
        let text = match name {
            "B4.8" => include_str!("../shapes/B4.8.toml"),
            "H100.8" => include_str!("../shapes/H100.8.toml"),
            "S8" => include_str!("../shapes/S8.toml"),
            path if path.ends_with(".toml") => {
                let text = std::fs::read_to_string(path).map_err(LabError::io("read", path))?;
                return Self::parse(path, &text);
            }
            _ => return Err(LabError::NoShape { name: name.into() }),
        };
        Self::parse(name, text)
    }

    /// Parses and checks a description; `name` is what errors call it.
    ///
    /// # Errors
    /// Broken TOML, or all faults of the description together; unknown fields are faults.
    pub fn parse(name: &str, text: &str) -> Result<Self, LabError> {
        let syntax = |source| LabError::ShapeSyntax {
            name: name.into(),
            source: Box::new(source),
        };
        let mut faults = Vec::new();
        let raw: RawShape =
            serde_ignored::deserialize(toml::Deserializer::parse(text).map_err(syntax)?, |path| {
                faults.push(Fault {
                    path: check::field_path(&path),
                    message: "unknown field".into(),
                });
            })
            .map_err(syntax)?;
        check::check(raw, faults).map_err(|faults| LabError::ShapeFaults {
            name: name.into(),
            faults,
        })
    }

    /// The rails in PCI order, `rdma0` first.
    pub fn rails(&self) -> Vec<Port> {
        let mut rails = Vec::new();
        self.visit(&mut |numa_node, device| {
            let Kind::Nic(names) = &device.kind else {
                return;
            };
            for (function, rdma) in names.iter().enumerate() {
                let netdev = format!("rdma{}", rails.len());
                let pci = format!("0000:{:02x}:00.{function}", device.bus);
                rails.push(Port {
                    pci,
                    netdev,
                    rdma: rdma.clone(),
                    numa_node,
                });
            }
        });
        rails
    }

    /// The front-end NICs in PCI order, `fe0` first.
    pub fn front_ends(&self) -> Vec<Port> {
        let mut ports = Vec::new();
        self.visit(&mut |numa_node, device| {
            if let Kind::FrontEnd(rdma) = &device.kind {
                let netdev = format!("fe{}", ports.len());
                ports.push(Port {
                    pci: device.pci(),
                    netdev,
                    rdma: rdma.clone(),
                    numa_node,
                });
            }
        });
        ports
    }

    /// The GPUs in PCI order.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut gpus = Vec::new();
        let mut minor = 0;
        self.visit(&mut |numa_node, device| {
            if device.kind == Kind::Gpu {
                let uuid = uuid(&format!("{} gpu {}", self.name, device.pci()));
                gpus.push(Gpu {
                    pci: device.pci(),
                    uuid,
                    minor,
                    numa_node,
                });
                minor += 1;
            }
        });
        gpus
    }

    /// Virtual CPUs: at least one for each NUMA node.
    pub(crate) fn cpus(&self) -> u32 {
        self.numa_nodes.max(CPUS)
    }

    /// The socket of a NUMA node.
    pub fn socket(&self, numa_node: u32) -> u32 {
        numa_node * self.sockets / self.numa_nodes
    }

    fn visit(&self, see: &mut impl FnMut(u32, &Device)) {
        for root in &self.roots {
            for device in &root.devices {
                device.visit(&mut |device| see(root.numa_node, device));
            }
        }
    }
}

impl Device {
    /// The address of function 0.
    pub fn pci(&self) -> String {
        format!("0000:{:02x}:00.0", self.bus)
    }

    fn visit(&self, see: &mut impl FnMut(&Self)) {
        see(self);
        let Kind::Switch(below) = &self.kind else {
            return;
        };
        for device in below {
            // A switch below a switch is refused by the check, so one level is all there is.
            see(device);
        }
    }
}

/// A stable digest (FNV-1a): for UUIDs and file names, not for secrets.
pub(crate) fn digest(of: &str) -> u64 {
    of.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn uuid(seed: &str) -> String {
    let hex = format!(
        "{:016x}{:016x}",
        digest(seed),
        digest(&format!("{seed} again"))
    );
    let mut parts = [8, 4, 4, 4, 12]
        .into_iter()
        .scan(hex.chars(), |hex, length| {
            Some(hex.by_ref().take(length).collect::<String>())
        });
    let mut text = String::from("GPU");
    for part in parts.by_ref() {
        text.push('-');
        text.push_str(&part);
    }
    text
}

/// Reads a description from a path, for callers that have one.
impl TryFrom<&Path> for Shape {
    type Error = LabError;

    fn try_from(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path).map_err(LabError::io("read", path))?;
        Self::parse(&path.display().to_string(), &text)
    }
}

#[cfg(test)]
mod tests;
