//! The dump reader and the collector of acknowledgements, without a socket.

use super::*;
use proptest::prelude::*;

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = Message {
        kind,
        flags: 0,
        body: body.to_vec(),
    }
    .frame(sequence);
    frame[6..8].copy_from_slice(&flags.to_ne_bytes());
    frame
}

fn ack(sequence: u32, code: i32) -> Vec<u8> {
    let body = [&code.to_ne_bytes()[..], &[0; 16]].concat();
    message(wire::ERROR, 0x100, sequence, &body)
}

#[test]
fn a_dump_ends_with_done_and_leaves_out_strangers() {
    let mut dump = Dump::new(4);
    dump.absorb(&message(16, 2, 3, &[0])).unwrap();
    dump.absorb(&message(16, 2, 4, &[1])).unwrap();
    assert_eq!(dump.end, None);
    dump.absorb(&message(wire::DONE, 2, 4, &[0; 4])).unwrap();
    assert_eq!(dump.end, Some(Ok(())));
    assert_eq!(dump.parts, [(16, vec![1])]);
    assert!(!dump.disturbed);
}

#[test]
fn a_dump_is_disturbed_if_any_part_says_so() {
    for marked in 0..3 {
        let mut dump = Dump::new(1);
        for (place, kind) in [16, 16, wire::DONE].into_iter().enumerate() {
            let flag = if place == marked {
                wire::INTERRUPTED
            } else {
                0
            };
            dump.absorb(&message(kind, 2 | flag, 1, &[0; 4])).unwrap();
        }
        assert!(dump.disturbed, "part {marked}");
    }
}

#[test]
fn a_dump_that_fails_late_says_why() {
    let mut dump = Dump::new(1);
    let code = (-(Errno::ENODEV as i32)).to_ne_bytes();
    dump.absorb(&message(wire::DONE, 2, 1, &code)).unwrap();
    let nack = dump.end.unwrap().unwrap_err();
    assert_eq!(nack.errno, Errno::ENODEV);
}

/// Sequence numbers wrap within the batch, and the answers come in one datagram or many.
#[test]
fn verdicts_keep_the_order_of_the_requests() {
    let mut acks = Acks::new(1, 4);
    acks.absorb(&[ack(u32::MAX, -17), ack(u32::MAX - 1, 0)].concat())
        .unwrap();
    acks.absorb(&ack(77, -1)).unwrap();
    assert!(!acks.complete());
    acks.absorb(&ack(1, -19)).unwrap();
    let kernel = |errno| {
        Err(Failure::Kernel(Nack {
            errno,
            message: None,
        }))
    };
    assert_eq!(
        acks.close(Errno::ENOBUFS),
        [
            Ok(()),
            kernel(Errno::EEXIST),
            Err(Failure::Unanswered(Errno::ENOBUFS)),
            kernel(Errno::ENODEV),
        ]
    );
}

#[test]
fn a_batch_is_cut_at_both_limits() {
    let mut channel = Channel::open(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
    let message = |size| Message {
        kind: 19,
        flags: 0,
        body: vec![0; size],
    };
    assert_eq!(channel.fill(&vec![message(16); 500]).1, BATCH_MESSAGES);
    let (frames, count) = channel.fill(&vec![message(1000); 100]);
    assert!(frames.len() <= BATCH_BYTES && count == 32, "{count}");
    assert_eq!(channel.fill(&[message(60_000)]).1, 1);
}

proptest! {
    #[test]
    fn the_dump_reader_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Dump::new(0).absorb(&bytes);
        let _ = Acks::new(3, 3).absorb(&bytes);
        let _ = single(&bytes, 0);
    }

    #[test]
    fn a_cut_dump_never_looks_complete(cut in 1..40_usize) {
        let whole = [message(16, 2, 1, &[5; 8]), message(wire::DONE, 2, 1, &[0; 4])].concat();
        let mut dump = Dump::new(1);
        let result = dump.absorb(&whole[..whole.len() - cut]);
        prop_assert!(result.is_err() || dump.end.is_none());
    }
}
