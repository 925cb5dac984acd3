//! Checks a description as a whole and reports every fault with its field.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;

use super::{CPUS, Device, Fault, Kind, RawDevice, RawRoot, RawShape, Root, Shape};

/// A QEMU slot has eight functions.
const NIC_PORTS: usize = 8;
/// Devices on one bus.
const ROOT_PORTS: usize = 32;

/// Faults collected so far, and the RDMA names seen.
struct Checker {
    faults: Vec<Fault>,
    rdma: BTreeMap<String, String>,
}

pub(super) fn check(raw: RawShape, faults: Vec<Fault>) -> Result<Shape, Vec<Fault>> {
    let mut checker = Checker {
        faults,
        rdma: BTreeMap::new(),
    };
    checker.machine(&raw);
    let rail_address = checker.network("rail_address", &raw.rail_address);
    let front_end_addresses = raw
        .front_end_addresses
        .iter()
        .enumerate()
        .map(|(i, text)| checker.network(&format!("front_end_addresses[{i}]"), text))
        .collect::<Vec<_>>();
    let gateway = raw.gateway.parse().unwrap_or_else(|_| {
        checker.fault("gateway", format!("{} is not an IPv4 address", raw.gateway));
        std::net::Ipv4Addr::UNSPECIFIED
    });
    let roots = checker.roots(raw.roots, raw.numa_nodes);
    let shape = Shape {
        name: raw.name,
        gpu_model: raw.gpu_model,
        numa_nodes: raw.numa_nodes,
        sockets: raw.sockets,
        memory_mib_per_numa_node: raw.memory_mib_per_numa_node,
        mtu: raw.mtu,
        rail_speed_mbit: raw.rail_speed_mbit,
        rail_address,
        front_end_addresses,
        gateway,
        roots,
    };
    checker.addresses(&shape);
    if checker.faults.is_empty() {
        Ok(shape)
    } else {
        Err(checker.faults)
    }
}

/// `roots[1].bus` from serde_ignored's `roots.1.bus`.
pub(super) fn field_path(path: &serde_ignored::Path<'_>) -> String {
    let mut text = String::new();
    for part in path.to_string().split('.').filter(|part| *part != "?") {
        match part.parse::<usize>() {
            Ok(index) => text.push_str(&format!("[{index}]")),
            Err(_) if text.is_empty() => text.push_str(part),
            Err(_) => text.push_str(&format!(".{part}")),
        }
    }
    text
}

impl Checker {
    fn fault(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.faults.push(Fault {
            path: path.into(),
            message: message.into(),
        });
    }

    fn range(&mut self, path: &str, value: u32, allowed: std::ops::RangeInclusive<u32>) {
        if !allowed.contains(&value) {
            let (low, high) = (allowed.start(), allowed.end());
            self.fault(path, format!("{value} is not in {low} to {high}"));
        }
    }

    fn machine(&mut self, raw: &RawShape) {
        if raw.name.is_empty() {
            self.fault("name", "is empty");
        }
        self.range("numa_nodes", raw.numa_nodes, 1..=16);
        self.range(
            "memory_mib_per_numa_node",
            raw.memory_mib_per_numa_node,
            128..=4096,
        );
        // IPv6's least MTU, and virtio-net's greatest.
        self.range("mtu", raw.mtu, 1280..=65535);
        self.range("rail_speed_mbit", raw.rail_speed_mbit, 1..=800_000);
        let nodes = raw.numa_nodes;
        if raw.sockets == 0 || !nodes.is_multiple_of(raw.sockets) {
            self.fault(
                "sockets",
                format!("{} must divide the {nodes} NUMA nodes", raw.sockets),
            );
        }
        // CPUs are spread evenly over nodes and sockets.
        if !nodes.max(CPUS).is_multiple_of(nodes.max(1)) {
            self.fault(
                "numa_nodes",
                format!("{nodes} must divide {CPUS} or be more"),
            );
        }
    }

    fn network(&mut self, path: &str, text: &str) -> Ipv4Net {
        text.parse().unwrap_or_else(|_| {
            self.fault(
                path,
                format!("{text} is not an IPv4 address with a prefix length"),
            );
            Ipv4Net::default()
        })
    }

    fn addresses(&mut self, shape: &Shape) {
        let (have, need) = (shape.front_end_addresses.len(), shape.front_ends().len());
        if have != need {
            self.fault(
                "front_end_addresses",
                format!("{have} for {need} front-end NICs"),
            );
        }
        if let Some(first) = shape
            .front_end_addresses
            .first()
            .filter(|net| !net.contains(&shape.gateway))
        {
            self.fault("gateway", format!("{} is not in {first}", shape.gateway));
        }
        let rails = u32::try_from(shape.rails().len()).unwrap_or(u32::MAX);
        let last = u32::from(shape.rail_address.addr()).saturating_add(rails);
        if last > u32::from(shape.rail_address.broadcast()) {
            self.fault(
                "rail_address",
                format!("{} has no room for {rails} rails", shape.rail_address),
            );
        }
    }

