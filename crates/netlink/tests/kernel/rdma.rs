//! RDMA reads, compared with what `rdma -j` lists; where there is no RDMA core, the error.

use podrail_netlink::{NetlinkError, NetnsMode, Rdma};
use serde_json::{Value, json};
use std::process::Command;

fn open() -> Option<Rdma> {
    match Rdma::open() {
        Ok(rdma) => Some(rdma),
        Err(NetlinkError::NoRdma) => {
            println!("skipped: no RDMA core in this kernel");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn judge(words: &str) -> Vec<Value> {
    let output = Command::new("rdma")
        .arg("-j")
        .args(words.split(' '))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn ports_are_as_rdma_lists_them() {
    let Some(mut rdma) = open() else {
        return;
    };
    let ours: Vec<_> = rdma
        .links()
        .unwrap()
        .iter()
        .map(|link| {
            let (state, phys) = (link.state.to_string(), link.phys_state.to_string());
            json!([
                link.device.as_str(),
                link.port,
                state,
                phys,
                link.netdev_name,
                link.netdev_index
            ])
        })
        .collect();
    let theirs: Vec<_> = judge("link show")
        .iter()
        .map(|link| {
            json!([
                link["ifname"],
                link["port"],
                link["state"],
                link["physical_state"],
                link["netdev"],
                link["netdev_index"]
            ])
        })
        .collect();
    println!("{} RDMA ports", ours.len());
    assert_eq!(ours, theirs);
}

#[test]
fn devices_are_as_rdma_lists_them() {
    let Some(mut rdma) = open() else {
        return;
    };
    let ours: Vec<_> = rdma
        .devices()
        .unwrap()
        .iter()
        .map(|device| {
            let guid = format!("{:016x}", device.node_guid.unwrap());
            json!([device.index, device.name.as_str(), guid])
        })
        .collect();
    let theirs: Vec<_> = judge("dev show")
        .iter()
        .map(|device| {
            let guid = device["node_guid"].as_str().unwrap().replace(':', "");
            json!([device["ifindex"], device["ifname"], guid])
        })
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn the_namespace_mode_is_as_rdma_says() {
    let Some(mut rdma) = open() else {
        return;
    };
    // `rdma -j` prints no JSON here.
    let output = Command::new("rdma")
        .args(["system", "show"])
        .output()
        .unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let word = match rdma.netns_mode().unwrap() {
        NetnsMode::Shared => "netns shared",
        NetnsMode::Exclusive => "netns exclusive",
    };
    assert!(theirs.contains(word), "{theirs}");
}
