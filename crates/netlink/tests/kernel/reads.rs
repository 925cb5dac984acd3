//! Dumps, compared with what `ip` lists.

use crate::sandbox::Sandbox;
use ipnet::IpNet;
use podrail_core::ids::IfName;
use podrail_netlink::{Family, InetConf, Link, NewAddress, Request};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What `ip -j -d link` says, in our words; `ip` gives the parent by name where it is in sight.
fn facts(link: &Link) -> Value {
    json!({
        "index": link.index,
        "name": link.name,
        "mtu": link.mtu,
        "mac": link.mac.map(|mac| mac.to_string()),
        "kind": link.kind,
        "port_kind": link.port_kind,
        "alias": link.alias,
        "up": link.up,
        "carrier": link.carrier,
        "altnames": link.altnames,
        "netnsid": link.parent.and_then(|parent| parent.netnsid),
    })
}

fn judged(link: &Value) -> Value {
    let flag = |name: &str| link["flags"].as_array().unwrap().contains(&json!(name));
    json!({
        "index": link["ifindex"],
        "name": link["ifname"],
        "mtu": link["mtu"],
        "mac": link["address"],
        "kind": link["linkinfo"]["info_kind"],
        "port_kind": link["linkinfo"]["info_slave_kind"],
        "alias": link["ifalias"],
        "up": flag("UP"),
        "carrier": flag("LOWER_UP"),
        "altnames": link["altnames"].as_array().cloned().unwrap_or_default(),
        "netnsid": link["link_netnsid"],
    })
}

fn link(links: &[Link], name: &str) -> Link {
    links.iter().find(|link| link.name == name).unwrap().clone()
}

#[test]
fn links_are_as_ip_lists_them() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let Some(other) = Sandbox::new() else { return };
    sandbox.ip("link add v0 mtu 9000 type veth peer name v1");
    sandbox.ip("link add v2 type veth peer name v3");
    sandbox.ip("link add br0 type bridge");
    sandbox.ip("link set v2 master br0");
    sandbox.ip("link property add dev v0 altname rail-four altname enp1s0f0np0");
    sandbox.ip("link set v0 alias podrail:abc:4 group 77 up");
    sandbox.ip("link set v1 up");
    sandbox.ip("link add link v0 name m0 type macvlan mode bridge");
    sandbox.ip(&format!(
        "link add link v0 name m1 netns {} type macvlan",
        other.name()
    ));

    let links = sandbox.rtnl().links().unwrap();
    let ours: Vec<_> = links.iter().map(facts).collect();
    let theirs: Vec<_> = sandbox.judge("link").iter().map(judged).collect();
    assert_eq!(ours, theirs);

    let (v0, m0) = (link(&links, "v0"), link(&links, "m0"));
    assert_eq!(v0.group, 77);
    assert_eq!(m0.parent.unwrap().index, v0.index);
    assert_eq!(m0.parent.unwrap().netnsid, None);
    assert_eq!(link(&links, "v2").master, Some(link(&links, "br0").index));
    assert_eq!((v0.arp_type, link(&links, "lo").arp_type), (1, 772));

    let there = other.rtnl().links().unwrap();
    let m1 = link(&there, "m1").parent.unwrap();
    assert_eq!(m1.index, v0.index);
    assert!(m1.netnsid.is_some_and(|id| id >= 0));
}

#[test]
fn a_link_is_found_by_either_name() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add v0 type veth peer name v1");
    sandbox.ip("link property add dev v0 altname rail-four");
    let mut rtnl = sandbox.rtnl();
    let mut look_up = |name| rtnl.link(&IfName::parse(name).unwrap()).unwrap();
    assert_eq!(look_up("v0").unwrap().index, sandbox.index("v0"));
    assert_eq!(look_up("rail-four").unwrap().name, "v0");
    assert_eq!(look_up("net9"), None);
}

#[test]
fn settings_are_those_of_proc_sys() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add v0 type veth peer name v1");
    let links = sandbox.rtnl().links().unwrap();
    for name in ["v0", "lo"] {
        let values = link(&links, name).inet_conf.unwrap();
        for setting in InetConf::ALL {
            let theirs = sandbox.sysctl(&format!("net/ipv4/conf/{name}/{setting}"));
            assert_eq!(
                values.get(setting).unwrap().to_string(),
                theirs,
                "{name} {setting}"
            );
        }
    }
}

