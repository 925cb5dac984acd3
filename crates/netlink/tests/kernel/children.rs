//! IPvlan children. A kernel without the module shows its refusal, and the rest is skipped.

use crate::sandbox::Sandbox;
use ipnet::IpNet;
use podrail_core::ids::IfName;
use podrail_netlink::{
    Alias, Errno, Group, InetConf, IpvlanMode, NetNs, NewAddress, NewIpvlan, NewRoute, Refusal,
    Request, Rtnl, SourceRule,
};
use std::num::NonZeroU32;
use std::time::Instant;

const RAILS: u8 = 16;
const PROTOCOL: u8 = 201;

/// A host with sixteen rails, and a pod.
struct Node {
    host: Sandbox,
    pod: Sandbox,
    target: NetNs,
}

impl Node {
    fn new() -> Option<Self> {
        let (host, pod) = (Sandbox::new()?, Sandbox::new()?);
        for rail in 0..RAILS {
            host.ip(&format!(
                "link add r{rail} mtu 9000 type veth peer name s{rail}"
            ));
            host.ip(&format!("link set r{rail} up"));
            host.ip(&format!("link set s{rail} up"));
        }
        let target = pod.netns();
        Some(Self { host, pod, target })
    }

    /// As [`Node::new`], with IPvlan; what cannot be is told once.
    fn with_ipvlan() -> Option<Self> {
        let node = Self::new()?;
        let probe = IfName::parse("probe").unwrap();
        let made = node.host.rtnl().apply(&[node.child(0, &probe)]);
        match &made[0] {
            Ok(()) => node.pod.ip("link del probe"),
            Err(refusal) => {
                assert_eq!(refusal.errno(), Some(Errno::EOPNOTSUPP));
                assert!(
                    refusal.to_string().ends_with("(Unknown device type)"),
                    "{refusal}"
                );
                println!("skipped: no IPvlan in this kernel");
                return None;
            }
        }
        Some(node)
    }

    fn child<'a>(&'a self, rail: u8, name: &'a IfName) -> Request<'a> {
        Request::CreateIpvlan(NewIpvlan {
            name,
            parent: self.host.index(&format!("r{rail}")),
            target: &self.target,
            index: NonZeroU32::new(index(rail)),
            mtu: 9000,
            group: group(),
        })
    }

    fn refusal(&self, request: Request<'_>) -> Refusal {
        self.host.rtnl().apply(&[request]).remove(0).unwrap_err()
    }
}

fn index(rail: u8) -> u32 {
    1000 + u32::from(rail)
}

fn group() -> Group {
    Group(NonZeroU32::new(77).unwrap())
}

fn name(rail: u8) -> IfName {
    IfName::parse(&format!("net{}", rail + 1)).unwrap()
}

/// Everything of one child, by the index that was chosen for it.
fn configuration(rail: u8) -> Vec<Request<'static>> {
    let (link, table) = (index(rail), 100 + u32::from(rail));
    let from = [10, 7, rail, 9].into();
    let net = IpNet::new(from, 24).unwrap();
    let settings = vec![
        (InetConf::ArpAnnounce, 2),
        (InetConf::ArpFilter, 1),
        (InetConf::ArpIgnore, 1),
        (InetConf::RpFilter, 0),
        (InetConf::AcceptLocal, 1),
    ];
    let alias = Alias::parse(&format!("podrail:abc:{rail}")).unwrap();
    vec![
        Request::SetAlias {
            link: link.into(),
            alias,
        },
        Request::SetInetConf {
            link: link.into(),
            values: settings,
        },
        Request::SetUp(link.into()),
        Request::AddAddress(NewAddress { link, net }),
        Request::AddRoute(NewRoute {
            table,
            dest: net,
            oif: link,
            prefsrc: Some(from),
            gateway: None,
            protocol: PROTOCOL,
        }),
        Request::AddRule(SourceRule {
            from,
            table,
            priority: 50,
            protocol: PROTOCOL,
        }),
    ]
}