    fn roots(&mut self, raw: Vec<RawRoot>, numa_nodes: u32) -> Vec<Root> {
        if raw.is_empty() {
            self.fault("roots", "there is none");
        }
        let starts: Vec<u8> = raw.iter().map(|root| root.bus).collect();
        let mut free = 1;
        let mut roots = Vec::new();
        for (i, root) in raw.into_iter().enumerate() {
            let path = format!("roots[{i}]");
            if u32::from(root.bus) < free {
                let message = format!("{:#04x} is below {free:#04x}, the next free bus", root.bus);
                self.fault(format!("{path}.bus"), message);
            }
            if root.numa_node >= numa_nodes {
                let message = format!(
                    "{} is not in 0 to {}",
                    root.numa_node,
                    numa_nodes.saturating_sub(1)
                );
                self.fault(format!("{path}.numa_node"), message);
            }
            let end = starts.get(i + 1).map_or(0x100, |next| u32::from(*next));
            free = u32::from(root.bus) + 1;
            let devices = self.devices(&path, root.devices, &mut free, end);
            roots.push(Root {
                bus: root.bus,
                numa_node: root.numa_node,
                devices,
            });
        }
        roots
    }

    /// Devices behind root ports: the first on the bus after the root's, since SeaBIOS numbers
    /// without gaps, the others anywhere after (the port before reserves the gap).
    fn devices(
        &mut self,
        path: &str,
        raw: Vec<RawDevice>,
        free: &mut u32,
        end: u32,
    ) -> Vec<Device> {
        if raw.is_empty() || raw.len() > ROOT_PORTS {
            self.fault(
                format!("{path}.devices"),
                format!("must be 1 to {ROOT_PORTS}"),
            );
        }
        let mut devices = Vec::new();
        for (i, device) in raw.into_iter().enumerate() {
            let path = format!("{path}.devices[{i}]");
            let bus = u32::from(device.bus);
            if i == 0 && bus != *free {
                self.fault(
                    format!("{path}.bus"),
                    format!("{bus:#04x} must be {free:#04x}, the root's next"),
                );
            } else if bus < *free || bus >= end {
                let last = end.saturating_sub(1);
                self.fault(
                    format!("{path}.bus"),
                    format!("{bus:#04x} is not in {free:#04x} to {last:#04x}"),
                );
            }
            *free = bus + 1;
            let Some(kind) = self.kind(&path, &device, true) else {
                continue;
            };
            if let Kind::Switch(below) = &kind {
                *free += 1 + u32::try_from(below.len()).unwrap_or(0);
            }
            devices.push(Device {
                bus: device.bus,
                kind,
            });
        }
        devices
    }

    fn kind(&mut self, path: &str, raw: &RawDevice, may_switch: bool) -> Option<Kind> {
        match (&raw.nic, &raw.front_end, raw.gpu, &raw.switch) {
            (Some(names), None, None, None) => {
                if names.is_empty() || names.len() > NIC_PORTS {
                    self.fault(
                        format!("{path}.nic"),
                        format!("must have 1 to {NIC_PORTS} ports"),
                    );
                }
                for (port, name) in names.iter().enumerate() {
                    self.rdma_name(&format!("{path}.nic[{port}]"), name);
                }
                Some(Kind::Nic(names.clone()))
            }
            (None, Some(name), None, None) => {
                self.rdma_name(&format!("{path}.front_end"), name);
                Some(Kind::FrontEnd(name.clone()))
            }
            (None, None, Some(true), None) => Some(Kind::Gpu),
            (None, None, None, Some(below)) if may_switch => {
                Some(Kind::Switch(self.below_switch(path, raw.bus, below)))
            }
            _ => {
                let switch = if may_switch { " or switch" } else { "" };
                self.fault(
                    path,
                    format!("must have one of nic, front_end, gpu = true{switch}"),
                );
                None
            }
        }
    }

    /// Below a switch there are no gaps: the upstream port's bus, the bus of the downstream ports,
    /// then one bus for each of these.
    fn below_switch(&mut self, path: &str, bus: u8, raw: &[RawDevice]) -> Vec<Device> {
        let mut devices = Vec::new();
        for (i, device) in raw.iter().enumerate() {
            let path = format!("{path}.switch[{i}]");
            let must = usize::from(bus) + 2 + i;
            if usize::from(device.bus) != must {
                self.fault(
                    format!("{path}.bus"),
                    format!("{:#04x} must be {must:#04x}", device.bus),
                );
            }
            if let Some(kind) = self.kind(&path, device, false) {
                devices.push(Device {
                    bus: device.bus,
                    kind,
                });
            }
        }
        if devices.len() > ROOT_PORTS || raw.is_empty() {
            self.fault(
                format!("{path}.switch"),
                format!("must be 1 to {ROOT_PORTS} devices"),
            );
        }
        devices
    }

    fn rdma_name(&mut self, path: &str, name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
            self.fault(path, format!("{name:?} is no RDMA device name"));
        }
        if let Some(first) = self.rdma.insert(name.into(), path.into()) {
            self.fault(path, format!("{name} is already {first}"));
        }
    }
}
