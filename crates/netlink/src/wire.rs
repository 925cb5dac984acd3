//! Netlink framing: messages in a datagram, attributes in a message, verdicts of the kernel.
//!
//! Pure functions over bytes. Answers are taken apart attribute by attribute instead of through
//! the typed messages of `netlink-packet-route`: those refuse a whole link because one attribute
//! that nobody asked for has grown on a newer kernel.

use nix::errno::Errno;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bits of an attribute's type that are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const ATTRIBUTE_FLAGS: u16 = 0xc000;
/// `NLMSGERR_ATTR_MSG`: the kernel's words.
const VERDICT_TEXT: u16 = 1;

/// `NLMSG_NOOP`.
pub(crate) const NOOP: u16 = 1;
/// `NLMSG_ERROR`; code 0 is an acknowledgement.
pub(crate) const ERROR: u16 = 2;
/// `NLMSG_DONE`: end of a dump.
pub(crate) const DONE: u16 = 3;
/// `NLMSG_OVERRUN`.
pub(crate) const OVERRUN: u16 = 4;

/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`.
pub(crate) const ACK: u16 = 0x4;
/// `NLM_F_DUMP_INTR`: what is dumped has changed meanwhile.
pub(crate) const INTERRUPTED: u16 = 0x10;
/// `NLM_F_CAPPED`: the verdict does not repeat the request.
const CAPPED: u16 = 0x100;
/// `NLM_F_EXCL`.
pub(crate) const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_ACK_TLVS`: attributes follow the verdict.
const VERDICT_ATTRIBUTES: u16 = 0x200;
/// `NLM_F_DUMP`.
pub(crate) const DUMP: u16 = 0x300;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;

/// Bytes of the kernel that do not have the form they should have: which part, what was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("netlink message: {0}")]
pub struct Malformed(pub(crate) &'static str);

/// A request before it gets its sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    /// Beyond `NLM_F_REQUEST`, which is always set.
    pub(crate) flags: u16,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The message with its header, padded to the next multiple of four.
    pub(crate) fn frame(&self, sequence: u32) -> Vec<u8> {
        let length = HEADER + self.body.len();
        let mut frame = Vec::with_capacity(align(length));
        frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        frame.extend(self.kind.to_ne_bytes());
        frame.extend((self.flags | REQUEST).to_ne_bytes());
        frame.extend(sequence.to_ne_bytes());
        frame.extend([0; 4]);
        frame.extend(&self.body);
        frame.resize(align(length), 0);
        frame
    }
}

/// A message of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// Cuts a datagram into its messages.
pub(crate) fn replies(mut datagram: &[u8]) -> Result<Vec<Reply<'_>>, Malformed> {
    let mut found = Vec::new();
    while !datagram.is_empty() {
        let length = u32_at(datagram, 0)? as usize;
        let message = datagram
            .get(..length)
            .ok_or(Malformed("longer than its datagram"))?;
        found.push(Reply {
            kind: u16_at(message, 4)?,
            flags: u16_at(message, 6)?,
            sequence: u32_at(message, 8)?,
            body: message
                .get(HEADER..)
                .ok_or(Malformed("shorter than its header"))?,
        });
        datagram = datagram.get(align(length)..).unwrap_or_default();
    }
    Ok(found)
}

/// Cuts a run of attributes into (type, value), flags of the type removed.
pub(crate) fn attributes(mut bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, Malformed> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !ATTRIBUTE_FLAGS;
        let value = bytes
            .get(4..length)
            .ok_or(Malformed("attribute does not fit its message"))?;
        found.push((kind, value));
        bytes = bytes.get(align(length)..).unwrap_or_default();
    }
    Ok(found)
}

/// Attributes behind a fixed header of `skip` bytes.
pub(crate) fn attributes_after(body: &[u8], skip: usize) -> Result<Vec<(u16, &[u8])>, Malformed> {
    attributes(
        body.get(skip..)
            .ok_or(Malformed("shorter than its family header"))?,
    )
}

/// Appends one attribute. The value must be shorter than 64 KiB less 4; all callers' are bounded.
pub(crate) fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len();
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(align(bytes.len()), 0);
}

/// What an `NLMSG_ERROR` or `NLMSG_DONE` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nack {
    pub(crate) errno: Errno,
    /// The kernel's own words (`NETLINK_EXT_ACK`), where it has any.
    pub(crate) message: Option<String>,
}

/// Verdict of an `NLMSG_ERROR` or `NLMSG_DONE` message.
///
/// An `NLMSG_DONE` may be empty; then the dump went well.
pub(crate) fn verdict(reply: &Reply<'_>) -> Result<Result<(), Nack>, Malformed> {
    if reply.kind == DONE && reply.body.is_empty() {
        return Ok(Ok(()));
    }
    let code = i32_at(reply.body, 0)?;
    if code == 0 {
        return Ok(Ok(()));
    }
    Ok(Err(Nack {
        errno: Errno::from_raw(code.saturating_neg()),
        message: verdict_text(reply)?,
    }))
}

fn verdict_text(reply: &Reply<'_>) -> Result<Option<String>, Malformed> {
    if reply.flags & VERDICT_ATTRIBUTES == 0 {
        return Ok(None);
    }
    let skip = match (reply.kind, reply.flags & CAPPED) {
        (DONE, _) => 4,
        (_, 0) => 4 + align(u32_at(reply.body, 4)? as usize),
        _ => 4 + HEADER,
    };
    let found = attributes_after(reply.body, skip)?;
    Ok(found
        .into_iter()
        .find(|(kind, _)| *kind == VERDICT_TEXT)
        .map(|(_, value)| text(value)))
}

/// A string of the kernel: up to the first NUL, bytes that are no UTF-8 replaced.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

/// Number of the first byte.
pub(crate) fn u8_of(value: &[u8]) -> Result<u8, Malformed> {
    u8_at(value, 0)
}

/// Number of the first two bytes, host order.
pub(crate) fn u16_of(value: &[u8]) -> Result<u16, Malformed> {
    u16_at(value, 0)
}

/// Number of the first four bytes, host order.
pub(crate) fn u32_of(value: &[u8]) -> Result<u32, Malformed> {
    u32_at(value, 0)
}

/// Number of the first eight bytes, host order.
pub(crate) fn u64_of(value: &[u8]) -> Result<u64, Malformed> {
    chunk(value, 0).map(u64::from_ne_bytes)
}

/// Signed number of the four bytes from `offset`, host order.
pub(crate) fn i32_at(bytes: &[u8], offset: usize) -> Result<i32, Malformed> {
    chunk(bytes, offset).map(i32::from_ne_bytes)
}

/// The byte at `offset`.
pub(crate) fn u8_at(bytes: &[u8], offset: usize) -> Result<u8, Malformed> {
    chunk(bytes, offset).map(u8::from_ne_bytes)
}

/// Number of the two bytes from `offset`, host order.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Result<u16, Malformed> {
    chunk(bytes, offset).map(u16::from_ne_bytes)
}

/// Number of the four bytes from `offset`, host order.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Result<u32, Malformed> {
    chunk(bytes, offset).map(u32::from_ne_bytes)
}

fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], Malformed> {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or(Malformed("ends within a number"))
}

/// The next multiple of four (`NLMSG_ALIGN`, `NLA_ALIGN`).
fn align(length: usize) -> usize {
    length.saturating_add(3) & !3
}

#[cfg(test)]
mod tests;
