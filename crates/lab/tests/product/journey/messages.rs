//! What is said to the kernel, read from `strace`.

use crate::support::Node;

/// `RTM_NEWLINK`, `RTM_DELLINK`, `RTM_SETLINK`, `RTM_DELRULE`.
const NEW_LINK: u16 = 0x10;
const DEL_LINK: u16 = 0x11;
const SET_LINK: u16 = 0x13;
const DEL_RULE: u16 = 0x21;
/// Types from here on are RDMA netlink's.
const RDMA: u16 = 0x1400;
/// Attribute with the settings of an address family.
const AF_SPEC: u16 = 26;
/// Length of the fixed part of a link message.
const LINK_HEADER: usize = 16;

/// One netlink message.
struct Message {
    kind: u16,
    body: Vec<u8>,
}

/// What went to the kernel in one system call.
type Sent = Vec<Message>;

pub(super) fn their_number_is_that_of_one_rail(node: &Node) {
    // The first one of a state file looks for rails of a lost one.
    super::attach(node, "pod1", "--rails 1");
    super::detach(node, "pod1");
    let one = traced(node, "attach --netns /run/netns/pod1 --id pod1 --rails 1");
    let one_gone = traced(node, "detach --id pod1");
    let many = traced(node, "attach --netns /run/netns/pod1 --id pod1 --rails 16");
    let many_gone = traced(node, "detach --id pod1");
    assert_eq!(many.len(), one.len(), "calls of attach");
    assert_eq!(many_gone.len(), one_gone.len(), "calls of detach");
    one_message_deletes_all_links(&many_gone);
    case_19_settings_come_before_links_are_up(&many);
}

fn one_message_deletes_all_links(detach: &[Sent]) {
    let count = |kind| {
        detach
            .iter()
            .flatten()
            .filter(|message| message.kind == kind)
            .count()
    };
    assert_eq!((count(DEL_LINK), count(DEL_RULE)), (1, 16));
}

/// The order of a run without any fault: `sysctls` looks at the state in the middle of one.
fn case_19_settings_come_before_links_are_up(attach: &[Sent]) {
    let messages: Vec<&Message> = attach.iter().flatten().collect();
    let places = |wanted: fn(&Message) -> bool| -> Vec<usize> {
        (0..messages.len())
            .filter(|at| wanted(messages[*at]))
            .collect()
    };
    let (settings, ups) = (places(Message::has_settings), places(Message::sets_up));
    assert_eq!((settings.len(), ups.len()), (16, 16));
    assert!(
        settings.last() < ups.first(),
        "settings at {settings:?}, up at {ups:?}"
    );
}

impl Message {
    fn is_of_link(&self) -> bool {
        [NEW_LINK, SET_LINK].contains(&self.kind)
    }

    /// `IFF_UP` in the flags.
    fn sets_up(&self) -> bool {
        self.is_of_link() && self.body[8] & 1 == 1
    }

    fn has_settings(&self) -> bool {
        self.is_of_link() && attributes(&self.body[LINK_HEADER..]).contains(&AF_SPEC)
    }
}

/// Types of the attributes at the top.
fn attributes(mut bytes: &[u8]) -> Vec<u16> {
    let mut types = Vec::new();
    while let [a, b, c, d, ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*a, *b]));
        types.push(u16::from_le_bytes([*c, *d]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    types
}

/// Runs the product under `strace`; what it sent to route netlink, one item for each call.
fn traced(node: &Node, words: &str) -> Vec<Sent> {
    let strace = "strace -f --seccomp-bpf -v -s 4096 -e trace=sendto,sendmsg -o /root/trace";
    let environment = "PODRAIL_ROOT=/lab/root PODRAIL_NODE_ADDRESS=10.140.67.66";
    let trace = node.sh(&format!(
        "{environment} {strace} podrail {words} >&2; cat /root/trace"
    ));
    assert!(!trace.contains("sendmsg("), "not understood here: {trace}");
    let calls = trace.lines().filter(|line| line.contains("sendto("));
    let sent = calls.map(|line| {
        line.split("nlmsg_type=")
            .skip(1)
            .map(message)
            .collect::<Sent>()
    });
    sent.filter(|sent| sent.iter().all(|message| message.kind < RDMA))
        .collect()
}

/// From `0x13 /* … */, nlmsg_flags=…}, "\x00\x00…"…`.
fn message(text: &str) -> Message {
    let kind = text
        .split([' ', ','])
        .next()
        .unwrap()
        .trim_start_matches("0x");
    let body = text.split('"').nth(1).unwrap_or_default();
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    Message {
        kind: u16::from_str_radix(kind, 16).unwrap(),
        body: body.split("\\x").skip(1).map(byte).collect(),
    }
}
