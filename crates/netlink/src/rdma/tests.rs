//! RDMA answers: a captured shape, missing parts, and any bytes.

use super::parse::*;
use super::*;
use proptest::prelude::*;

fn device() -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, 1, &4_u32.to_ne_bytes());
    put(&mut body, 2, b"mlx5_9\0");
    put(&mut body, 3, &1_u32.to_ne_bytes());
    put(&mut body, 4, &[0; 8]);
    put(&mut body, 5, b"28.39.2048\0");
    put(&mut body, 6, &0x0002_c903_0010_abcd_u64.to_ne_bytes());
    put(&mut body, 67, b"roce\0");
    put(&mut body, 900, b"from a later kernel");
    body
}

fn port() -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, 1, &4_u32.to_ne_bytes());
    put(&mut body, 3, &1_u32.to_ne_bytes());
    put(&mut body, 12, &[4]);
    put(&mut body, 13, &[5]);
    put(&mut body, 50, &12_u32.to_ne_bytes());
    put(&mut body, 51, b"rdma4\0");
    body
}

#[test]
fn a_device_and_its_port_become_a_link() {
    let device = RawDevice::parse(&device()).unwrap().named().unwrap();
    assert_eq!(device.node_guid, Some(0x0002_c903_0010_abcd));
    assert_eq!(device.firmware.as_deref(), Some("28.39.2048"));
    let link = RawPort::parse(&port()).unwrap().of(&device);
    assert_eq!(link.device.as_str(), "mlx5_9");
    assert_eq!((link.dev_index, link.port), (4, 1));
    assert_eq!(link.netdev_index, Some(12));
    assert_eq!(link.netdev_name.as_deref(), Some("rdma4"));
    assert_eq!(link.protocol.as_deref(), Some("roce"));
    assert_eq!(link.state.to_string(), "ACTIVE");
    assert_eq!(link.phys_state.to_string(), "LINK_UP");
}

#[test]
fn a_port_in_another_namespace_has_no_interface() {
    let mut body = Vec::new();
    put(&mut body, 3, &1_u32.to_ne_bytes());
    put(&mut body, 12, &[1]);
    let device = RawDevice::parse(&device()).unwrap().named().unwrap();
    let link = RawPort::parse(&body).unwrap().of(&device);
    assert_eq!((link.netdev_index, link.netdev_name), (None, None));
    assert_eq!(link.state, PortState::Down);
}

#[test]
fn an_unusable_name_is_named_by_its_index() {
    let mut body = Vec::new();
    put(&mut body, 1, &3_u32.to_ne_bytes());
    put(&mut body, 2, b"a b\0");
    let error = RawDevice::parse(&body).unwrap().named().unwrap_err();
    assert_eq!(
        error.to_string(),
        "RDMA device number 3 has an unusable name"
    );
}

#[test]
fn the_mode_is_a_byte() {
    let of = |mode: u8| {
        let mut body = Vec::new();
        put(&mut body, 66, &[mode]);
        parse_mode(&body)
    };
    assert_eq!(of(0), Ok(NetnsMode::Exclusive));
    assert_eq!(of(1), Ok(NetnsMode::Shared));
    assert!(parse_mode(&[]).is_err());
}

#[test]
fn without_ib_core_the_error_says_so() {
    match Rdma::open() {
        Err(NetlinkError::NoRdma) => {}
        Ok(mut rdma) => {
            rdma.netns_mode().unwrap();
            rdma.links().unwrap();
        }
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = RawDevice::parse(&bytes);
        let _ = RawPort::parse(&bytes);
        let _ = parse_mode(&bytes);
    }

    #[test]
    fn cut_answers_are_taken(cut in 0..120_usize) {
        for whole in [device(), port()] {
            let part = &whole[..cut.min(whole.len())];
            let _ = RawDevice::parse(part);
            let _ = RawPort::parse(part);
        }
    }
}
