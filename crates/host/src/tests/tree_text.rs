//! Compact descriptions of sysfs trees, expanded below a folder as the kernel lays them out.
//!
//! ```text
//! pci PATH VVVV:DDDD CLASS | numa=0 | driver=mlx5_core | physfn=0000:0c:00.0
//! net NAME at PATH | address=.. | mtu=..      rdma NAME at PATH | guid=.. | uverbs=0 | layer=..
//! numa NODE CPULIST PACKAGE                   nvidia BDF | Model=.. | GPU UUID=..
//! file PATH TEXT      bytes PATH HEX          link PATH TARGET      rm PATH
//! select KEY VALUE                            kernel KEY VALUE..
//! ```
//! PATH of `pci`, `net` and `rdma` is below sys/devices; `virtual` for what has no hardware. A value
//! of `-` leaves the file out.

use crate::{InterfaceAddress, KernelAnswers, LinkType, Pattern, RdmaLink, Selectors};
use podrail_core::ids::IfName;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A tree on disk and the questions that its description asks.
pub(super) struct Expanded {
    pub(super) dir: tempfile::TempDir,
    pub(super) kernel: KernelAnswers,
    pub(super) select: Selectors,
    interfaces: u32,
}

/// Expands a description.
pub(super) fn expand(text: &str) -> Expanded {
    let mut tree = Expanded {
        dir: tempfile::tempdir().unwrap(),
        kernel: KernelAnswers::default(),
        select: Selectors::default(),
        interfaces: 1,
    };
    fs::create_dir_all(tree.path("sys/bus/pci/devices")).unwrap();
    for line in text.lines().map(str::trim) {
        if !line.is_empty() && !line.starts_with('#') {
            tree.line(line);
        }
    }
    tree
}

impl Expanded {
    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    fn line(&mut self, line: &str) {
        let (head, rest) = line.split_once(" | ").unwrap_or((line, ""));
        let keys: BTreeMap<&str, &str> = rest
            .split(" | ")
            .filter_map(|pair| pair.trim().split_once('='))
            .collect();
        let words: Vec<&str> = head.split_whitespace().collect();
        let text = line
            .splitn(3, ' ')
            .nth(2)
            .unwrap_or_default()
            .replace("\\n", "\n")
            .replace("\\t", "\t");
        match words[0] {
            "pci" => self.pci(words[1], words[2], words[3], &keys),
            "net" => self.net(words[1], words[3], &keys),
            "rdma" => self.rdma(words[1], words[3], &keys),
            "numa" => self.numa(words[1], words[2], words[3]),
            "nvidia" => self.nvidia(words[1], rest),
            "file" => self.file(words[1], text + "\n"),
            "bytes" => self.file(words[1], bytes(words[2])),
            "link" => self.link(words[1], words[2]),
            "rm" => remove(&self.path(words[1])),
            "select" => self.select(words[1], words[2]),
            "kernel" => self.kernel(&words[1..]),
            other => panic!("unknown line kind {other:?}: {line}"),
        }
    }

    fn pci(&self, path: &str, ids: &str, class: &str, keys: &BTreeMap<&str, &str>) {
        let parts: Vec<&str> = path.split('/').collect();
        for length in 2..parts.len() {
            let bridge = parts[..length].join("/");
            if !self.path(&format!("sys/devices/{bridge}/class")).exists()
                && !parts[length - 1].starts_with("pci")
            {
                self.function(&bridge, "1000:c010", "0x060400", &BTreeMap::new());
            }
        }
        self.function(path, ids, class, keys);
    }

    fn function(&self, path: &str, ids: &str, class: &str, keys: &BTreeMap<&str, &str>) {
        let dir = format!("sys/devices/{path}");
        let bdf = path.rsplit('/').next().unwrap();
        let (vendor, device) = ids.split_once(':').unwrap();
        self.file(&format!("{dir}/vendor"), format!("0x{vendor}\n"));
        self.file(&format!("{dir}/device"), format!("0x{device}\n"));
        self.file(&format!("{dir}/class"), format!("{class}\n"));
        self.file(
            &format!("{dir}/numa_node"),
            format!("{}\n", keys.get("numa").unwrap_or(&"-1")),
        );
        self.link(
            &format!("sys/bus/pci/devices/{bdf}"),
            &format!("../../../devices/{path}"),
        );
        if let Some(driver) = keys.get("driver") {
            self.link(
                &format!("{dir}/driver"),
                &format!("../../../bus/pci/drivers/{driver}"),
            );
        }
        if let Some(physfn) = keys.get("physfn") {
            self.link(&format!("{dir}/physfn"), &format!("../{physfn}"));
        }
    }

