//! PCI addresses: functions, the NICs they belong to, and root complexes.

use super::{BadId, text_id};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Address of a PCI function, printed as sysfs does: `0000:0c:00.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddr {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddr {
    /// Reads `DDDD:BB:DD.F`; domains have 4 to 8 digits (VMD and Hyper-V use longer ones; NVIDIA's
    /// driver always prints eight). Upper and lower case are the same address.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        Self::read(text).ok_or_else(|| {
            BadId::new(
                "PCI address",
                text,
                "domain:bus:device.function, as in 0000:0c:00.0",
            )
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (rest, function) = text.split_once('.')?;
        let mut parts = rest.split(':');
        let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
        let fits = (4..=8).contains(&domain.len()) && bus.len() == 2 && device.len() == 2;
        if !fits || parts.next().is_some() || function.len() != 1 {
            return None;
        }
        let (device, function) = (hex(device)?, hex(function)?);
        (device < 32 && function < 8).then_some(Self {
            domain: hex(domain)?,
            bus: u8::try_from(hex(bus)?).ok()?,
            device: u8::try_from(device).ok()?,
            function: u8::try_from(function).ok()?,
        })
    }

    /// The NIC (PCI device) that this function belongs to.
    #[must_use]
    pub fn nic(self) -> NicId {
        NicId(Self {
            function: 0,
            ..self
        })
    }
}

impl fmt::Display for PciAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

text_id!(PciAddr);

/// A whole PCI device: all functions of one slot, printed as `0000:0c:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NicId(PciAddr);

impl NicId {
    /// Reads `DDDD:BB:DD`.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        PciAddr::read(&format!("{text}.0"))
            .map(PciAddr::nic)
            .ok_or_else(|| BadId::new("NIC", text, "domain:bus:device, as in 0000:0c:00"))
    }
}

impl fmt::Display for NicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddr {
            domain,
            bus,
            device,
            ..
        } = self.0;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}")
    }
}

text_id!(NicId);

/// A PCIe root complex, printed as `0000:0b` (sysfs: `pci0000:0b`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RootId {
    domain: u32,
    bus: u8,
}

impl RootId {
    /// Reads `DDDD:BB`.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        PciAddr::read(&format!("{text}:00.0"))
            .map(|PciAddr { domain, bus, .. }| Self { domain, bus })
            .ok_or_else(|| BadId::new("PCIe root", text, "domain:bus, as in 0000:0b"))
    }
}

impl fmt::Display for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}", self.domain, self.bus)
    }
}

text_id!(RootId);

/// Hexadecimal digits only: `from_str_radix` alone would take a sign.
fn hex(text: &str) -> Option<u32> {
    text.bytes()
        .all(|b| b.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(text, 16).ok())?
}
