//! One netlink socket: dumps, single questions, and batches with their acknowledgements.
//!
//! Nothing here waits. The kernel answers inside `sendmsg` (and queues the next part of a dump
//! inside `recvmsg`), so that an empty queue is a lost answer; see the crate's introduction.

use crate::error::NetlinkError;
use crate::wire::{self, DUMP, Malformed, Message, Nack, Reply};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc;
use std::io;

/// How often a dump is read until one pass is undisturbed. On a busy host, where half of the
/// passes are, 50 are never needed; where all are, the caller should look up what it wants by name.
const ATTEMPTS: u32 = 50;
/// Largest datagram of the kernel in practice is 32 KiB (`netlink_dump`); grows if it is not.
const RECEIVE_BUFFER: usize = 64 * 1024;
/// A `sendmsg` larger than the send buffer (208 KiB by default) fails as a whole.
const BATCH_BYTES: usize = 32 * 1024;
/// Each acknowledgement takes about 800 bytes of the receive buffer, 208 KiB by default. What
/// does not fit is lost (`netlink_overrun`).
const BATCH_MESSAGES: usize = 128;

/// Why a message of a batch has no positive acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    Kernel(Nack),
    Unanswered(Errno),
    NotSent(Errno),
}

/// What a receive gave.
enum Received {
    Datagram,
    /// Other senders' datagrams, or interrupted by a signal: ask again.
    Nothing,
    /// Part of the answer is lost (`ENOBUFS`, or a datagram larger than the buffer).
    Loss,
    /// The queue is empty.
    Dry,
}

/// A socket and its running numbers.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    round_trips: u64,
}

