//! RDMA netlink: devices, their ports and the namespace mode (`drivers/infiniband/core/nldev.c`).
//!
//! Reads only. Numbers are those of `include/uapi/rdma/rdma_netlink.h`.

mod parse;

pub use parse::{PhysState, PortState, RdmaDevice};

use crate::channel::{Channel, malformed};
use crate::error::NetlinkError;
use crate::wire::put;
use netlink_sys::protocols::NETLINK_RDMA;
use nix::errno::Errno;
use parse::{ATTR_DEV_INDEX, RawDevice, RawPort, parse_mode};
use podrail_core::ids::RdmaName;

/// `RDMA_NL_NLDEV` as the client in a message type: (client << 10) | operation.
const NLDEV: u16 = 5 << 10;
/// `RDMA_NLDEV_CMD_GET`.
const GET_DEVICE: u16 = NLDEV | 1;
/// `RDMA_NLDEV_CMD_PORT_GET`.
const GET_PORT: u16 = NLDEV | 5;
/// `RDMA_NLDEV_CMD_SYS_GET`.
const GET_SYSTEM: u16 = NLDEV | 6;

/// Who sees an RDMA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NetnsMode {
    /// Every namespace sees all; what Podrail needs.
    Shared,
    /// A device belongs to one namespace.
    Exclusive,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaLink {
    /// Index of the device in the kernel.
    pub dev_index: u32,
    /// Name of the device.
    pub device: RdmaName,
    /// Port, from 1.
    pub port: u32,
    /// Index of its network interface; `None`: it has none **in this namespace**
    /// (`fill_port_info` shows it only to the namespace it is in).
    pub netdev_index: Option<u32>,
    /// Name of its network interface; a plain text like [`Link::name`](crate::Link::name).
    pub netdev_name: Option<String>,
    /// State of the port.
    pub state: PortState,
    /// Physical state of the port.
    pub phys_state: PhysState,
    /// What the device speaks: `roce`, `ib`, `iw`, `opa`; the same for all of its ports. `None`
    /// on kernels before 5.2.
    pub protocol: Option<String>,
}

/// An RDMA netlink socket. Needs no privilege.
#[derive(Debug)]
pub struct Rdma {
    channel: Channel,
}

impl Rdma {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetlinkError::NoRdma`] if the kernel has no RDMA core and cannot load it, else
    /// [`NetlinkError::Open`].
    pub fn open() -> Result<Self, NetlinkError> {
        Channel::open(NETLINK_RDMA)
            .map(|channel| Self { channel })
            .map_err(|source| match source.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EPROTONOSUPPORT) => NetlinkError::NoRdma,
                _ => NetlinkError::Open {
                    family: "RDMA",
                    source,
                },
            })
    }

    /// All RDMA devices that this namespace sees.
    ///
    /// # Errors
    /// [`NetlinkError`]; [`NetlinkError::DeviceName`] for a device whose name cannot be used.
    pub fn devices(&mut self) -> Result<Vec<RdmaDevice>, NetlinkError> {
        let request = "list RDMA devices";
        let mut devices = Vec::new();
        for part in self.dump(GET_DEVICE, &[], request)? {
            let raw = RawDevice::parse(&part).map_err(|source| malformed(request, source))?;
            devices.push(raw.named()?);
        }
        Ok(devices)
    }

    /// All ports of all RDMA devices that this namespace sees: one dump, and one per device.
    /// A device that goes away meanwhile is left out.
    ///
    /// # Errors
    /// As [`Rdma::devices`].
    pub fn links(&mut self) -> Result<Vec<RdmaLink>, NetlinkError> {
        let mut links = Vec::new();
        for device in self.devices()? {
            match self.ports(&device) {
                // ib_device_get_by_index found nothing.
                Err(NetlinkError::Refused {
                    errno: Errno::EINVAL,
                    ..
                }) => {}
                found => links.extend(found?),
            }
        }
        Ok(links)
    }

    /// Whether RDMA devices are seen by every namespace.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn netns_mode(&mut self) -> Result<NetnsMode, NetlinkError> {
        let request = "read the RDMA namespace mode";
        let body = self.channel.get(GET_SYSTEM, &[], request)?;
        parse_mode(&body).map_err(|source| malformed(request, source))
    }

    fn ports(&mut self, device: &RdmaDevice) -> Result<Vec<RdmaLink>, NetlinkError> {
        let request = format!("list ports of RDMA device {}", device.name);
        let mut body = Vec::new();
        put(&mut body, ATTR_DEV_INDEX, &device.index.to_ne_bytes());
        let mut links = Vec::new();
        for part in self.dump(GET_PORT, &body, &request)? {
            let raw = RawPort::parse(&part).map_err(|source| malformed(&request, source))?;
            links.push(raw.of(device));
        }
        Ok(links)
    }

    fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        request: &str,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let parts = self.channel.dump(kind, body, request)?;
        Ok(parts
            .into_iter()
            .filter(|(found, _)| *found == kind)
            .map(|(_, part)| part)
            .collect())
    }
}

#[cfg(test)]
mod tests;
