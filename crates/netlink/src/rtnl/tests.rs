//! Requests as bytes, written out by hand, and answers of any bytes.

use super::*;
use nix::libc::{RTM_DELLINK, RTM_NEWLINK, RTM_NEWRULE, RTM_SETLINK};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};

fn name(text: &str) -> IfName {
    IfName::parse(text).unwrap()
}

fn group(number: u32) -> Group {
    Group(NonZeroU32::new(number).unwrap())
}

/// Little-endian bytes, since that is how they are written here.
#[cfg(target_endian = "little")]
#[test]
fn an_ipvlan_is_made_in_the_target() {
    let target = NetNs::current().unwrap();
    let message = encode::message(&Request::CreateIpvlan(NewIpvlan {
        name: &name("net5"),
        parent: 12,
        target: &target,
        index: NonZeroU32::new(1004),
        mtu: 9000,
        group: group(0x504f_4452),
    }));
    assert_eq!(message.kind, RTM_NEWLINK);
    assert_eq!(message.flags, 0x4 | 0x400 | 0x200);
    let fd = u8::try_from(target.as_fd().as_raw_fd()).unwrap();
    #[rustfmt::skip]
    let golden = [
        // ifinfomsg: family, pad, type, index 1004, flags, change
        0, 0, 0, 0,  0xec, 3, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        9, 0, 3, 0,  b'n', b'e', b't', b'5', 0, 0, 0, 0, // IFLA_IFNAME
        8, 0, 5, 0,  12, 0, 0, 0,                        // IFLA_LINK
        8, 0, 28, 0, fd, 0, 0, 0,                        // IFLA_NET_NS_FD
        8, 0, 4, 0,  0x28, 0x23, 0, 0,                   // IFLA_MTU
        8, 0, 27, 0, 0x52, 0x44, 0x4f, 0x50,             // IFLA_GROUP
        36, 0, 18, 0,                                    // IFLA_LINKINFO
          11, 0, 1, 0, b'i', b'p', b'v', b'l', b'a', b'n', 0, 0, // IFLA_INFO_KIND
          20, 0, 2, 0,                                   // IFLA_INFO_DATA
            6, 0, 1, 0, 0, 0, 0, 0,                      // mode L2
            6, 0, 2, 0, 0, 0, 0, 0,                      // flags: bridge
    ];
    assert_eq!(message.body, golden);
}

#[cfg(target_endian = "little")]
#[test]
fn a_group_is_deleted_by_its_number_alone() {
    let message = encode::message(&Request::DelGroup(group(77)));
    assert_eq!((message.kind, message.flags), (RTM_DELLINK, 0x4));
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        8, 0, 27, 0, 77, 0, 0, 0, // IFLA_GROUP
    ];
    assert_eq!(message.body, golden);
}

#[cfg(target_endian = "little")]
#[test]
fn a_rule_has_all_its_fields() {
    let message = encode::message(&Request::AddRule(SourceRule {
        from: [10, 1, 2, 3].into(),
        table: 300,
        priority: 32_000,
        protocol: 201,
    }));
    assert_eq!((message.kind, message.flags), (RTM_NEWRULE, 0x604));
    #[rustfmt::skip]
    let golden = [
        // family, dst_len, src_len, tos, table, -, -, action, flags
        2, 0, 32, 0,  0, 0, 0, 1,  0, 0, 0, 0,
        8, 0, 2, 0,   10, 1, 2, 3,      // FRA_SRC
        8, 0, 15, 0,  0x2c, 1, 0, 0,    // FRA_TABLE
        8, 0, 6, 0,   0, 0x7d, 0, 0,    // FRA_PRIORITY
        5, 0, 21, 0,  201, 0, 0, 0,     // FRA_PROTOCOL
    ];
    assert_eq!(message.body, golden);
}

/// `netlink-packet-route` would leave out the 0; the last of two values holds.
#[cfg(target_endian = "little")]
#[test]
fn a_setting_of_zero_is_sent() {
    let message = encode::message(&Request::SetInetConf {
        link: 3.into(),
        values: vec![
            (InetConf::ArpAnnounce, 1),
            (InetConf::RpFilter, 0),
            (InetConf::ArpAnnounce, 2),
        ],
    });
    assert_eq!(message.kind, RTM_SETLINK);
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0,  3, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
        28, 0, 26, 0x80,                  // IFLA_AF_SPEC
          24, 0, 2, 0,                    // AF_INET
            20, 0, 1, 0x80,               // IFLA_INET_CONF
              8, 0, 8, 0,  0, 0, 0, 0,    // rp_filter
              8, 0, 18, 0, 2, 0, 0, 0,    // arp_announce
    ];
    let without_nest_flag = |mut bytes: Vec<u8>| {
        bytes[19] = 0x80;
        bytes
    };
    assert_eq!(without_nest_flag(message.body), golden);
}

