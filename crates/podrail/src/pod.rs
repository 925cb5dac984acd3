//! What a process inside a network namespace sees of its rails.

use crate::failure::Failure;
use nix::sys::resource::{Resource, getrlimit};
use podrail_core::ids::{IfName, RdmaName};
use podrail_core::plan::Alias;
use podrail_core::verify::{Evidence, Memlock, RailInterface, gid_of, map};
use podrail_netlink::{Link, NetNs, Rtnl};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::net::IpAddr;
use std::path::Path;

/// Bit of CAP_IPC_LOCK in `CapEff`.
const CAP_IPC_LOCK: u32 = 14;

/// Runs `look` in the namespace at `path`, or right here without one.
pub fn inside<T: Send>(
    path: Option<&Path>,
    look: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    match path {
        None => look(),
        Some(path) => NetNs::open(path)?.run(look)?,
    }
}

/// Everything that `podrail map` and `podrail check` need to know about the current namespace.
pub fn look() -> Result<Evidence, Failure> {
    let interfaces = rail_interfaces()?;
    let wanted = interfaces
        .iter()
        .flat_map(|i| &i.addresses)
        .map(|a| gid_of(*a))
        .collect();
    let gids = podrail_host::gids::gid_tables(Path::new("/"), &wanted);
    Ok(Evidence {
        shared_mode: shared_mode(),
        map: map(&interfaces, &gids),
        gids,
        openable: openable_devices(),
        pci_of: pci_addresses(),
        allocated: allocated(texts(std::env::vars_os())),
        expected: None,
        memlock: memlock()?,
    })
}

/// The rails' children: IPvlan interfaces that carry our alias, or that are called `net…` as
/// Multus names them.
fn rail_interfaces() -> Result<Vec<RailInterface>, Failure> {
    let mut rtnl = Rtnl::open()?;
    let links = rtnl.links()?;
    let addresses = rtnl.addresses()?;
    let global = |ifindex: u32| -> Vec<IpAddr> {
        addresses
            .iter()
            .filter(|address| address.ifindex == ifindex)
            .map(|address| address.net.addr())
            .filter(|address| !is_link_local(*address))
            .collect()
    };
    let children = links.iter().filter(|link| is_rail_child(link));
    Ok(children
        .filter_map(|link| {
            let name = IfName::parse(&link.name).ok()?;
            Some(RailInterface {
                name,
                addresses: global(link.index),
            })
        })
        .collect())
}

fn is_rail_child(link: &Link) -> bool {
    let ours = link
        .alias
        .as_deref()
        .is_some_and(|alias| Alias::parse(alias).is_ok());
    link.ipvlan.is_some() && (ours || link.name.starts_with("net"))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// `Y` is shared, `N` exclusive; no file without ib_core.
fn shared_mode() -> Option<bool> {
    let text = std::fs::read_to_string("/sys/module/ib_core/parameters/netns_mode").ok()?;
    Some(text.trim() == "Y")
}

/// Devices whose uverbs file opens for reading and writing: what libibverbs does first.
fn openable_devices() -> BTreeSet<RdmaName> {
    let class = Path::new("/sys/class/infiniband_verbs");
    let Ok(entries) = std::fs::read_dir(class) else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let device = std::fs::read_to_string(entry.path().join("ibdev")).ok()?;
            let node = Path::new("/dev/infiniband").join(name);
            OpenOptions::new().read(true).write(true).open(node).ok()?;
            RdmaName::parse(device.trim()).ok()
        })
        .collect()
}

/// PCI address of each RDMA device that has one in sysfs.
fn pci_addresses() -> BTreeMap<RdmaName, String> {
    let Ok(entries) = std::fs::read_dir("/sys/class/infiniband") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = RdmaName::parse(&entry.file_name().into_string().ok()?).ok()?;
            let device = entry.path().join("device").canonicalize().ok()?;
            Some((name, device.file_name()?.to_str()?.to_owned()))
        })
        .collect()
}

/// The variables that are text: `env::vars` panics at one that is not.
fn texts(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, String)> {
    variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// PCI addresses in the `PCIDEVICE_<RESOURCE>` variables that device plugins set; `…_INFO`
/// variables hold JSON and are left out. Variables that name no device tell nothing.
fn allocated(variables: impl Iterator<Item = (String, String)>) -> Option<BTreeSet<String>> {
    let found: BTreeSet<String> = variables
        .filter(|(name, _)| name.starts_with("PCIDEVICE_") && !name.ends_with("_INFO"))
        .flat_map(|(_, value)| {
            let names = value
                .split(',')
                .map(|name| name.trim().to_ascii_lowercase());
            names.filter(|name| !name.is_empty()).collect::<Vec<_>>()
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

fn memlock() -> Result<Memlock, Failure> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).map_err(Failure::Limits)?;
    Ok(Memlock {
        uid: nix::unistd::geteuid().as_raw(),
        limit: (soft != nix::libc::RLIM_INFINITY).then_some(soft),
        ipc_lock: has_ipc_lock(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()),
    })
}

fn has_ipc_lock(status: &str) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << CAP_IPC_LOCK) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocated_devices_come_from_the_environment() {
        let vars = |list: &[(&str, &str)]| {
            let owned: Vec<(String, String)> = list
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect();
            allocated(owned.into_iter())
        };
        assert_eq!(vars(&[("PATH", "/bin")]), None);
        let found = vars(&[
            ("PCIDEVICE_NVIDIA_COM_HOSTDEV", "0000:0c:00.0,0000:0c:00.1"),
            ("PCIDEVICE_NVIDIA_COM_HOSTDEV_INFO", "{}"),
        ]);
        assert_eq!(found.unwrap().len(), 2);
        for nothing in ["", ",", " "] {
            assert_eq!(vars(&[("PCIDEVICE_A", nothing)]), None, "{nothing:?}");
        }
        let odd = vars(&[("PCIDEVICE_A", "0000:0C:00.0, 0000:0c:00.1,")]).unwrap();
        let odd: Vec<&str> = odd.iter().map(String::as_str).collect();
        assert_eq!(odd, ["0000:0c:00.0", "0000:0c:00.1"]);
    }

    #[test]
    fn a_variable_that_is_no_text_is_left_out() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![0xff]);
        let variables = [
            ("X".into(), odd.clone()),
            (odd, "1".into()),
            ("Y".into(), "2".into()),
        ];
        let found: Vec<_> = texts(variables.into_iter()).collect();
        assert_eq!(found, [("Y".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn capability_masks() {
        assert!(has_ipc_lock("Name:\tx\nCapEff:\t00000000a80465fb\n"));
        assert!(!has_ipc_lock("CapEff:\t00000000a80425fb\n"));
        assert!(!has_ipc_lock(""));
    }
}
