//! Route and RDMA netlink verbs, and entering a network namespace.
//!
//! One blocking socket per protocol and namespace, one request value per kernel verb, no runtime.
//! The reading order is [`NetNs`] (where), [`Rtnl`] (links, addresses, rules, routes),
//! [`Rdma`] (RDMA devices and their ports), [`Events`] (what changes).
//!
//! Deliberately absent: decisions, undo, retries of a refused request (the caller knows what the
//! plan was), reading sysfs or `/proc`, and every other namespace than the network's. No `unsafe`.
//!
//! Three kernel facts shape the interface:
//! - `net/netlink/af_netlink.c`, `netlink_rcv_skb`: one `sendmsg` may carry many requests. Each is
//!   carried out in order and acknowledged on its own, **and an error does not stop the rest**.
//! - The same function runs inside `sendmsg`: when that returns, every answer is queued already.
//!   So nothing here waits, and an empty queue means a lost answer rather than a slow kernel.
//! - A socket stays in the network namespace it was opened in; threads may use it from anywhere.

mod channel;
mod error;
mod events;
mod netns;
mod rdma;
mod rtnl;
mod wire;

pub use error::{NetlinkError, Refusal};
pub use events::{Action, Event, Events, Uevent};
pub use netns::{NetNs, NetNsError, NetNsId};
pub use nix::errno::Errno;
pub use rdma::{NetnsMode, PhysState, PortState, Rdma, RdmaDevice, RdmaLink};
pub use rtnl::{
    Address, AddressFlags, Alias, BadAlias, Family, Group, InetConf, InetConfValues, Ipvlan,
    IpvlanMode, Link, LinkRef, NewAddress, NewIpvlan, NewRoute, Parent, Request, Route, Rtnl, Rule,
    Scope, SourceRule,
};
pub use wire::Malformed;