#[test]
fn a_link_without_ipv4_has_no_settings() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link set lo mtu 67");
    let links = sandbox.rtnl().links().unwrap();
    assert_eq!(link(&links, "lo").inet_conf, None);
}

#[test]
fn addresses_are_as_ip_lists_them() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add v0 type veth peer name v1");
    sandbox.ip("link set v1 up");
    sandbox.ip("link set v0 up");
    sandbox.ip("address add 10.7.0.9/24 dev v0");
    sandbox.ip("address add 10.7.0.10/24 dev v0 noprefixroute");
    sandbox.ip("address add 10.9.0.1 peer 10.9.0.2/32 dev v0");
    sandbox.ip("address add 2001:db8::9/64 dev v0 nodad");
    let ours: Vec<_> = sandbox.rtnl().addresses().unwrap();
    let mut theirs = Vec::new();
    for link in sandbox.judge("address") {
        for address in link["addr_info"].as_array().unwrap() {
            let text = format!(
                "{}/{}",
                address["local"].as_str().unwrap(),
                address["prefixlen"]
            );
            let flag = |name: &str| address[name] == json!(true);
            theirs.push((
                link["ifindex"].as_u64().unwrap(),
                text.parse::<IpNet>().unwrap(),
                (
                    flag("noprefixroute"),
                    flag("nodad"),
                    flag("tentative"),
                    flag("secondary"),
                ),
            ));
        }
    }
    let mut ours: Vec<_> = ours
        .iter()
        .map(|a| {
            let f = a.flags;
            let flags = (f.no_prefix_route(), f.nodad(), f.tentative(), f.secondary());
            (u64::from(a.ifindex), a.net, flags)
        })
        .collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
    assert_eq!(ours.iter().filter(|(_, _, flags)| flags.0).count(), 1);
}

#[test]
fn rules_are_as_ip_lists_them() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("rule add from 10.7.0.9/32 table 1234 priority 50 protocol 201");
    sandbox.ip("rule add from 10.8.0.0/16 to 10.9.0.0/16 table 99 priority 60");
    sandbox.ip("rule add fwmark 7 table 100 priority 70");
    sandbox.ip("rule add not from 10.1.0.1 table 100 priority 80");
    sandbox.ip("-6 rule add from 2001:db8::9/128 table 1234 priority 50");
    let mut rtnl = sandbox.rtnl();
    for (family, words, count) in [(Family::V4, "rule", 7), (Family::V6, "-6 rule", 3)] {
        let ours = rtnl.rules(family).unwrap();
        let theirs = sandbox.judge(words);
        assert_eq!((ours.len(), theirs.len()), (count, count));
        for (our, their) in ours.iter().zip(&theirs) {
            assert_eq!(Some(u64::from(our.priority)), their["priority"].as_u64());
            let from = our
                .from
                .map_or("all".to_owned(), |from| from.addr().to_string());
            assert_eq!(Some(from.as_str()), their["src"].as_str());
            let odd = their.get("fwmark").is_some() || their.get("not").is_some();
            assert_eq!(our.plain, !odd, "{their}");
        }
    }
    let v4 = rtnl.rules(Family::V4).unwrap();
    let ours = v4.iter().find(|rule| rule.priority == 50).unwrap();
    assert_eq!((ours.table, ours.protocol, ours.action), (1234, 201, 1));
}

