//! From wish to plan on a small node: two roots, each with a GPU and a dual-port NIC.

mod pods;

use super::*;
use crate::config::PoolSettings;
use crate::ids::{NicId, RootId};
use crate::topology::{Gpu, GpuKind, LinkState, PciPath};

fn path(root: &str, function: &str) -> PciPath {
    PciPath {
        root: RootId::parse(root).unwrap(),
        bridges: vec![],
        function: PciAddr::parse(function).unwrap(),
        numa: Some(0),
    }
}

fn rail(index: u16, root: &str, function: &str) -> Rail {
    let path = path(root, function);
    Rail {
        index: RailIndex(index),
        nic: path.function.nic(),
        path,
        pci_id: (0x15b3, 0x1019),
        netdev: IfName::parse(&format!("rdma{index}")).ok(),
        ifindex: Some(u32::from(index) + 2),
        rdma: RdmaName::parse(&format!("mlx5_{}", 9 - index)).ok(),
        port: 1,
        uverbs: Some(format!("uverbs{index}")),
        umad: None,
        issm: None,
        guid: None,
        mac: None,
        mtu: Some(4220),
        speed_mbps: Some(100_000),
        link: LinkState::Up,
        faults: vec![],
    }
}

fn node() -> Topology {
    let gpu = |root, function| Gpu {
        path: path(root, function),
        kind: GpuKind::Nvidia,
        uuid: None,
        model: None,
        aliases: vec![],
    };
    Topology {
        gpus: vec![
            gpu("0000:0b", "0000:0f:00.0"),
            gpu("0000:46", "0000:50:00.0"),
        ],
        rails: vec![
            rail(0, "0000:0b", "0000:0c:00.0"),
            rail(1, "0000:0b", "0000:0c:00.1"),
            rail(2, "0000:46", "0000:47:00.0"),
            rail(3, "0000:46", "0000:47:00.1"),
        ],
        ..Topology::default()
    }
}

fn pool(block_size: u32) -> Pool {
    let settings = PoolSettings {
        name: "rails".into(),
        subnets: vec![
            "10.239.255.0/24".parse().unwrap(),
            "fd00::/64".parse().unwrap(),
        ],
        block_size: Some(block_size),
        block: 0,
        exclude: vec![],
        gateways: vec!["10.239.255.254".parse().unwrap()],
    };
    Pool::new("pool", &settings).unwrap()
}

fn wish(gpus: &[usize], rails: u16) -> Wish {
    let sandbox = SandboxId::parse("job-1").unwrap();
    Wish {
        sandbox,
        gpus: gpus.to_vec(),
        rails,
        previous_rp_filter: Some("2".into()),
    }
}

fn decided(settings: &RailSettings, held: &Held, wish: &Wish) -> Result<Decision, DecideError> {
    let (topology, pool) = (node(), pool(8));
    decide(
        &Means {
            topology: &topology,
            settings,
            pool: &pool,
        },
        held,
        wish,
    )
}

#[test]
fn a_gpu_gets_its_own_roots_rails_with_an_address_of_each_family() {
    let decision = decided(&RailSettings::default(), &Held::default(), &wish(&[1], 2)).unwrap();
    let attachment = decision.attachment;
    assert_eq!((attachment.near(), attachment.exact), (2, true));
    let lines: Vec<String> = attachment
        .rails
        .iter()
        .map(|rail| {
            let addresses: Vec<String> = rail.addresses.iter().map(ToString::to_string).collect();
            format!("{} {} {}", rail.netdev, rail.interface, addresses.join(" "))
        })
        .collect();
    assert_eq!(
        lines,
        [
            "rdma2 net3 10.239.255.1/24 fd00::1/64",
            "rdma3 net4 10.239.255.2/24 fd00::2/64"
        ]
    );
    assert_eq!(attachment.plan.rails[0].gateways.len(), 1);
    assert_eq!(
        attachment.plan.namespace_sysctls[0].previous.as_deref(),
        Some("2")
    );
}

