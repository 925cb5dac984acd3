//! Requests, judged by `ip` and by the files of `/proc/sys`.

use crate::sandbox::Sandbox;
use ipnet::IpNet;
use podrail_core::ids::IfName;
use podrail_netlink::{
    Alias, Errno, Family, Group, InetConf, LinkRef, NewAddress, NewRoute, Refusal, Request,
    SourceRule,
};
use std::num::NonZeroU32;

const PROTOCOL: u8 = 201;

fn group(number: u32) -> Group {
    Group(NonZeroU32::new(number).unwrap())
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn name(text: &str) -> LinkRef {
    (&IfName::parse(text).unwrap()).into()
}

/// A namespace with the veth `v0`, whose other end is up.
fn with_veth() -> Option<(Sandbox, u32)> {
    let sandbox = Sandbox::new()?;
    sandbox.ip("link add v0 type veth peer name v1");
    sandbox.ip("link set v1 up");
    let index = sandbox.index("v0");
    Some((sandbox, index))
}

fn route(link: u32, family: Family) -> NewRoute {
    let (dest, prefsrc) = match family {
        Family::V4 => ("10.7.0.0/24", "10.7.0.9"),
        Family::V6 => ("2001:db8::/64", "2001:db8::9"),
    };
    NewRoute {
        table: 1234,
        dest: net(dest),
        oif: link,
        prefsrc: Some(prefsrc.parse().unwrap()),
        gateway: None,
        protocol: PROTOCOL,
    }
}

fn rule(from: &str) -> SourceRule {
    SourceRule {
        from: from.parse().unwrap(),
        table: 1234,
        priority: 50,
        protocol: PROTOCOL,
    }
}

/// All that a child of a pod gets, in the order of the design.
fn attachment(link: u32) -> Vec<Request<'static>> {
    let default = NewRoute {
        dest: net("0.0.0.0/0"),
        gateway: Some([10, 7, 0, 1].into()),
        ..route(link, Family::V4)
    };
    vec![
        Request::SetAlias {
            link: link.into(),
            alias: Alias::parse("podrail:abc:4").unwrap(),
        },
        Request::SetInetConf {
            link: link.into(),
            values: vec![
                (InetConf::ArpAnnounce, 2),
                (InetConf::ArpFilter, 1),
                (InetConf::ArpIgnore, 1),
                (InetConf::RpFilter, 0),
                (InetConf::AcceptLocal, 1),
            ],
        },
        Request::SetMtu {
            link: link.into(),
            mtu: 4200,
        },
        Request::SetUp(link.into()),
        Request::AddAddress(NewAddress {
            link,
            net: net("10.7.0.9/24"),
        }),
        Request::AddAddress(NewAddress {
            link,
            net: net("2001:db8::9/64"),
        }),
        Request::AddRoute(route(link, Family::V4)),
        Request::AddRoute(default),
        Request::AddRoute(route(link, Family::V6)),
        Request::AddRule(rule("10.7.0.9")),
        Request::AddRule(rule("2001:db8::9")),
    ]
}

fn undone(request: &Request<'static>) -> Option<Request<'static>> {
    match request {
        Request::AddAddress(new) => Some(Request::DelAddress(*new)),
        Request::AddRoute(new) => Some(Request::DelRoute(*new)),
        Request::AddRule(new) => Some(Request::DelRule(*new)),
        _ => None,
    }
}

fn errnos(verdicts: &[Result<(), Refusal>]) -> Vec<Option<Errno>> {
    verdicts
        .iter()
        .map(|verdict| {
            verdict
                .as_ref()
                .err()
                .map(|refusal| refusal.errno().unwrap())
        })
        .collect()
}

#[test]
fn an_attachment_is_one_round_trip() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let mut rtnl = sandbox.rtnl();
    assert_eq!(errnos(&rtnl.apply(&attachment(link))), [None; 11]);
    assert_eq!(rtnl.round_trips(), 1);

    let v0 = &sandbox.judge("address show dev v0")[0];
    assert_eq!(v0["ifalias"], "podrail:abc:4");
    assert_eq!(v0["mtu"], 4200);
    assert_eq!(v0["addr_info"][0]["local"], "10.7.0.9");
    assert!(v0["addr_info"][0].get("broadcast").is_none());
    assert!(v0["addr_info"].to_string().contains("2001:db8::9"));
    for (setting, value) in [
        ("arp_announce", "2"),
        ("arp_filter", "1"),
        ("arp_ignore", "1"),
        ("rp_filter", "0"),
        ("accept_local", "1"),
    ] {
        assert_eq!(
            sandbox.sysctl(&format!("net/ipv4/conf/v0/{setting}")),
            value,
            "{setting}"
        );
    }
    let routes = sandbox.judge("route show table 1234");
    assert_eq!(routes.len(), 2);
    assert_eq!(routes[0]["dst"], "default");
    assert_eq!(routes[0]["gateway"], "10.7.0.1");
    assert_eq!(routes[1]["prefsrc"], "10.7.0.9");
    assert_eq!(routes[1]["protocol"], "201");
    assert_eq!(routes[1]["scope"], "link");
    assert_eq!(sandbox.judge("-6 route show table 1234").len(), 1);
    for (words, from) in [("rule", "10.7.0.9"), ("-6 rule", "2001:db8::9")] {
        let rules = sandbox.judge(&format!("{words} show priority 50"));
        assert_eq!((rules.len(), rules[0]["src"].as_str()), (1, Some(from)));
        assert_eq!(rules[0]["protocol"], "201");
        assert_eq!(rules[0]["table"], "1234");
    }
}

