//! GID tables of RDMA devices, as the calling thread's network namespace sees them.
//!
//! Facts: entries are files `ports/<port>/gids/<index>`; an empty entry reads as zero or the read
//! fails (EINVAL, ENOENT), and both skip the entry. Tables are sparse and may have 1024 entries per
//! port (rxe), so the scan stops once every wanted GID was met.

use podrail_core::ids::RdmaName;
use podrail_core::verify::GidEntry;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Entries of each table that are always read: a pod's own GIDs stand near the start, and the
/// others there tell what this kernel shows of its neighbours.
const ALWAYS_READ: u32 = 64;

/// Reads the GID tables of all devices below `root` until each of `wanted` was found.
///
/// Devices come in name order, entries in index order. Zero entries are left out. A device whose
/// directory cannot be read has no entries: it may have been unplugged meanwhile.
#[must_use]
pub fn gid_tables(root: &Path, wanted: &BTreeSet<Ipv6Addr>) -> Vec<GidEntry> {
    let mut ports = ports(root);
    let mut found: Vec<GidEntry> = ports
        .iter_mut()
        .flat_map(|p| p.read_to(ALWAYS_READ))
        .collect();
    let mut missing: BTreeSet<Ipv6Addr> = wanted.clone();
    for entry in found.iter().filter(|entry| entry.roce_v2) {
        missing.remove(&entry.gid);
    }
    for port in &mut ports {
        while !missing.is_empty() && port.next < port.size {
            for entry in port.read_to(port.next + ALWAYS_READ) {
                if entry.roce_v2 {
                    missing.remove(&entry.gid);
                }
                found.push(entry);
            }
        }
    }
    found.sort_by(|a, b| (&a.device, a.port, a.index).cmp(&(&b.device, b.port, b.index)));
    found
}

/// One port's table and how far it was read.
struct PortTable {
    device: RdmaName,
    port: u32,
    path: PathBuf,
    next: u32,
    size: u32,
}

impl PortTable {
    /// Reads on up to (not including) `end`.
    fn read_to(&mut self, end: u32) -> Vec<GidEntry> {
        let end = end.min(self.size);
        let entries = (self.next..end)
            .filter_map(|index| self.entry(index))
            .collect();
        self.next = self.next.max(end);
        entries
    }

    fn entry(&self, index: u32) -> Option<GidEntry> {
        let read = |part: &str| read_short(&self.path.join(part).join(index.to_string()));
        let gid: Ipv6Addr = read("gids")?.parse().ok()?;
        if gid.is_unspecified() {
            return None;
        }
        Some(GidEntry {
            device: self.device.clone(),
            port: self.port,
            index,
            gid,
            roce_v2: read("gid_attrs/types")?.eq_ignore_ascii_case("RoCE v2"),
            netdev: read("gid_attrs/ndevs"),
        })
    }
}

fn ports(root: &Path) -> Vec<PortTable> {
    let class = root.join("sys/class/infiniband");
    let devices = names(&class)
        .into_iter()
        .filter_map(|name| RdmaName::parse(&name).ok());
    devices
        .flat_map(|device| ports_of(&class, &device))
        .collect()
}

fn ports_of(class: &Path, device: &RdmaName) -> Vec<PortTable> {
    let ports = class.join(device.as_str()).join("ports");
    let table = |name: String| {
        let path = ports.join(&name);
        let size = names(&path.join("gids"))
            .iter()
            .filter_map(|n| n.parse::<u32>().ok())
            .max();
        let size = size.map_or(0, |last| last.saturating_add(1));
        Some(PortTable {
            device: device.clone(),
            port: name.parse().ok()?,
            path,
            next: 0,
            size,
        })
    };
    names(&ports).into_iter().filter_map(table).collect()
}

/// Names in a directory, sorted; none if it cannot be read.
fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return vec![];
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// A sysfs attribute of one line, or nothing.
fn read_short(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(256)
        .read_to_string(&mut text)
        .ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    fn entry(root: &Path, device: &str, index: u32, gid: &str, kind: Option<&str>) {
        let port = root
            .join("sys/class/infiniband")
            .join(device)
            .join("ports/1");
        for (part, text) in [("gids", Some(gid)), ("gid_attrs/types", kind)] {
            create_dir_all(port.join(part)).unwrap();
            if let Some(text) = text {
                write(port.join(part).join(index.to_string()), format!("{text}\n")).unwrap();
            }
        }
    }

    #[test]
    fn case_1_unreadable_types_and_zero_entries_skip_the_entry() {
        let root = tempfile::tempdir().unwrap();
        let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
        entry(root.path(), "mlx5_5", 0, zero, Some("IB/RoCE v1"));
        entry(
            root.path(),
            "mlx5_5",
            5,
            "fe80:0000:0000:0000:0000:0000:0000:0001",
            None,
        );
        entry(
            root.path(),
            "mlx5_5",
            6,
            "0000:0000:0000:0000:0000:ffff:0aef:ff01",
            Some("IB/RoCE v1"),
        );
        entry(
            root.path(),
            "mlx5_5",
            7,
            "0000:0000:0000:0000:0000:ffff:0aef:ff01",
            Some("RoCE v2"),
        );
        let found = gid_tables(root.path(), &BTreeSet::new());
        let seen: Vec<(u32, bool)> = found.iter().map(|e| (e.index, e.roce_v2)).collect();
        assert_eq!(seen, [(6, false), (7, true)]);
        assert_eq!(found[1].gid.to_string(), "::ffff:10.239.255.1");
    }

    #[test]
    fn a_gid_far_down_the_table_is_found_when_wanted() {
        let root = tempfile::tempdir().unwrap();
        let gid: Ipv6Addr = "::ffff:10.0.0.9".parse().unwrap();
        entry(
            root.path(),
            "mlx5_1",
            900,
            "0000:0000:0000:0000:0000:ffff:0a00:0009",
            Some("RoCE v2"),
        );
        assert!(gid_tables(root.path(), &BTreeSet::new()).is_empty());
        let found = gid_tables(root.path(), &BTreeSet::from([gid]));
        assert_eq!(found.iter().map(|e| e.index).collect::<Vec<_>>(), [900]);
    }

    #[test]
    fn no_rdma_is_no_entries() {
        assert!(gid_tables(Path::new("/nonexistent"), &BTreeSet::new()).is_empty());
    }
}