#[test]
fn routes_are_as_ip_lists_them() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add v0 type veth peer name v1");
    sandbox.ip("link set v1 up");
    sandbox.ip("link set v0 up");
    sandbox.ip("address add 10.7.0.9/24 dev v0");
    sandbox.ip("address add 2001:db8::9/64 dev v0 nodad");
    sandbox.ip("route add default via 10.7.0.1");
    sandbox.ip("route add 10.7.0.0/24 dev v0 src 10.7.0.9 table 1234 proto 201");
    sandbox.ip("route add 10.99.0.0/16 via 10.7.0.1 table 100");
    let mut rtnl = sandbox.rtnl();
    for (family, words) in [
        (Family::V4, "-N -4 route show table all"),
        (Family::V6, "-N -6 route show table all"),
    ] {
        let ours: Vec<_> = rtnl.routes(family).unwrap();
        let theirs = sandbox.judge(words);
        assert_eq!(ours.len(), theirs.len(), "{ours:#?} {theirs:#?}");
        for (our, their) in ours.iter().zip(&theirs) {
            let text = |ip: Option<std::net::IpAddr>| ip.map(|ip| json!(ip.to_string()));
            assert_eq!(text(our.gateway).as_ref(), their.get("gateway"), "{their}");
            assert_eq!(text(our.prefsrc).as_ref(), their.get("prefsrc"), "{their}");
            assert_eq!(
                json!(our.protocol.to_string()),
                their["protocol"],
                "{their}"
            );
            let table = their
                .get("table")
                .map_or("254", |table| table.as_str().unwrap());
            assert_eq!(our.table.to_string(), table);
            let dest = match their["dst"].as_str().unwrap() {
                "default" => "0/0".to_owned(),
                _ if our.dest.prefix_len() == our.dest.max_prefix_len() => {
                    our.dest.addr().to_string()
                }
                _ => our.dest.to_string(),
            };
            assert!(
                dest == "0/0" || json!(dest) == their["dst"],
                "{dest} {their}"
            );
        }
    }
    let v4 = rtnl.routes(Family::V4).unwrap();
    let ours = v4.iter().find(|route| route.table == 1234).unwrap();
    assert_eq!(ours.oif, Some(sandbox.index("v0")));
    assert_eq!(ours.prefsrc, Some([10, 7, 0, 9].into()));
}

/// 3000 addresses are some 250 KiB: more than one receive buffer.
#[test]
fn large_answers_are_whole() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add v0 type veth peer name v1");
    let link = sandbox.index("v0");
    let addresses: Vec<_> = (0..3000_u16)
        .map(|n| {
            let [a, b] = n.to_be_bytes();
            let net = IpNet::new([10, 1, a, b].into(), 16).unwrap();
            Request::AddAddress(NewAddress { link, net })
        })
        .collect();
    let mut rtnl = sandbox.rtnl();
    let start = std::time::Instant::now();
    assert!(rtnl.apply(&addresses).iter().all(Result::is_ok));
    println!(
        "3000 addresses added in {:?}, {} round trips",
        start.elapsed(),
        rtnl.round_trips()
    );
    assert_eq!(rtnl.round_trips(), 3000_u64.div_ceil(128));
    let start = std::time::Instant::now();
    assert_eq!(rtnl.addresses().unwrap().len(), 3000);
    println!("3000 addresses listed in {:?}", start.elapsed());
}

/// Another thread changes one address every millisecond, so that the kernel marks many of the
/// passes (three parts each) as disturbed. Those that stay must be in every answer, once.
#[test]
fn a_dump_is_of_one_moment() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add v0 type veth peer name v1");
    let link = sandbox.index("v0");
    let address = |n: u16| {
        let [a, b] = n.to_be_bytes();
        let net = IpNet::new([10, 1, a, b].into(), 16).unwrap();
        NewAddress { link, net }
    };
    let stay: Vec<_> = (1..=1000)
        .map(|n| Request::AddAddress(address(n)))
        .collect();
    let mut rtnl = sandbox.rtnl();
    assert!(rtnl.apply(&stay).iter().all(Result::is_ok));
    let before = rtnl.round_trips();
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let mut other = sandbox.rtnl();
        let churn = [
            Request::AddAddress(address(2000)),
            Request::DelAddress(address(2000)),
        ];
        scope.spawn(move || {
            for request in churn.iter().cycle() {
                other.apply(std::slice::from_ref(request));
                if stopped.recv_timeout(Duration::from_millis(1)) != Err(RecvTimeoutError::Timeout)
                {
                    return;
                }
            }
        });
        for _ in 0..200 {
            let found = rtnl.addresses().unwrap();
            let distinct: HashSet<_> = found.iter().map(|address| address.net).collect();
            assert_eq!(distinct.len(), found.len());
            assert!((1..=1000).all(|n| distinct.contains(&address(n).net)));
        }
        drop(stop);
    });
    let passes = rtnl.round_trips() - before;
    println!("200 dumps of 1000 addresses took {passes} passes");
    assert!(
        passes > 200,
        "nothing was disturbed: the test has shown nothing"
    );
}
