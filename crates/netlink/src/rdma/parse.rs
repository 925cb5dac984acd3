//! RDMA answers taken apart. Pure.

use super::{NetnsMode, RdmaLink};
use crate::error::NetlinkError;
use crate::wire::{Malformed, attributes, text, u8_of, u32_of, u64_of};
use podrail_core::ids::RdmaName;
use std::fmt;

/// `RDMA_NLDEV_ATTR_DEV_INDEX`.
pub(super) const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_FW_VERSION: u16 = 5;
const ATTR_NODE_GUID: u16 = 6;
const ATTR_PORT_STATE: u16 = 12;
const ATTR_PORT_PHYS_STATE: u16 = 13;
const ATTR_NDEV_INDEX: u16 = 50;
const ATTR_NDEV_NAME: u16 = 51;
const SYS_ATTR_NETNS_MODE: u16 = 66;
const ATTR_DEV_PROTOCOL: u16 = 67;

/// State of a port (`enum ib_port_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortState {
    /// No link.
    Down,
    /// Link, not set up yet.
    Init,
    /// Set up, no data yet.
    Armed,
    /// In use.
    Active,
    /// In use, losing its link.
    ActiveDefer,
    /// Another number; 0: the driver says nothing.
    Other(u8),
}

impl From<u8> for PortState {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            other => Self::Other(other),
        }
    }
}

/// As the `rdma` tool prints it.
impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("DOWN"),
            Self::Init => f.write_str("INIT"),
            Self::Armed => f.write_str("ARMED"),
            Self::Active => f.write_str("ACTIVE"),
            Self::ActiveDefer => f.write_str("ACTIVE_DEFER"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

/// Physical state of a port (`enum ib_port_phys_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PhysState {
    /// Asleep.
    Sleep,
    /// Looking for a partner.
    Polling,
    /// Switched off, or no carrier (what RoCE drivers say).
    Disabled,
    /// Agreeing on speed and width.
    Training,
    /// Link is there.
    LinkUp,
    /// Link had an error and recovers.
    Recovery,
    /// Under test.
    Test,
    /// Another number; 0: the driver says nothing.
    Other(u8),
}

impl From<u8> for PhysState {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Sleep,
            2 => Self::Polling,
            3 => Self::Disabled,
            4 => Self::Training,
            5 => Self::LinkUp,
            6 => Self::Recovery,
            7 => Self::Test,
            other => Self::Other(other),
        }
    }
}

/// As the `rdma` tool prints it.
impl fmt::Display for PhysState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep => f.write_str("SLEEP"),
            Self::Polling => f.write_str("POLLING"),
            Self::Disabled => f.write_str("DISABLED"),
            Self::Training => f.write_str("PORT_CONFIGURATION_TRAINING"),
            Self::LinkUp => f.write_str("LINK_UP"),
            Self::Recovery => f.write_str("LINK_ERROR_RECOVER"),
            Self::Test => f.write_str("PHY_TEST"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Index in the kernel; not reused while the machine runs.
    pub index: u32,
    /// Name.
    pub name: RdmaName,
    /// Number of its ports.
    pub ports: u32,
    /// Node GUID; printed as four groups of four hexadecimal digits, highest first.
    pub node_guid: Option<u64>,
    /// Firmware version; `None` where the driver has none (`rxe`).
    pub firmware: Option<String>,
    /// `roce`, `ib`, `iw`, `opa`.
    pub protocol: Option<String>,
}

/// A device whose name has not been checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RawDevice {
    index: u32,
    name: String,
    ports: u32,
    node_guid: Option<u64>,
    firmware: Option<String>,
    protocol: Option<String>,
}

impl RawDevice {
    /// Reads an answer to `RDMA_NLDEV_CMD_GET`. In there `PORT_INDEX` is the number of ports.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut device = Self::default();
        for (kind, value) in attributes(body)? {
            match kind {
                ATTR_DEV_INDEX => device.index = u32_of(value)?,
                ATTR_DEV_NAME => device.name = text(value),
                ATTR_PORT_INDEX => device.ports = u32_of(value)?,
                ATTR_NODE_GUID => device.node_guid = Some(u64_of(value)?),
                ATTR_FW_VERSION => device.firmware = filled(value),
                ATTR_DEV_PROTOCOL => device.protocol = filled(value),
                _ => {}
            }
        }
        Ok(device)
    }

    /// Checks the name.
    pub(super) fn named(self) -> Result<RdmaDevice, NetlinkError> {
        let index = self.index;
        Ok(RdmaDevice {
            index,
            name: RdmaName::parse(&self.name)
                .map_err(|source| NetlinkError::DeviceName { index, source })?,
            ports: self.ports,
            node_guid: self.node_guid,
            firmware: self.firmware,
            protocol: self.protocol,
        })
    }
}

/// A port without its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawPort {
    port: u32,
    netdev_index: Option<u32>,
    netdev_name: Option<String>,
    state: PortState,
    phys_state: PhysState,
}

impl RawPort {
    /// Reads an answer to `RDMA_NLDEV_CMD_PORT_GET`.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut port = Self {
            port: 0,
            netdev_index: None,
            netdev_name: None,
            state: PortState::Other(0),
            phys_state: PhysState::Other(0),
        };
        for (kind, value) in attributes(body)? {
            match kind {
                ATTR_PORT_INDEX => port.port = u32_of(value)?,
                ATTR_PORT_STATE => port.state = u8_of(value)?.into(),
                ATTR_PORT_PHYS_STATE => port.phys_state = u8_of(value)?.into(),
                ATTR_NDEV_INDEX => port.netdev_index = Some(u32_of(value)?),
                ATTR_NDEV_NAME => port.netdev_name = filled(value),
                _ => {}
            }
        }
        Ok(port)
    }

    /// The port as one of this device.
    pub(super) fn of(self, device: &RdmaDevice) -> RdmaLink {
        RdmaLink {
            dev_index: device.index,
            device: device.name.clone(),
            port: self.port,
            netdev_index: self.netdev_index,
            netdev_name: self.netdev_name,
            state: self.state,
            phys_state: self.phys_state,
            protocol: device.protocol.clone(),
        }
    }
}

/// Reads an answer to `RDMA_NLDEV_CMD_SYS_GET`.
pub(super) fn parse_mode(body: &[u8]) -> Result<NetnsMode, Malformed> {
    let found = attributes(body)?;
    let mode = found.iter().find(|(kind, _)| *kind == SYS_ATTR_NETNS_MODE);
    let (_, value) = mode.ok_or(Malformed("lacks the namespace mode"))?;
    // The kernel sends `ib_devices_shared_netns`, a bool: 1 is shared.
    Ok(match u8_of(value)? {
        0 => NetnsMode::Exclusive,
        _ => NetnsMode::Shared,
    })
}

/// A text that says something.
fn filled(value: &[u8]) -> Option<String> {
    Some(text(value)).filter(|text| !text.is_empty())
}