/// ADD twice, then every request undone, twice; each answer is the one that the docs promise.
#[test]
fn repetitions_are_told_as_documented() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let mut rtnl = sandbox.rtnl();
    let requests = attachment(link);
    assert!(rtnl.apply(&requests).iter().all(Result::is_ok));
    let again = rtnl.apply(&requests);
    assert_eq!(errnos(&again[..4]), [None; 4]);
    assert_eq!(errnos(&again[4..]), [Some(Errno::EEXIST); 7]);
    assert!(again[4].as_ref().unwrap_err().is_already_there());

    let undo: Vec<_> = requests.iter().rev().filter_map(undone).collect();
    assert_eq!(errnos(&rtnl.apply(&undo)), [None; 7]);
    let gone = [
        Errno::ENOENT,
        Errno::ENOENT,
        Errno::ESRCH,
        Errno::ESRCH,
        Errno::ESRCH,
        Errno::EADDRNOTAVAIL,
        Errno::EADDRNOTAVAIL,
    ];
    let again = rtnl.apply(&undo);
    assert_eq!(errnos(&again), gone.map(Some));
    assert!(
        again
            .iter()
            .all(|verdict| verdict.as_ref().unwrap_err().is_already_gone())
    );
    assert!(sandbox.judge("rule show priority 50").is_empty());
    assert!(
        rtnl.routes(Family::V4)
            .unwrap()
            .iter()
            .all(|route| route.table != 1234)
    );
}

#[test]
fn what_was_made_is_recognised() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let mut rtnl = sandbox.rtnl();
    assert!(rtnl.apply(&attachment(link)).iter().all(Result::is_ok));
    for (family, from) in [(Family::V4, "10.7.0.9"), (Family::V6, "2001:db8::9")] {
        let rules = rtnl.rules(family).unwrap();
        assert_eq!(rules.iter().filter(|r| r.is(&rule(from))).count(), 1);
        let routes = rtnl.routes(family).unwrap();
        assert_eq!(
            routes.iter().filter(|r| r.is(&route(link, family))).count(),
            1
        );
    }
    let addresses = rtnl.addresses().unwrap();
    let ours: Vec<_> = addresses
        .iter()
        .filter(|address| address.net == net("2001:db8::9/64") || address.net == net("10.7.0.9/24"))
        .collect();
    assert_eq!(ours.len(), 2);
    assert!(
        ours.iter()
            .all(|a| !a.flags.tentative() && a.flags.permanent() && !a.flags.no_prefix_route())
    );
}

/// One field differs: not ours, so it stays.
#[test]
fn deletion_takes_only_what_is_equal() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let mut rtnl = sandbox.rtnl();
    assert!(rtnl.apply(&attachment(link)).iter().all(Result::is_ok));
    let old = rule("10.7.0.9");
    let verdicts = rtnl.apply(&[
        Request::DelRule(SourceRule { protocol: 4, ..old }),
        Request::DelRule(SourceRule {
            priority: 51,
            ..old
        }),
        Request::DelRule(SourceRule { table: 1235, ..old }),
        Request::DelRoute(NewRoute {
            protocol: 4,
            ..route(link, Family::V4)
        }),
        Request::DelRoute(NewRoute {
            table: 1235,
            ..route(link, Family::V4)
        }),
    ]);
    let gone = [
        Errno::ENOENT,
        Errno::ENOENT,
        Errno::ENOENT,
        Errno::ESRCH,
        Errno::ESRCH,
    ];
    assert_eq!(errnos(&verdicts), gone.map(Some));
}