    fn net(&mut self, name: &str, path: &str, keys: &BTreeMap<&str, &str>) {
        let dir = format!("sys/devices/{path}/net/{name}");
        let index = self.interfaces.to_string();
        self.interfaces += 1;
        let mac = format!("02:00:00:00:00:{:02x}", self.interfaces);
        let defaults = [
            ("address", mac.as_str()),
            ("mtu", "4220"),
            ("ifindex", &index),
            ("type", "1"),
            ("flags", "0x1003"),
            ("operstate", "up"),
            ("carrier", "1"),
            ("dev_port", "0"),
        ];
        let all: BTreeMap<&str, &str> = defaults
            .into_iter()
            .chain(keys.iter().map(|(k, v)| (*k, *v)))
            .collect();
        fs::create_dir_all(self.path(&dir)).unwrap();
        for (key, value) in all {
            match key {
                "master" => self.link(&format!("{dir}/master"), &format!("../{value}")),
                "devtype" => self.file(
                    &format!("{dir}/uevent"),
                    format!("DEVTYPE={value}\nINTERFACE={name}\n"),
                ),
                "lower" | "upper" => {
                    for other in value.split(',') {
                        self.link(&format!("{dir}/{key}_{other}"), &format!("../{other}"));
                    }
                }
                _ if value == "-" => {}
                _ => self.file(&format!("{dir}/{key}"), format!("{value}\n")),
            }
        }
        self.link(
            &format!("sys/class/net/{name}"),
            &format!("../../devices/{path}/net/{name}"),
        );
    }

    fn rdma(&self, name: &str, path: &str, keys: &BTreeMap<&str, &str>) {
        let dir = format!("sys/devices/{path}/infiniband/{name}");
        let get = |key: &str, default: &'static str| keys.get(key).copied().unwrap_or(default);
        let put = |file: String, value: &str| {
            if value != "-" {
                self.file(&file, format!("{value}\n"));
            }
        };
        put(
            format!("{dir}/node_guid"),
            get("guid", "0200:00ff:fe00:0001"),
        );
        put(format!("{dir}/parent"), get("parent", "-"));
        fs::create_dir_all(self.path(&dir)).unwrap();
        for port in 1..=get("ports", "1").parse::<u32>().unwrap() {
            let port = format!("{dir}/ports/{port}");
            put(format!("{port}/link_layer"), get("layer", "Ethernet"));
            put(format!("{port}/rate"), get("rate", "100 Gb/sec (4X EDR)"));
            put(format!("{port}/state"), get("state", "4: ACTIVE"));
            put(format!("{port}/gid_attrs/ndevs/0"), get("ndev", "-"));
        }
        if path != "virtual" {
            self.link(&format!("{dir}/device"), "../..");
        }
        if let Some(number) = keys.get("uverbs") {
            put(
                format!("sys/class/infiniband_verbs/uverbs{number}/ibdev"),
                name,
            );
        }
        self.link(
            &format!("sys/class/infiniband/{name}"),
            &format!("../../devices/{path}/infiniband/{name}"),
        );
    }

    fn numa(&self, node: &str, cpus: &str, package: &str) {
        let first = cpus.split(['-', ',']).next().unwrap();
        let list = if cpus == "none" { "" } else { cpus };
        self.file(
            &format!("sys/devices/system/node/node{node}/cpulist"),
            format!("{list}\n"),
        );
        self.file(
            &format!("sys/devices/system/cpu/cpu{first}/topology/physical_package_id"),
            format!("{package}\n"),
        );
    }

    fn nvidia(&self, bdf: &str, pairs: &str) {
        let lines = pairs.split(" | ").filter_map(|pair| pair.split_once('='));
        let text: String = lines
            .map(|(key, value)| format!("{key}: \t {value}\n"))
            .collect();
        self.file(&format!("proc/driver/nvidia/gpus/{bdf}/information"), text);
    }

    fn select(&mut self, key: &str, value: &str) {
        let select = &mut self.select;
        let pattern = || Pattern::parse(value).unwrap();
        let id = || u16::from_str_radix(value, 16).unwrap();
        match key {
            "vendors" => select.vendors.push(id()),
            "devices" => select.devices.push(id()),
            "drivers" => select.drivers.push(value.to_owned()),
            "pci" => select.pci.push(pattern()),
            "netdevs" => select.netdevs.push(pattern()),
            "rdma" => select.rdma.push(pattern()),
            "exclude" => select.exclude.push(pattern()),
            "link-types" => select.link_types.push(LinkType::InfiniBand),
            "virtual-functions" => select.virtual_functions = true,
            "front-ends" => select.front_ends = true,
            "generic-gpus" => select.generic_gpus = true,
            "node-address" => select.node_addresses.push(value.parse().unwrap()),
            other => panic!("unknown selector {other}"),
        }
    }

    fn kernel(&mut self, words: &[&str]) {
        let name = |text: &str| IfName::parse(text).unwrap();
        let kernel = &mut self.kernel;
        match words {
            ["default-route", interface] => kernel
                .default_route
                .get_or_insert_default()
                .push(name(interface)),
            ["macvlan", interface] => kernel.macvlan_parents.push(name(interface)),
            ["address", interface, address] => {
                kernel
                    .addresses
                    .get_or_insert_default()
                    .push(InterfaceAddress {
                        interface: name(interface),
                        address: address.parse().unwrap(),
                    });
            }
            ["link", device, port, rest @ ..] => {
                kernel.rdma_links.get_or_insert_default().push(RdmaLink {
                    device: device.parse().unwrap(),
                    port: port.parse().unwrap(),
                    netdev: rest.first().map(|n| (name(n), rest[1].parse().unwrap())),
                });
            }
            other => panic!("unknown answer {other:?}"),
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}