#[test]
fn requests_read_as_sentences() {
    let target = NetNs::current().unwrap();
    let made = Request::CreateIpvlan(NewIpvlan {
        name: &name("net1"),
        parent: 4,
        target: &target,
        index: None,
        mtu: 9000,
        group: group(1),
    });
    let route = NewRoute {
        table: 100,
        dest: "10.1.0.9/16".parse().unwrap(),
        oif: 7,
        prefsrc: None,
        gateway: Some([10, 1, 0, 1].into()),
        protocol: 201,
    };
    let conf = Request::SetInetConf {
        link: (&name("net1")).into(),
        values: vec![(InetConf::ArpIgnore, 1), (InetConf::RpFilter, 0)],
    };
    let cases = [
        (
            made,
            "create IPvlan net1 on interface 4 in network namespace /proc/thread-self/ns/net",
        ),
        (
            Request::AddRoute(route),
            "add route 10.1.0.0/16 via 10.1.0.1 by interface 7 in table 100",
        ),
        (conf, "set arp_ignore=1 rp_filter=0 of interface net1"),
        (Request::DelLink(9.into()), "delete interface 9"),
    ];
    for (request, words) in cases {
        assert_eq!(request.to_string(), words);
    }
}

#[test]
fn refusals_name_the_wish_and_not_their_source() {
    let request = "add address 10.0.0.1/24 to interface 7".to_owned();
    let said_no = Refusal::Kernel {
        request: request.clone(),
        errno: Errno::EEXIST,
        message: Some("ipv4: Address already assigned.".to_owned()),
    };
    assert_eq!(
        said_no.to_string(),
        "the kernel refuses to add address 10.0.0.1/24 to interface 7: EEXIST: File exists \
         (ipv4: Address already assigned)"
    );
    assert!(said_no.is_already_there() && !said_no.is_already_gone());
    let lost = Refusal::Unanswered {
        request,
        source: Errno::ENOBUFS,
    };
    assert!(!lost.to_string().contains("ENOBUFS"));
    assert_eq!(lost.errno(), None);
}

#[test]
fn aliases_are_checked() {
    assert!(Alias::parse("podrail:abc:3").is_ok());
    assert!(Alias::parse(&"x".repeat(255)).is_ok());
    for bad in ["", "a\0b", "a\nb", &"x".repeat(256)] {
        assert_eq!(Alias::parse(bad), Err(BadAlias { length: bad.len() }));
    }
}

proptest! {
    #[test]
    fn answers_of_any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Link::parse(&bytes);
        let _ = Address::parse(&bytes);
        let _ = Rule::parse(&bytes);
        let _ = Route::parse(&bytes);
        let _ = conf::parse_rp_filter(&bytes);
    }

    /// Nearly right answers get further into the parsers than random ones.
    #[test]
    fn answers_of_any_attributes_are_taken(
        header in proptest::collection::vec(any::<u8>(), 16),
        family in prop_oneof![Just(2_u8), Just(10_u8)],
        list in proptest::collection::vec((0..70_u16, proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let mut header = header;
        header[0] = family;
        let mut tail = Vec::new();
        for (kind, value) in &list {
            crate::wire::put(&mut tail, *kind, value);
        }
        let body = |length: usize| [&header[..length], &tail].concat();
        let _ = Link::parse(&body(16));
        let _ = Address::parse(&body(8));
        let _ = Rule::parse(&body(12));
        let _ = Route::parse(&body(12));
    }

    /// What is sent is what is read: a rule and a route keep all their fields.
    #[test]
    fn rules_and_routes_survive_the_round(
        from in any::<[u8; 4]>(), table in 1..u32::MAX, priority in any::<u32>(), protocol in 1..u8::MAX,
        length in 0..33_u8, gateway in proptest::option::of(any::<[u8; 4]>()),
    ) {
        let rule = SourceRule { from: from.into(), table, priority, protocol };
        let sent = encode::message(&Request::AddRule(rule));
        prop_assert!(Rule::parse(&sent.body).unwrap().unwrap().is(&rule));
        let route = NewRoute {
            table, oif: 3, protocol,
            dest: ipnet::IpNet::new(from.into(), length).unwrap(),
            prefsrc: Some([1, 2, 3, 4].into()),
            gateway: gateway.map(Into::into),
        };
        let sent = encode::message(&Request::AddRoute(route));
        prop_assert!(Route::parse(&sent.body).unwrap().unwrap().is(&route));
    }
}