#[test]
fn a_refusal_does_not_stop_the_rest() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let verdicts = sandbox.rtnl().apply(&[
        Request::DelLink(9999.into()),
        Request::AddRoute(route(link, Family::V4)),
        Request::SetAlias {
            link: name("v0"),
            alias: Alias::parse("still done").unwrap(),
        },
        Request::SetUp(name("net9")),
    ]);
    let expected = [
        Some(Errno::ENODEV),
        Some(Errno::ENETDOWN),
        None,
        Some(Errno::ENODEV),
    ];
    assert_eq!(errnos(&verdicts), expected);
    assert_eq!(
        sandbox.judge("link show dev v0")[0]["ifalias"],
        "still done"
    );
}

/// The kernel's own words are in the text.
#[test]
fn refusals_speak() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let requests = [
        Request::SetMtu {
            link: link.into(),
            mtu: 1 << 30,
        },
        Request::AddRule(rule("10.7.0.9")),
        Request::AddRoute(route(link, Family::V4)),
    ];
    let texts: Vec<_> = sandbox
        .rtnl()
        .apply(&requests)
        .into_iter()
        .filter_map(Result::err)
        .map(|refusal| refusal.to_string())
        .collect();
    assert_eq!(
        texts,
        [
            format!(
                "the kernel refuses to set MTU 1073741824 of interface {link}: EINVAL: Invalid argument (mtu greater than device maximum)"
            ),
            format!(
                "the kernel refuses to add route 10.7.0.0/24 by interface {link} in table 1234: ENETDOWN: Network is down (Device for nexthop is not up)"
            ),
        ]
    );
}

#[test]
fn a_group_goes_at_once_and_alone() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link add p0 type veth peer name p1");
    for child in 0..8 {
        sandbox.ip(&format!(
            "link add link p0 name m{child} group 77 type macvlan"
        ));
    }
    sandbox.ip("link add link p0 name other group 78 type macvlan");
    let mut rtnl = sandbox.rtnl();
    assert_eq!(errnos(&rtnl.apply(&[Request::DelGroup(group(77))])), [None]);
    let names: Vec<_> = rtnl
        .links()
        .unwrap()
        .into_iter()
        .map(|link| link.name)
        .collect();
    assert_eq!(names, ["lo", "p1", "p0", "other"]);
    let again = rtnl.apply(&[Request::DelGroup(group(77))]);
    assert_eq!(errnos(&again), [Some(Errno::ENODEV)]);
    assert!(again[0].as_ref().unwrap_err().is_already_gone());
}

/// A member that cannot be deleted keeps the whole group.
#[test]
fn a_group_goes_whole_or_not_at_all() {
    let Some((sandbox, _)) = with_veth() else {
        return;
    };
    sandbox.ip("link set v0 group 77");
    sandbox.ip("link set lo group 77");
    let verdict = sandbox.rtnl().apply(&[Request::DelGroup(group(77))]);
    assert_eq!(errnos(&verdict), [Some(Errno::EOPNOTSUPP)]);
    assert_eq!(sandbox.judge("link show dev v0").len(), 1);
}

#[test]
fn a_link_goes_with_its_routes_but_not_its_rules() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let mut rtnl = sandbox.rtnl();
    assert!(rtnl.apply(&attachment(link)).iter().all(Result::is_ok));
    let verdicts = rtnl.apply(&[Request::DelLink(name("v0")), Request::DelLink(name("v0"))]);
    assert_eq!(errnos(&verdicts), [None, Some(Errno::ENODEV)]);
    assert!(
        rtnl.routes(Family::V4)
            .unwrap()
            .iter()
            .all(|route| route.table != 1234)
    );
    assert_eq!(sandbox.judge("rule show priority 50").len(), 1);
}

#[test]
fn settings_need_ipv4_on_the_link() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link set lo mtu 67");
    let verdict = sandbox.rtnl().apply(&[Request::SetInetConf {
        link: name("lo"),
        values: vec![(InetConf::RpFilter, 0)],
    }]);
    assert_eq!(errnos(&verdict), [Some(Errno::EAFNOSUPPORT)]);
}

/// 128 refusals with words are the most that one round trip brings back.
#[test]
fn no_verdict_is_lost_in_a_full_batch() {
    let Some((sandbox, link)) = with_veth() else {
        return;
    };
    let requests: Vec<_> = (0..300)
        .map(|_| Request::AddRoute(route(link, Family::V4)))
        .collect();
    let mut rtnl = sandbox.rtnl();
    let verdicts = rtnl.apply(&requests);
    assert_eq!(errnos(&verdicts), vec![Some(Errno::ENETDOWN); 300]);
    assert_eq!(rtnl.round_trips(), 3);
}
