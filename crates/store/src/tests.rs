//! The store on real files: what it keeps, refuses and survives.

mod basics;
mod crash;
mod damage;
mod files;
mod freed;
mod migrate;
mod model;
mod parallel;
mod power;
mod rebuild;
mod slots;

use crate::*;
use podrail_core::config::PoolSettings;
use podrail_core::ids::{PciAddr, RailIndex, SandboxId};
use podrail_core::ipam::{self, Exhausted, Pool};
use podrail_core::pods::PodRef;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A choice that fails.
#[derive(Debug, thiserror::Error)]
enum NoRails {
    #[error("no share of a rail is free")]
    Rails,
    #[error("no address is free")]
    Addresses(#[source] Exhausted),
}

fn boot(number: u32) -> BootId {
    BootId::parse(&format!("00000000-0000-4000-8000-{number:012x}\n")).unwrap()
}

fn sandbox(name: &str) -> SandboxId {
    SandboxId::parse(name).unwrap()
}

fn state_file(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("podrail/state.db")
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn open(path: &Path) -> Store {
    Store::open(path, &boot(1)).unwrap().store
}

fn request(name: &str, fingerprint: &str) -> Request {
    Request {
        sandbox: sandbox(name),
        fingerprint: fingerprint.into(),
        netns: format!("/run/netns/{name}"),
        netns_id: Some(NetnsId {
            dev: u64::MAX,
            ino: 4_026_531_840,
        }),
        gpus: vec![
            PciAddr::parse("0000:18:00.0").unwrap(),
            PciAddr::parse("0000:2a:00.0").unwrap(),
        ],
        pod: None,
        at: 1_800_000_000,
        seen: BTreeMap::new(),
    }
}

fn pod_ref(name: &str) -> PodRef {
    PodRef {
        uid: format!("uid-of-{name}").parse().unwrap(),
        namespace: "jobs".parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

/// 16 rails on 8 dual-port NICs, with a block of addresses.
struct Node {
    shares: u16,
    pool: Pool,
}

impl Node {
    fn new(shares: u16, block_size: u32) -> Self {
        let settings = PoolSettings {
            name: "rails".into(),
            subnets: vec![
                "10.239.0.0/16".parse().unwrap(),
                "fd00::/64".parse().unwrap(),
            ],
            block_size: Some(block_size),
            block: 1,
            exclude: vec![],
            gateways: vec![],
        };
        let pool = Pool::new("pool", &settings).unwrap();
        Self { shares, pool }
    }

    fn rail(index: u16, share: u16) -> BoundRail {
        let text = format!("0000:{:02x}:00.{}", 0x40 + index / 2, index % 2);
        BoundRail {
            index: RailIndex(index),
            pci: text.parse().unwrap(),
            port: 1,
            netdev: format!("rdma{index}").parse().unwrap(),
            share,
            slot: None,
        }
    }

    fn free_share(&self, index: u16, held: &Snapshot) -> Option<BoundRail> {
        let rails = held.holdings.iter().flat_map(|holding| &holding.rails);
        let taken: Vec<_> = rails
            .filter(|rail| rail.index.0 == index)
            .map(|rail| rail.share)
            .collect();
        let share = (0..self.shares).find(|share| !taken.contains(share))?;
        Some(Self::rail(index, share))
    }

    /// The first free shares, each of another rail, and the next addresses.
    fn choose(&self, held: &Snapshot, count: usize) -> Result<Decision, NoRails> {
        let free = (0..16).filter_map(|index| self.free_share(index, held));
        let rails: Vec<_> = free.take(count).collect();
        if rails.len() < count {
            return Err(NoRails::Rails);
        }
        let name = self.pool.name();
        let found = ipam::allocate(&self.pool, held.history(name), count);
        let found = found.map_err(NoRails::Addresses)?;
        let leases = rails.iter().zip(&found.slots).flat_map(|(rail, slot)| {
            slot.iter().map(|address| Lease {
                address,
                pool: name.clone(),
                rail: rail.index,
            })
        });
        Ok(Decision {
            leases: leases.collect(),
            cursors: BTreeMap::from([(name.clone(), found.cursors)]),
            plan: format!("{{\"rails\":{count}}}"),
            rails,
        })
    }

    fn reserve(
        &self,
        store: &mut Store,
        name: &str,
        count: usize,
    ) -> Result<Reserved, ReserveError<NoRails>> {
        store.reserve(&request(name, "{}"), |held| self.choose(held, count))
    }
}

/// No share and no address has two holders, and every binding is whole.
fn assert_sound(bindings: &[Binding]) {
    let rails = || bindings.iter().flat_map(|binding| &binding.rails);
    let leases = || bindings.iter().flat_map(|binding| &binding.leases);
    let shares: std::collections::BTreeSet<_> = rails()
        .map(|rail| (rail.pci, rail.port, rail.share))
        .collect();
    assert_eq!(shares.len(), rails().count(), "a share has two holders");
    let addresses: std::collections::BTreeSet<_> = leases().map(|lease| lease.address).collect();
    assert_eq!(
        addresses.len(),
        leases().count(),
        "an address has two holders"
    );
    for binding in bindings {
        let expected = format!("{{\"rails\":{}}}", binding.rails.len());
        assert_eq!(binding.plan, expected, "rails are missing");
        assert_eq!(
            binding.leases.len(),
            2 * binding.rails.len(),
            "leases are missing"
        );
    }
}

/// This test's program once more, as another process that runs `test` only.
fn child(test: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// What a child was told to do; none in a normal test run.
fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Everything printed about an error: its own text only, and a next step.
fn assert_told<E: std::error::Error>(error: &E, hint: &str) {
    let text = error.to_string();
    assert!(!hint.is_empty() && !text.is_empty());
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        assert!(!text.contains(&inner_text), "{text} repeats {inner_text}");
        source = inner.source();
    }
}
