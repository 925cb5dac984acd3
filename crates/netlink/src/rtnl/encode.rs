//! Requests as bytes.

use super::conf::InetConf;
use super::link::{IFLA_ALT_IFNAME, IFLA_INET_CONF};
use super::request::{LinkRef, NewAddress, NewIpvlan, NewRoute, Request, SourceRule};
use super::{Family, Group, number};
use crate::wire::{ACK, CREATE, EXCLUSIVE, Message, put};
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecUnspec, InfoData, InfoIpVlan, InfoKind, IpVlanFlags, IpVlanMode,
    LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use nix::libc::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_DELRULE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
    RTM_NEWRULE, RTM_SETLINK,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// Flags of a request that makes something.
const MAKE: u16 = ACK | CREATE | EXCLUSIVE;
/// `NETCONFA_IFINDEX`, and its value for "all interfaces".
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_IFINDEX_ALL: i32 = -1;

/// The message of a request. It holds the number, not a copy, of the target's descriptor.
pub(crate) fn message(request: &Request<'_>) -> Message {
    match request {
        Request::CreateIpvlan(new) => build(RTM_NEWLINK, MAKE, &ipvlan(new)),
        Request::SetAlias { link, alias } => {
            set(link, LinkAttribute::IfAlias(alias.as_str().to_owned()))
        }
        Request::SetInetConf { link, values } => set(link, inet_conf(values)),
        Request::SetMtu { link, mtu } => set(link, LinkAttribute::Mtu(*mtu)),
        Request::SetUp(link) => build(RTM_SETLINK, ACK, &up(link)),
        Request::AddAddress(new) => build(RTM_NEWADDR, MAKE, &address(new)),
        Request::AddRoute(new) => build(RTM_NEWROUTE, MAKE, &route(new)),
        Request::AddRule(new) => build(RTM_NEWRULE, MAKE, &rule(new)),
        Request::DelRule(old) => build(RTM_DELRULE, ACK, &rule(old)),
        Request::DelRoute(old) => build(RTM_DELROUTE, ACK, &route(old)),
        Request::DelAddress(old) => build(RTM_DELADDR, ACK, &address(old)),
        Request::DelLink(link) => build(RTM_DELLINK, ACK, &named(link)),
        Request::DelGroup(group) => build(RTM_DELLINK, ACK, &grouped(*group)),
    }
}

/// Body of a request for all links, without statistics.
pub(crate) fn links() -> Vec<u8> {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    bytes(&message)
}

/// Body of a request for one link. `IFLA_ALT_IFNAME` finds names and alternative names alike
/// (`rtnl_dev_get`, `net/core/rtnetlink.c`).
pub(crate) fn link_by_name(name: &podrail_core::ids::IfName) -> Vec<u8> {
    let mut body = links();
    let mut terminated = name.as_str().as_bytes().to_vec();
    terminated.push(0);
    put(&mut body, IFLA_ALT_IFNAME, &terminated);
    body
}

/// Body of a request for all addresses of a family; 0: of all families.
pub(crate) fn address_family(family: u8) -> Vec<u8> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::from(family);
    bytes(&message)
}

/// Body of a request for all routes or rules of a family: both headers are 12 bytes long, begin
/// with the family, and must be zero otherwise.
pub(crate) fn family_header(family: u8) -> Vec<u8> {
    let mut body = vec![family];
    body.resize(12, 0);
    body
}

/// Body of a request for the IPv4 settings of "all interfaces".
pub(crate) fn netconf_all() -> Vec<u8> {
    let mut body = vec![number(Family::V4), 0, 0, 0];
    let all = NETCONFA_IFINDEX_ALL.to_ne_bytes();
    put(&mut body, NETCONFA_IFINDEX, &all);
    body
}

fn build(kind: u16, flags: u16, body: &impl Emitable) -> Message {
    Message {
        kind,
        flags,
        body: bytes(body),
    }
}

fn bytes(message: &impl Emitable) -> Vec<u8> {
    let mut buffer = vec![0; message.buffer_len()];
    message.emit(&mut buffer);
    buffer
}

/// An `RTM_SETLINK` with one attribute.
fn set(link: &LinkRef, attribute: LinkAttribute) -> Message {
    let mut message = named(link);
    message.attributes.push(attribute);
    build(RTM_SETLINK, ACK, &message)
}

fn named(link: &LinkRef) -> LinkMessage {
    let mut message = LinkMessage::default();
    match link {
        LinkRef::Index(index) => message.header.index = *index,
        LinkRef::Name(name) => message
            .attributes
            .push(LinkAttribute::IfName(name.to_string())),
    }
    message
}

fn up(link: &LinkRef) -> LinkMessage {
    let mut message = named(link);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}

fn grouped(group: Group) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(group.0.get()));
    message
}

fn ipvlan(new: &NewIpvlan<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = new.index.map_or(0, std::num::NonZeroU32::get);
    message.attributes = vec![
        LinkAttribute::IfName(new.name.to_string()),
        LinkAttribute::Link(new.parent),
        LinkAttribute::NetNsFd(new.target.as_fd().as_raw_fd()),
        LinkAttribute::Mtu(new.mtu),
        LinkAttribute::Group(new.group.0.get()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::IpVlan),
            LinkInfo::Data(InfoData::IpVlan(vec![
                InfoIpVlan::Mode(IpVlanMode::L2),
                InfoIpVlan::Flags(IpVlanFlags::empty()),
            ])),
        ]),
    ];
    message
}

/// By hand: `AfSpecInet::DevConfRequest` leaves out every value that is 0, and 0 is what
/// `rp_filter` has to be.
fn inet_conf(values: &[(InetConf, u32)]) -> LinkAttribute {
    let last: BTreeMap<InetConf, u32> = values.iter().copied().collect();
    let mut settings = Vec::new();
    for (setting, value) in last {
        put(&mut settings, setting.number(), &value.to_ne_bytes());
    }
    let conf = DefaultNla::new(IFLA_INET_CONF | NLA_F_NESTED, settings);
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![AfSpecInet::Other(conf)])])
}

fn address(new: &NewAddress) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(new.net.addr());
    message.header.prefix_len = new.net.prefix_len();
    message.header.index = new.link;
    message.attributes = vec![
        AddressAttribute::Local(new.net.addr()),
        AddressAttribute::Address(new.net.addr()),
    ];
    if new.net.addr().is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn route(new: &NewRoute) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(new.dest.addr());
    message.header.destination_prefix_length = new.dest.prefix_len();
    message.header.protocol = new.protocol.into();
    message.header.kind = RouteType::Unicast;
    // IPv6 has no scopes and its strict checks want a 0.
    if new.dest.addr().is_ipv4() {
        message.header.scope = u8::from(new.scope()).into();
    }
    message.attributes = vec![
        RouteAttribute::Table(new.table),
        RouteAttribute::Destination(new.dest.network().into()),
        RouteAttribute::Oif(new.oif),
    ];
    let prefsrc = new.prefsrc.map(|ip| RouteAttribute::PrefSource(ip.into()));
    let gateway = new.gateway.map(|ip| RouteAttribute::Gateway(ip.into()));
    message
        .attributes
        .extend(prefsrc.into_iter().chain(gateway));
    message
}

fn rule(rule: &SourceRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(rule.from);
    message.header.src_len = match rule.from {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Source(rule.from),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Protocol(rule.protocol.into()),
    ];
    message
}

fn family(address: IpAddr) -> AddressFamily {
    AddressFamily::from(number(Family::of(address)))
}
