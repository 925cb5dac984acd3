//! The node's plan: what the agent sets up at boot, written into the initramfs as JSON.
//!
//! Rendered from the shape on the host, so that the guest decides nothing.

use serde::{Deserialize, Serialize};

use crate::shape::{Gpu, Port, Shape};

/// Where the plan lies in the guest.
pub(crate) const PLAN_PATH: &str = "lab/plan.json";
/// Where the kernel modules' table lies in the guest.
pub(crate) const MODULES_PATH: &str = "lab/modules.json";

/// Everything the agent does after the drivers are loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodePlan {
    pub(crate) interfaces: Vec<Interface>,
    /// `rdma` batch lines.
    pub(crate) rdma: Vec<String>,
    /// `ip` batch lines after the interfaces are named.
    pub(crate) routes: Vec<String>,
    /// Files of the driver tree that the lab's GPUs do not have.
    pub(crate) gpus: Vec<GpuFile>,
    /// Whether the node's state lies on a disk.
    pub(crate) disk: bool,
}

/// One network function: found by PCI address, then named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) pci: String,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) address: Option<String>,
}

/// What the NVIDIA driver shows of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuFile {
    pub(crate) pci: String,
    pub(crate) information: String,
}

/// One module of the initramfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// Its file; none when it is built into the kernel.
    pub(crate) path: Option<String>,
    pub(crate) depends: Vec<String>,
    /// Names under which the kernel asks for it, like `rtnl-link-ipvlan`.
    pub(crate) aliases: Vec<String>,
}

impl NodePlan {
    pub(crate) fn of(shape: &Shape, disk: bool) -> Self {
        let (rails, front_ends) = (shape.rails(), shape.front_ends());
        let mut ports: Vec<&Port> = rails.iter().chain(&front_ends).collect();
        // The kernel numbers uverbs in the order of creation, as mlx5 numbers its devices.
        ports.sort_by_key(|port| (number(&port.rdma), port.rdma.clone()));
        let rdma = ports
            .iter()
            .map(|port| format!("link add {} type rxe netdev {}", port.rdma, port.netdev));
        Self {
            rdma: rdma.collect(),
            interfaces: interfaces(shape, &rails, &front_ends),
            routes: vec![format!("route add default via {} dev fe0", shape.gateway)],
            gpus: shape
                .gpus()
                .iter()
                .map(|gpu| gpu_file(shape, gpu))
                .collect(),
            disk,
        }
    }
}

fn number(rdma: &str) -> u32 {
    rdma.rsplit('_')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(u32::MAX)
}

fn interfaces(shape: &Shape, rails: &[Port], front_ends: &[Port]) -> Vec<Interface> {
    let first = u32::from(shape.rail_address.addr());
    let length = shape.rail_address.prefix_len();
    let rail = |(port, offset): (&Port, u32)| Interface {
        pci: port.pci.clone(),
        name: port.netdev.clone(),
        mtu: shape.mtu,
        address: Some(format!(
            "{}/{length}",
            std::net::Ipv4Addr::from(first + offset)
        )),
    };
    let front_end = |(port, address): (&Port, &ipnet::Ipv4Net)| Interface {
        pci: port.pci.clone(),
        name: port.netdev.clone(),
        mtu: 1500,
        address: Some(address.to_string()),
    };
    let rails = rails.iter().zip(0..).map(rail);
    rails
        .chain(
            front_ends
                .iter()
                .zip(&shape.front_end_addresses)
                .map(front_end),
        )
        .collect()
}

/// The fields and the odd spacing of `/proc/driver/nvidia/gpus/*/information`.
fn gpu_file(shape: &Shape, gpu: &Gpu) -> GpuFile {
    let information = format!(
        "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t 92.00.45.00.03\n\
         Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n\
         Bus Location: \t {}\nDevice Minor: \t {}\nGPU Excluded:\t No\n",
        shape.gpu_model,
        300 + gpu.minor,
        gpu.uuid,
        gpu.pci,
        gpu.minor,
    );
    GpuFile {
        pci: gpu.pci.clone(),
        information,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_get_their_names_addresses_and_rdma_devices() {
        let plan = NodePlan::of(&Shape::named("B4.8").unwrap(), false);
        let last = &plan.interfaces[15];
        assert_eq!((last.name.as_str(), last.mtu), ("rdma15", 4220));
        assert_eq!(last.address.as_deref(), Some("10.224.0.16/12"));
        assert_eq!(plan.interfaces.len(), 18);
        assert_eq!(plan.rdma[0], "link add mlx5_0 type rxe netdev fe0");
        assert_eq!(plan.rdma[5], "link add mlx5_5 type rxe netdev rdma0");
        assert_eq!(plan.routes, ["route add default via 10.140.66.1 dev fe0"]);
    }

    #[test]
    fn gpus_say_who_they_are() {
        let plan = NodePlan::of(&Shape::named("H100.8").unwrap(), false);
        let text = &plan.gpus[1].information;
        assert!(
            text.contains("Bus Location: \t 0000:2d:00.0\nDevice Minor: \t 1\n"),
            "{text}"
        );
        assert!(text.contains("GPU UUID: \t GPU-"), "{text}");
    }
}
