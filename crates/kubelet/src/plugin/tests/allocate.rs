//! `Allocate` and the calls around it.

use super::*;
use crate::client::Connection;
use crate::proto::deviceplugin as proto;
use proto::device_plugin_client::DevicePluginClient;
use std::sync::{Arc, Mutex};
use tonic::Code;

/// Remembers what it was asked, and fails on slot-09.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<Vec<Vec<SlotId>>>>>);

impl Allocator for Ledger {
    async fn allocate(&self, containers: &[Vec<SlotId>]) -> Result<(), AllocateError> {
        tokio::task::yield_now().await;
        if containers.iter().flatten().any(|slot| *slot == SlotId(9)) {
            return Err(AllocateError::new("disk full"));
        }
        self.0.lock().unwrap().push(containers.to_vec());
        Ok(())
    }
}

async fn called() -> (
    TempDir,
    Kubelet,
    Plugin,
    Ledger,
    DevicePluginClient<Connection>,
) {
    let (dir, directory) = place();
    let mut kubelet = Kubelet::start(&directory);
    let ledger = Ledger::default();
    let plugin = Plugin::start_with(&directory, slots(&[true; 10]), ledger.clone());
    assert!(matches!(next(&mut kubelet).await, Seen::Registered(_)));
    let connection = Connection::open(&directory.join(SOCKET)).await.unwrap();
    let client = DevicePluginClient::with_origin(connection, Connection::origin());
    (dir, kubelet, plugin, ledger, client)
}

fn request(containers: &[&[&str]]) -> proto::AllocateRequest {
    let container = |ids: &&[&str]| proto::ContainerAllocateRequest {
        devices_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    };
    proto::AllocateRequest {
        container_requests: containers.iter().map(container).collect(),
    }
}

#[tokio::test]
async fn containers_are_answered_in_order_with_cdi_names_only() {
    let (_dir, _kubelet, _plugin, ledger, mut client) = called().await;
    let request = request(&[&["slot-07", "slot-02"], &[], &["slot-00"]]);
    let answer = client.allocate(request).await.unwrap().into_inner();
    let named = |names: &[&str]| proto::ContainerAllocateResponse {
        cdi_devices: names
            .iter()
            .map(|name| proto::CdiDevice {
                name: (*name).to_owned(),
            })
            .collect(),
        ..Default::default()
    };
    assert_eq!(
        answer.container_responses,
        [
            named(&["podrail.io/rail=slot-02", "podrail.io/rail=slot-07"]),
            named(&[]),
            named(&["podrail.io/rail=slot-00"]),
        ]
    );
    let asked = ledger.0.lock().unwrap().clone();
    assert_eq!(
        asked,
        [[vec![SlotId(2), SlotId(7)], vec![], vec![SlotId(0)]]]
    );
}

#[tokio::test]
async fn a_bad_id_is_named_and_nothing_is_done() {
    let (_dir, _kubelet, _plugin, ledger, mut client) = called().await;
    for (containers, named) in [
        (&[&["slot-01", "slot-7"][..]][..], "\"slot-7\""),
        (&[&["slot-01"], &["rail-1"]], "\"rail-1\""),
        (&[&["slot-10"]], "slot-10 is no slot"),
        (&[&["slot-01", "slot-01"]], "slot-01 is requested twice"),
        (&[&["slot-01"], &["slot-01"]], "slot-01 is requested twice"),
        (&[&[""]], "\"\""),
    ] {
        let status = client.allocate(request(containers)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(named), "{status}");
    }
    assert!(ledger.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_cannot_be_prepared_is_refused_with_the_reason() {
    let (_dir, _kubelet, _plugin, _ledger, mut client) = called().await;
    let status = client.allocate(request(&[&["slot-09"]])).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "cannot prepare the slots: disk full");
}

#[tokio::test]
async fn an_unhealthy_slot_may_still_be_asked_for() {
    let (_dir, _kubelet, plugin, _ledger, mut client) = called().await;
    plugin.slots.send_replace(slots(&[false]));
    client.allocate(request(&[&["slot-00"]])).await.unwrap();
}

#[tokio::test]
async fn the_plugin_wants_no_more_of_the_kubelet() {
    let (_dir, _kubelet, _plugin, _ledger, mut client) = called().await;
    let options = client
        .get_device_plugin_options(proto::Empty {})
        .await
        .unwrap();
    assert_eq!(options.into_inner(), proto::DevicePluginOptions::default());
    let preferred = client.get_preferred_allocation(proto::PreferredAllocationRequest::default());
    assert_eq!(preferred.await.unwrap_err().code(), Code::Unimplemented);
    let started = client.pre_start_container(proto::PreStartContainerRequest::default());
    started.await.unwrap();
}