#[test]
fn what_is_held_is_not_given_again_and_what_was_freed_waits() {
    let held = Held {
        bound: vec![Bound {
            sandbox: SandboxId::parse("other").unwrap(),
            gpus: vec![1],
            rails: vec![RailIndex(2), RailIndex(3)],
        }],
        addresses: BTreeSet::from(["10.239.255.1".parse().unwrap()]),
        freed: vec!["10.239.255.2".parse().unwrap()],
        cursors: Cursors::default(),
    };
    let settings = RailSettings::default();
    let attachment = decided(&settings, &held, &wish(&[1], 2))
        .unwrap()
        .attachment;
    assert_eq!(attachment.near(), 0);
    let first = &attachment.rails[0];
    assert_eq!(
        (first.netdev.as_str(), first.distance),
        ("rdma0", Some(Level::Numa))
    );
    assert_eq!(first.addresses[0].to_string(), "10.239.255.3/24");
    let error = decided(&settings, &held, &wish(&[1], 3)).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("2x other"), "{cause}");
}

#[test]
fn each_refusal_has_a_hint() {
    let settings = RailSettings::default();
    let too_many = decided(&settings, &Held::default(), &wish(&[], 5)).unwrap_err();
    assert!(matches!(too_many, DecideError::Rails { .. }));
    let small = (2..=8)
        .map(|n| format!("10.239.255.{n}").parse().unwrap())
        .collect();
    let full = Held {
        addresses: small,
        ..Held::default()
    };
    let exhausted = decided(&settings, &full, &wish(&[], 2)).unwrap_err();
    assert!(matches!(exhausted, DecideError::Addresses { .. }));
    let jumbo = RailSettings {
        mtu: Some(9000),
        ..RailSettings::default()
    };
    let mtu = decided(&jumbo, &Held::default(), &wish(&[], 1)).unwrap_err();
    assert!(matches!(mtu, DecideError::Rails { .. }));
    let cause = std::error::Error::source(&mtu).unwrap().to_string();
    assert!(cause.contains("rails.mtu is 9000"), "{cause}");
    for error in [too_many, exhausted, mtu] {
        assert!(!error.hint().is_empty());
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn an_attachment_survives_the_state_file() {
    let decision = decided(
        &RailSettings::default(),
        &Held::default(),
        &wish(&[0, 1], 4),
    )
    .unwrap();
    let text = serde_json::to_string(&decision.attachment).unwrap();
    assert_eq!(
        serde_json::from_str::<Attachment>(&text).unwrap(),
        decision.attachment
    );
    let unknown = text.replacen('{', "{\"extra\":1,", 1);
    assert!(serde_json::from_str::<Attachment>(&unknown).is_err());
}

#[test]
fn a_plan_of_an_older_program_is_read() {
    let wish = wish(&[0], 1);
    let decision = decided(&RailSettings::default(), &Held::default(), &wish).unwrap();
    let text = serde_json::to_string(&decision.attachment).unwrap();
    // Written without slots and containers, as before them.
    assert!(
        !text.contains("slot") && !text.contains("containers"),
        "{text}"
    );
    let read: Attachment = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (read.rails[0].slot, read.rails[0].containers.len()),
        (None, 0)
    );
}

#[test]
fn an_override_moves_a_gpu() {
    let override_ = crate::config::Override {
        gpu: PciAddr::parse("0000:0f:00.0").unwrap(),
        nic: NicId::parse("0000:47:00").unwrap(),
        level: Level::Switch,
    };
    let settings = RailSettings {
        overrides: vec![override_],
        ..RailSettings::default()
    };
    let attachment = decided(&settings, &Held::default(), &wish(&[0], 2))
        .unwrap()
        .attachment;
    let rails: Vec<u16> = attachment.rails.iter().map(|rail| rail.index.0).collect();
    assert_eq!(rails, [2, 3]);
}
