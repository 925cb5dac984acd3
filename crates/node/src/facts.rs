//! The node this program runs on: its facts, and whether it can have rails at all.

use crate::error::NodeError;
use crate::settings::Settings;
use podrail_core::ids::IfName;
use podrail_core::topology::Topology;
use podrail_host::{
    Discovery, InterfaceAddress, KernelAnswers, KernelModule, NetnsMode, NodeFacts, RdmaLink,
};
use podrail_netlink::{Family, Link, NetlinkError, Rdma, Rtnl};
use podrail_store::BootId;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Table that a default route without a rule stands in.
const MAIN_TABLE: u32 = 254;

/// Reads the facts of the node below a root. `before`: the topology of an earlier look in this boot,
/// of which the rails keep their indexes (see [`podrail_host::discover`]).
///
/// # Errors
/// There is no sysfs there, or netlink fails.
pub fn discover(
    root: &Path,
    settings: &Settings,
    before: Option<&Topology>,
) -> Result<Discovery, NodeError> {
    let answers = if is_live(root) {
        ask_kernel()?
    } else {
        KernelAnswers::default()
    };
    Ok(podrail_host::discover(
        root,
        &answers,
        &settings.selectors,
        before,
    )?)
}

/// Whether the tree below `root` is that of the running kernel, so that netlink speaks of the same
/// machine. A captured tree has another `sys`.
pub(crate) fn is_live(root: &Path) -> bool {
    let id = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|facts| (facts.dev(), facts.ino()))
    };
    id(&root.join("sys")).is_some_and(|found| Some(found) == id(Path::new("/sys")))
}

fn ask_kernel() -> Result<KernelAnswers, NodeError> {
    let mut rtnl = Rtnl::open()?;
    let links = rtnl.links()?;
    let name = |index: u32| {
        links
            .iter()
            .find(|link| link.index == index)
            .and_then(|link| IfName::parse(&link.name).ok())
    };
    let addresses = rtnl.addresses()?.into_iter().filter_map(|address| {
        Some(InterfaceAddress {
            interface: name(address.ifindex)?,
            address: address.net.addr(),
        })
    });
    let mut routes = rtnl.routes(Family::V4)?;
    routes.extend(rtnl.routes(Family::V6)?);
    let default_route = routes
        .iter()
        .filter(|route| route.table == MAIN_TABLE && route.dest.prefix_len() == 0)
        .filter_map(|route| name(route.oif?));
    Ok(KernelAnswers {
        rdma_links: rdma_links()?,
        addresses: Some(addresses.collect()),
        default_route: Some(default_route.collect()),
        macvlan_parents: links
            .iter()
            .filter_map(macvlan_parent)
            .filter_map(name)
            .collect(),
    })
}

/// Index of the parent of a macvlan in this namespace.
pub(crate) fn macvlan_parent(link: &Link) -> Option<u32> {
    let is_macvlan = matches!(link.kind.as_deref(), Some("macvlan" | "macvtap"));
    let parent = link.parent.filter(|parent| parent.netnsid.is_none())?;
    is_macvlan.then_some(parent.index)
}

/// All RDMA ports; none on a kernel without RDMA, which is no fault of a node without rails.
fn rdma_links() -> Result<Option<Vec<RdmaLink>>, NodeError> {
    let links = match Rdma::open().and_then(|mut rdma| rdma.links()) {
        Ok(links) => links,
        Err(NetlinkError::NoRdma) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let link = |link: podrail_netlink::RdmaLink| RdmaLink {
        device: link.device,
        port: link.port,
        netdev: link
            .netdev_name
            .and_then(|name| IfName::parse(&name).ok())
            .zip(link.netdev_index),
    };
    Ok(Some(links.into_iter().map(link).collect()))
}

/// Refuses a node that cannot have rails, whatever is asked for.
///
/// # Errors
/// [`NodeError::NotReady`] with the fix.
pub fn require_ready(facts: &NodeFacts) -> Result<(), NodeError> {
    let (reason, hint) = match (facts.netns_mode, facts.ipvlan) {
        (NetnsMode::Exclusive, _) => (
            "RDMA namespace mode is exclusive, pods would see no RDMA device",
            "set 'options ib_core netns_mode=1' in /etc/modprobe.d and reboot, or run \
             'rdma system set netns shared' while no other network namespace exists",
        ),
        (NetnsMode::NoRdma, _) => (
            "ib_core is not loaded, there is no RDMA",
            "load the driver of the NICs (modprobe mlx5_ib) and try again",
        ),
        (_, KernelModule::Absent) => (
            "this kernel has no IPvlan",
            "install the kernel's modules package, or a kernel with CONFIG_IPVLAN",
        ),
        _ => return Ok(()),
    };
    Err(NodeError::NotReady {
        reason: reason.to_owned(),
        hint,
    })
}

/// Id of the running boot.
///
/// # Errors
/// `/proc` does not tell.
pub fn boot_id() -> Result<BootId, NodeError> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    BootId::parse(text.trim()).map_err(|_| NodeError::NotReady {
        reason: "the kernel's boot id cannot be read".into(),
        hint: "mount /proc here",
    })
}
