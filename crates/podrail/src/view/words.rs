//! Words for values of the topology, the same in the tree and in the picture.

use podrail_core::topology::{LinkState, RailFault};

/// `NUMA 3, socket 0`; `NUMA ?` where sysfs does not say.
pub(super) fn numa_name(numa: Option<u32>, socket: Option<u32>) -> String {
    match (numa, socket) {
        (None, _) => "NUMA ?".to_owned(),
        (Some(numa), None) => format!("NUMA {numa}"),
        (Some(numa), Some(socket)) => format!("NUMA {numa}, socket {socket}"),
    }
}

/// State of a link in one word, `?` where the source does not say.
pub(super) fn link_word(link: LinkState) -> &'static str {
    match link {
        LinkState::Up => "up",
        LinkState::Down => "down",
        LinkState::Unknown => "?",
    }
}

/// What is wrong, for a line of its own.
pub(super) fn fault_words(fault: &RailFault) -> String {
    match fault {
        RailFault::MacvlanParent => "parent of a macvlan".to_owned(),
        RailFault::Enslaved(master) => format!("a port of {master}"),
        RailFault::NotEthernet => "link layer is not Ethernet".to_owned(),
        RailFault::NoRdmaDevice => "no RDMA device".to_owned(),
        RailFault::NoInterface => "its interface is in another network namespace".to_owned(),
        RailFault::Gone => "its card or driver is gone".to_owned(),
    }
}
