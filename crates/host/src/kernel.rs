//! Facts that netlink tells better than sysfs; the caller asks, this crate takes them as data.

use podrail_core::ids::{IfName, RdmaName};
use std::net::IpAddr;

/// Answers of the kernel. What is `None` was not asked, and is looked up in sysfs or /proc below
/// the root as far as they know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelAnswers {
    /// Ports of all RDMA devices (`RDMA_NLDEV_CMD_PORT_GET`). Absent: sysfs.
    pub rdma_links: Option<Vec<RdmaLink>>,
    /// Addresses in the host's network namespace (`RTM_GETADDR`). Absent: the node's address
    /// cannot be placed, which is noted if one is given.
    pub addresses: Option<Vec<InterfaceAddress>>,
    /// Interfaces that carry a default route (`RTM_GETROUTE`), uppers as they are. Absent:
    /// /proc/net/route and /proc/net/ipv6_route.
    pub default_route: Option<Vec<IfName>>,
    /// Interfaces with a macvlan or macvtap in **any** network namespace. sysfs shows those of the
    /// host's namespace only (`net/core/dev.c`: adjacency links want equal namespaces); both are
    /// used.
    pub macvlan_parents: Vec<IfName>,
}

/// One port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaLink {
    /// The device.
    pub device: RdmaName,
    /// Its port, from 1.
    pub port: u32,
    /// Name and index of its interface; `None` where the kernel names none, which it does not for
    /// an interface in another network namespace (`drivers/infiniband/core/nldev.c`).
    pub netdev: Option<(IfName, u32)>,
}

/// An address on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface.
    pub interface: IfName,
    /// The address.
    pub address: IpAddr,
}