impl Channel {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// Strict checking (5.0) and the kernel's own words (4.12) are asked for; kernels without
    /// them give plainer answers.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        for set in [
            Socket::set_ext_ack,
            Socket::set_cap_ack,
            Socket::set_netlink_get_strict_chk,
        ] {
            allow_missing(set(&socket, true))?;
        }
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
            round_trips: 0,
        })
    }

    /// How many `sendmsg` calls there were.
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Reads all of something: (message type, body) of each part, from one undisturbed pass.
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        request: &str,
    ) -> Result<Vec<(u16, Vec<u8>)>, NetlinkError> {
        let message = Message {
            kind,
            flags: DUMP,
            body: body.to_vec(),
        };
        for _ in 0..ATTEMPTS {
            let dump = self.dump_once(&message, request)?;
            match dump.end {
                Some(Ok(())) if !dump.disturbed => return Ok(dump.parts),
                // An earlier dump of this socket has not been read to its end.
                Some(Err(nack)) if nack.errno != Errno::EBUSY => {
                    return Err(refused(request, nack));
                }
                None if !dump.disturbed => return Err(no_answer(request)),
                _ => {}
            }
        }
        Err(NetlinkError::Unsettled {
            request: request.to_owned(),
            attempts: ATTEMPTS,
        })
    }

    fn dump_once(&mut self, message: &Message, request: &str) -> Result<Dump, NetlinkError> {
        let sequence = self.next_sequence();
        self.send(&message.frame(sequence))
            .map_err(|source| sending(request, source))?;
        let mut dump = Dump::new(sequence);
        loop {
            match self.receive().map_err(|e| receiving(request, e))? {
                Received::Datagram => dump
                    .absorb(&self.buffer)
                    .map_err(|source| malformed(request, source))?,
                Received::Nothing => continue,
                Received::Loss => dump.disturbed = true,
                Received::Dry => return Ok(dump),
            }
            if dump.end.is_some() {
                return Ok(dump);
            }
        }
    }

    /// Asks for one thing: the body of the answer.
    pub(crate) fn get(
        &mut self,
        kind: u16,
        body: &[u8],
        request: &str,
    ) -> Result<Vec<u8>, NetlinkError> {
        let sequence = self.next_sequence();
        let message = Message {
            kind,
            flags: 0,
            body: body.to_vec(),
        };
        self.send(&message.frame(sequence))
            .map_err(|source| sending(request, source))?;
        loop {
            match self.receive().map_err(|e| receiving(request, e))? {
                Received::Datagram => {
                    let found = single(&self.buffer, sequence);
                    if let Some(answer) = found.map_err(|source| malformed(request, source))? {
                        return answer.map_err(|nack| refused(request, nack));
                    }
                }
                Received::Nothing => {}
                Received::Loss | Received::Dry => return Err(no_answer(request)),
            }
        }
    }

    /// Sends the messages in as few `sendmsg` calls as are safe and collects every verdict, in
    /// the order of the messages. A message that is refused does not stop those behind it.
    pub(crate) fn batch(&mut self, messages: &[Message]) -> Vec<Result<(), Failure>> {
        let mut verdicts = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while !rest.is_empty() {
            let (frames, count) = self.fill(rest);
            let (chunk, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            verdicts.extend(self.exchange(&frames, chunk.len()));
            rest = later;
        }
        verdicts
    }

    /// Frames of as many messages as go into one `sendmsg`, and how many those are (at least 1).
    fn fill(&mut self, messages: &[Message]) -> (Vec<u8>, usize) {
        let mut frames = Vec::new();
        let mut count = 0;
        for message in messages.iter().take(BATCH_MESSAGES) {
            if count > 0 && frames.len() + message.body.len() + 32 > BATCH_BYTES {
                break;
            }
            frames.extend(message.frame(self.next_sequence()));
            count += 1;
        }
        (frames, count)
    }

    /// One round trip; the last sequence number given out belongs to the last of `count` frames.
    fn exchange(&mut self, frames: &[u8], count: usize) -> Vec<Result<(), Failure>> {
        let last = self.sequence;
        if let Err(error) = self.send(frames) {
            return vec![Err(Failure::NotSent(errno_of(&error))); count];
        }
        let mut acks = Acks::new(last, count);
        loop {
            match self.receive() {
                Ok(Received::Datagram) => {
                    if acks.absorb(&self.buffer).is_err() {
                        return acks.close(Errno::EBADMSG);
                    }
                    if acks.complete() {
                        return acks.close(Errno::EAGAIN);
                    }
                }
                Ok(Received::Nothing | Received::Loss) => {}
                Ok(Received::Dry) => return acks.close(Errno::EAGAIN),
                Err(error) => return acks.close(errno_of(&error)),
            }
        }
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.round_trips += 1;
        let sent = self.socket.send_to(frames, &SocketAddr::new(0, 0), 0)?;
        if sent == frames.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// One datagram of the kernel into the buffer.
    fn receive(&mut self) -> io::Result<Received> {
        self.buffer.clear();
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        match self.socket.recv_from(&mut self.buffer, flags) {
            Ok((_, sender)) if sender.port_number() != 0 => Ok(Received::Nothing),
            Ok((length, _)) if length > self.buffer.len() => {
                self.buffer.reserve(length);
                Ok(Received::Loss)
            }
            Ok(_) => Ok(Received::Datagram),
            Err(error) => match errno_of(&error) {
                Errno::EINTR => Ok(Received::Nothing),
                Errno::ENOBUFS => Ok(Received::Loss),
                Errno::EAGAIN => Ok(Received::Dry),
                _ => Err(error),
            },
        }
    }
}

/// A dump as far as it has been read.
#[derive(Debug)]
struct Dump {
    sequence: u32,
    parts: Vec<(u16, Vec<u8>)>,
    disturbed: bool,
    end: Option<Result<(), Nack>>,
}

impl Dump {
    fn new(sequence: u32) -> Self {
        Self {
            sequence,
            parts: Vec::new(),
            disturbed: false,
            end: None,
        }
    }

    /// Takes in a datagram; messages of earlier requests are left out.
    fn absorb(&mut self, datagram: &[u8]) -> Result<(), Malformed> {
        for reply in wire::replies(datagram)? {
            if reply.sequence != self.sequence {
                continue;
            }
            self.disturbed |= reply.flags & wire::INTERRUPTED != 0;
            match reply.kind {
                wire::DONE | wire::ERROR => self.end = Some(wire::verdict(&reply)?),
                wire::OVERRUN => self.disturbed = true,
                wire::NOOP => {}
                kind => self.parts.push((kind, reply.body.to_vec())),
            }
        }
        Ok(())
    }
}

/// The acknowledgements of one `sendmsg`.
#[derive(Debug)]
struct Acks {
    first: u32,
    verdicts: Vec<Option<Result<(), Nack>>>,
}

impl Acks {
    fn new(last: u32, count: usize) -> Self {
        let before = u32::try_from(count).unwrap_or(u32::MAX).wrapping_sub(1);
        Self {
            first: last.wrapping_sub(before),
            verdicts: vec![None; count],
        }
    }

    fn absorb(&mut self, datagram: &[u8]) -> Result<(), Malformed> {
        for reply in wire::replies(datagram)? {
            let place = reply.sequence.wrapping_sub(self.first) as usize;
            if reply.kind == wire::ERROR
                && let Some(slot) = self.verdicts.get_mut(place)
            {
                *slot = Some(wire::verdict(&reply)?);
            }
        }
        Ok(())
    }

    fn complete(&self) -> bool {
        self.verdicts.iter().all(Option::is_some)
    }

    /// The verdicts in order; those that are missing, are missing because of `why`.
    fn close(self, why: Errno) -> Vec<Result<(), Failure>> {
        self.verdicts
            .into_iter()
            .map(|verdict| match verdict {
                Some(Ok(())) => Ok(()),
                Some(Err(nack)) => Err(Failure::Kernel(nack)),
                None => Err(Failure::Unanswered(why)),
            })
            .collect()
    }
}

/// The answer to a single question, if the datagram has it.
fn single(datagram: &[u8], sequence: u32) -> Result<Option<Result<Vec<u8>, Nack>>, Malformed> {
    let of_ours = |reply: &Reply<'_>| reply.sequence == sequence;
    let Some(reply) = wire::replies(datagram)?.into_iter().find(of_ours) else {
        return Ok(None);
    };
    if reply.kind == wire::ERROR {
        // An acknowledgement without data: nobody asked for it, the data is still to come.
        return Ok(wire::verdict(&reply)?.err().map(Err));
    }
    Ok(Some(Ok(reply.body.to_vec())))
}

/// Options that an older kernel does not know are done without.
fn allow_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if errno_of(&error) == Errno::ENOPROTOOPT => Ok(()),
        other => other,
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::UnknownErrno, Errno::from_raw)
}

fn refused(request: &str, nack: Nack) -> NetlinkError {
    NetlinkError::Refused {
        request: request.to_owned(),
        errno: nack.errno,
        message: nack.message,
    }
}

fn no_answer(request: &str) -> NetlinkError {
    NetlinkError::NoAnswer {
        request: request.to_owned(),
    }
}

fn sending(request: &str, source: io::Error) -> NetlinkError {
    NetlinkError::Send {
        request: request.to_owned(),
        source,
    }
}

fn receiving(request: &str, source: io::Error) -> NetlinkError {
    NetlinkError::Receive {
        request: request.to_owned(),
        source,
    }
}

/// The answer to `request` has the wrong form.
pub(crate) fn malformed(request: &str, source: Malformed) -> NetlinkError {
    NetlinkError::Malformed {
        request: request.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