/// The figures that the plugin's budget rests on are printed, not judged.
#[test]
fn sixteen_children_are_two_round_trips_and_one_to_delete() {
    let Some(node) = Node::with_ipvlan() else {
        return;
    };
    let names: Vec<_> = (0..RAILS).map(name).collect();
    let create: Vec<_> = (0..RAILS)
        .zip(&names)
        .map(|(rail, name)| node.child(rail, name))
        .collect();
    let configure: Vec<_> = (0..RAILS).flat_map(configuration).collect();
    let (mut host, mut pod) = (node.host.rtnl(), Rtnl::open_in(&node.target).unwrap());

    let start = Instant::now();
    assert!(host.apply(&create).iter().all(Result::is_ok));
    let created = start.elapsed();
    assert!(pod.apply(&configure).iter().all(Result::is_ok));
    println!(
        "16 children: created in {created:?}, configured in {:?}",
        start.elapsed() - created
    );
    assert_eq!((host.round_trips(), pod.round_trips()), (1, 1));

    judge(&node);
    let net1 = pod.link(&name(0)).unwrap().unwrap();
    let ipvlan = net1.ipvlan.unwrap();
    assert_eq!((ipvlan.mode, ipvlan.is_bridge()), (IpvlanMode::L2, true));
    assert_eq!((net1.index, net1.group, net1.mtu), (1000, 77, 9000));
    assert_eq!(net1.parent.unwrap().index, node.host.index("r0"));
    assert!(net1.parent.unwrap().netnsid.is_some());
    assert_eq!(net1.inet_conf.unwrap().get(InetConf::ArpAnnounce), Some(2));

    let start = Instant::now();
    assert!(pod.apply(&[Request::DelGroup(group())])[0].is_ok());
    println!("16 children: deleted in {:?}", start.elapsed());
    assert_eq!(node.pod.judge("link").len(), 1);
}

fn judge(node: &Node) {
    assert_eq!(node.pod.judge("link").len(), 1 + usize::from(RAILS));
    assert!(node.host.judge("link show type ipvlan").is_empty());
    for rail in 0..RAILS {
        let child = &node.pod.judge(&format!("address show dev {}", name(rail)))[0];
        assert_eq!(child["linkinfo"]["info_kind"], "ipvlan");
        assert_eq!(child["linkinfo"]["info_data"]["mode"], "l2");
        assert_eq!(child["ifalias"], format!("podrail:abc:{rail}"));
        assert_eq!(child["addr_info"][0]["local"], format!("10.7.{rail}.9"));
        let table = node
            .pod
            .judge(&format!("route show table {}", 100 + u32::from(rail)));
        assert_eq!(table.len(), 1);
    }
    assert_eq!(node.pod.sysctl("net/ipv4/conf/net16/arp_announce"), "2");
}

/// What the documentation of the request promises.
#[test]
fn children_are_refused_as_documented() {
    let Some(node) = Node::with_ipvlan() else {
        return;
    };
    let (net1, net2) = (name(0), name(1));
    assert!(node.host.rtnl().apply(&[node.child(0, &net1)])[0].is_ok());
    let again = node.refusal(node.child(0, &net1));
    let same_index = node.refusal(node.child(0, &net2));
    let same_name = node.refusal(node.child(1, &net1));
    assert!(again.is_already_there(), "{again}");
    assert!(same_index.is_already_there(), "{same_index}");
    assert!(same_name.is_already_there(), "{same_name}");
    node.host.ip("link add link r5 name m5 type macvlan");
    let beside_macvlan = node.refusal(node.child(5, &net2));
    assert_eq!(
        beside_macvlan.errno(),
        Some(Errno::EBUSY),
        "{beside_macvlan}"
    );
    println!("{again}\n{beside_macvlan}");
}

/// The child's name is free in the pod and taken on the host, which must not matter.
#[test]
fn a_name_on_the_host_does_not_clash() {
    let Some(node) = Node::with_ipvlan() else {
        return;
    };
    node.host.ip("link add net1 type veth peer name net2");
    assert!(node.host.rtnl().apply(&[node.child(0, &name(0))])[0].is_ok());
}
