//! Each id: good texts come back as they were, bad ones are refused with their kind named.

use super::*;

fn same<T: std::str::FromStr<Err = BadId> + ToString>(texts: &[&str]) {
    for text in texts {
        assert_eq!(
            text.parse::<T>().map(|id| id.to_string()).as_deref(),
            Ok(*text)
        );
    }
}

fn refused<T: std::str::FromStr<Err = BadId>>(texts: &[&str]) {
    for text in texts {
        let error = text
            .parse::<T>()
            .err()
            .unwrap_or_else(|| panic!("{text:?} was taken"));
        assert!(error.to_string().contains(error.kind), "{error}");
    }
}

#[test]
fn pci_addresses() {
    same::<PciAddr>(&[
        "0000:0c:00.0",
        "0000:ff:1f.7",
        "10000:01:00.0",
        "abcd0000:01:00.0",
    ]);
    refused::<PciAddr>(&[
        "",
        "0c:00.0",
        "0000:0c:00",
        "0000:0c:20.0",
        "0000:0c:00.8",
        "0000:0c:00.00",
        "+000:0c:00.0",
        "0000:0c:00.0 ",
        "0000:0c:00:00.0",
        "000000000:0c:00.0",
        "0000:0g:00.0",
        "é000:0c:00.0",
    ]);
    assert_eq!(
        PciAddr::parse("00000000:0C:00.1").unwrap().to_string(),
        "0000:0c:00.1"
    );
    assert_eq!(
        PciAddr::parse("0000:0c:00.1").unwrap().nic().to_string(),
        "0000:0c:00"
    );
}

#[test]
fn nics_and_roots() {
    same::<NicId>(&["0000:0c:00", "10000:0c:1f"]);
    refused::<NicId>(&["0000:0c:00.0", "0000:0c", ""]);
    same::<RootId>(&["0000:0b", "10000:c2"]);
    refused::<RootId>(&["pci0000:0b", "0b", "0000:0b:00"]);
}

#[test]
fn interface_names() {
    same::<IfName>(&["net1", "rdma15", "a", "fifteen-letters", "eth0.100"]);
    refused::<IfName>(&[
        "",
        ".",
        "..",
        "a/b",
        "a b",
        "a:b",
        "sixteen-letters-",
        "é",
        "a\0",
        "a\nb",
    ]);
}

#[test]
fn sandbox_ids() {
    same::<SandboxId>(&["job-17", "0123abcd", "a.b_c"]);
    let long = "x".repeat(129);
    refused::<SandboxId>(&["", "-a", ".a", "../etc", "a/b", "a b", "é", "a\0", &long]);
}

#[test]
fn rdma_names_and_gpu_uuids() {
    same::<RdmaName>(&["mlx5_5", "rocep12s0f0", "irdma-0"]);
    refused::<RdmaName>(&["", ".", "..", "a/b", "mlx5 0"]);
    same::<GpuUuid>(&["GPU-5a8b3c1d-0000-1111-2222-333344445555"]);
    refused::<GpuUuid>(&["GPU-", "5a8b", "MIG-5a8b", "GPU-5a8b::1", "GPU-xyz"]);
}

#[test]
fn mac_addresses_and_rail_indexes() {
    same::<MacAddr>(&["08:c0:eb:8e:7f:20"]);
    refused::<MacAddr>(&[
        "",
        "08:c0:eb:8e:7f",
        "08:c0:eb:8e:7f:20:00",
        "8:c0:eb:8e:7f:20",
    ]);
    assert_eq!(RailIndex(15).table(), 115);
    assert_eq!(RailIndex(15).default_interface().as_str(), "net16");
}

#[test]
fn ids_keep_their_text_in_json() {
    let rail: PciAddr = serde_json::from_str("\"0000:0c:00.1\"").unwrap();
    assert_eq!(serde_json::to_string(&rail).unwrap(), "\"0000:0c:00.1\"");
    assert!(serde_json::from_str::<IfName>("\"a/b\"").is_err());
}
