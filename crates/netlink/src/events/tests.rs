//! Messages as the kernel writes them, and garbage.

use super::*;
use proptest::prelude::*;

fn uevent(head: &str, keys: &[&str]) -> Vec<u8> {
    let mut bytes = head.as_bytes().to_vec();
    for key in keys {
        bytes.push(0);
        bytes.extend(key.as_bytes());
    }
    bytes.push(0);
    bytes
}

#[test]
fn devices_of_rails_are_told_and_others_are_not() {
    let path = "/devices/pci0000:0b/0000:0c:00.0/infiniband/mlx5_0";
    let message = uevent(
        &format!("remove@{path}"),
        &["ACTION=remove", "SUBSYSTEM=infiniband", "SEQNUM=7"],
    );
    let event = Event::Device(Uevent {
        action: Action::Remove,
        subsystem: "infiniband".into(),
        path: path.into(),
    });
    assert_eq!(parse(Source::Devices, &message), [event]);
    for other in ["SUBSYSTEM=block", "SUBSYSTEM=infiniband_mad", "SUBSYS=net"] {
        let message = uevent("add@/devices/x", &[other]);
        assert_eq!(parse(Source::Devices, &message), []);
    }
    let udev = uevent("libudev", &["SUBSYSTEM=net"]);
    assert_eq!(parse(Source::Devices, &udev), []);
}

#[test]
fn a_link_that_cannot_be_read_is_a_loss_not_silence() {
    let message = |kind, body: &[u8]| {
        wire::Message {
            kind,
            flags: 0,
            body: body.to_vec(),
        }
        .frame(0)
    };
    assert_eq!(links(&message(RTM_NEWLINK, &[0; 3])), [Event::Lost]);
    assert_eq!(links(&[1, 2, 3]), [Event::Lost]);
    assert_eq!(links(&message(wire::OVERRUN, &[])), [Event::Lost]);
    assert_eq!(links(&message(wire::NOOP, &[])), []);
    let mut both = message(RTM_NEWLINK, &[0; 16]);
    both.extend(message(RTM_DELLINK, &[0; 16]));
    assert!(matches!(
        links(&both)[..],
        [Event::Link(_), Event::LinkGone(_)]
    ));
}

proptest! {
    #[test]
    fn garbage_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(Source::Links, &bytes);
        prop_assert!(parse(Source::Devices, &bytes).len() <= 1);
    }
}
