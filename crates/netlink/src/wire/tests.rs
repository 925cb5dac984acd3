//! Framing on known bytes, and no panic on any bytes.

use super::*;
use proptest::prelude::*;

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = Message {
        kind,
        flags,
        body: body.to_vec(),
    }
    .frame(sequence);
    frame[6..8].copy_from_slice(&flags.to_ne_bytes());
    frame
}

#[test]
fn a_frame_has_its_length_and_is_padded() {
    let frame = Message {
        kind: 19,
        flags: ACK,
        body: vec![9; 5],
    }
    .frame(7);
    assert_eq!(frame.len(), 24);
    assert_eq!(u32_at(&frame, 0), Ok(21));
    assert_eq!(u16_at(&frame, 6), Ok(ACK | REQUEST));
    assert_eq!(u32_at(&frame, 8), Ok(7));
    assert_eq!(frame[16..], [9, 9, 9, 9, 9, 0, 0, 0]);
}

#[test]
fn replies_come_back_in_order() {
    let mut datagram = message(16, 2, 1, &[1, 2, 3]);
    datagram.extend(message(DONE, 2, 1, &[]));
    let found = replies(&datagram).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].body, [1, 2, 3]);
    assert_eq!(found[1].kind, DONE);
    assert_eq!(verdict(&found[1]), Ok(Ok(())));
}

#[test]
fn a_message_that_is_cut_is_an_error() {
    let whole = message(16, 2, 1, &[1, 2, 3, 4]);
    for length in 1..whole.len() {
        assert!(replies(&whole[..length]).is_err(), "{length} bytes");
    }
    assert!(replies(&[0; 16]).is_err(), "length 0 must not loop");
}

#[test]
fn attributes_lose_their_flags_and_padding() {
    let mut bytes = Vec::new();
    put(&mut bytes, 3, b"net1\0");
    put(&mut bytes, 0x8000 | 26, &[]);
    let found = attributes(&bytes).unwrap();
    assert_eq!(found, [(3, &b"net1\0"[..]), (26, &[][..])]);
    assert_eq!(
        attributes(&[3, 0, 1, 0]),
        Err(Malformed("attribute does not fit its message"))
    );
}

/// The same refusal with and without the request repeated in it.
#[test]
fn the_kernels_words_are_found_behind_the_request() {
    let mut words = Vec::new();
    put(&mut words, VERDICT_TEXT, b"Unknown device type\0");
    let request = message(16, REQUEST, 5, &[7; 9]);
    let code = (-95_i32).to_ne_bytes();
    let long = [&code[..], &request, &words].concat();
    let short = [&code[..], &request[..HEADER], &words].concat();
    for (flags, body) in [
        (VERDICT_ATTRIBUTES, long),
        (VERDICT_ATTRIBUTES | CAPPED, short),
    ] {
        let datagram = message(ERROR, flags, 5, &body);
        let nack = verdict(&replies(&datagram).unwrap()[0])
            .unwrap()
            .unwrap_err();
        assert_eq!(nack.errno, Errno::EOPNOTSUPP);
        assert_eq!(nack.message.as_deref(), Some("Unknown device type"));
    }
}

#[test]
fn texts_end_at_the_first_nul() {
    assert_eq!(text(b"net1\0\0x"), "net1");
    assert_eq!(text(b""), "");
    assert_eq!(text(b"\xff"), "\u{fffd}");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = attributes(&bytes);
        for reply in replies(&bytes).unwrap_or_default() {
            let _ = verdict(&reply);
        }
    }

    #[test]
    fn verdicts_of_any_body_do_not_panic(
        kind in 2..4_u16,
        flags in any::<u16>(),
        body in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = verdict(&Reply { kind, flags, sequence: 1, body: &body });
    }

    #[test]
    fn attributes_survive_the_round(
        list in proptest::collection::vec((0..0x4000_u16, proptest::collection::vec(any::<u8>(), 0..40)), 0..8)
    ) {
        let mut bytes = Vec::new();
        for (kind, value) in &list {
            put(&mut bytes, *kind, value);
        }
        let found = attributes(&bytes).unwrap();
        let expected: Vec<_> = list.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
        prop_assert_eq!(found, expected);
    }
}
