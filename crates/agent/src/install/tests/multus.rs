//! Multus before and after us: it never calls itself through us.

use super::*;

const THICK: &str = r#"{"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus-shim",
  "capabilities": {"portMappings": true}, "clusterNetwork": "/host/etc/cni/net.d/10-calico.conflist"}"#;

/// The file that Multus takes as the cluster's, in each of its generations.
fn taken_by_multus(node: &Node) -> Vec<Option<String>> {
    let files = node.files();
    let loadable = |name: &&String| name.ends_with(".conf") || name.ends_with(".conflist");
    let newer = |name: &&String| !name.starts_with("00-multus");
    let older = |name: &&String| !name.contains("00-multus.conf");
    let first = |skip: &dyn Fn(&&String) -> bool| {
        files
            .keys()
            .filter(loadable)
            .find(|name| skip(name))
            .cloned()
    };
    vec![first(&newer), first(&older)]
}

#[test]
fn beside_multus_we_are_chained_after_it_and_it_does_not_see_us() {
    let node = Node::new(&[("00-multus.conf", THICK), ("10-calico.conflist", CALICO)]);
    assert_eq!(chained(&node.chain()).1, "00-multus.conf");
    assert_eq!(node.loaded_types(), ["multus-shim", "podrail-cni"]);
    for taken in taken_by_multus(&node) {
        assert_eq!(taken.as_deref(), Some("10-calico.conflist"));
    }
    node.installer.uninstall(Program::Remove).unwrap();
    assert_eq!(node.loaded().unwrap().0, "00-multus.conf");
    assert_eq!(node.files().len(), 2);
}

#[test]
fn a_multus_under_another_name_is_safe_too() {
    let node = Node::new(&[("05-multus.conf", THICK), ("10-calico.conflist", CALICO)]);
    assert_eq!(chained(&node.chain()).1, "05-multus.conf");
    for taken in taken_by_multus(&node) {
        let ours = taken.as_ref().is_some_and(|name| name.contains("podrail"));
        assert!(!ours, "{taken:?}");
    }
    let node = Node::new(&[("00-a.conf", THICK)]);
    let standing = node.chain();
    assert!(matches!(
        standing,
        Standing::Waiting(Why::SortsFirst { .. })
    ));
}

#[test]
fn multus_that_names_our_copy_keeps_it() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.chain();
    // Multus starts, and takes the first.
    let ours = taken_by_multus(&node)[0].clone().unwrap();
    node.put(
        "00-multus.conf",
        &THICK.replace("10-calico.conflist", &ours),
    );
    let standing = node.chain();
    let original = "10-calico.conflist".to_owned();
    assert_eq!(
        standing,
        Standing::BelowMultus {
            file: ours.clone(),
            original
        }
    );
    node.put("10-calico.conflist", &CALICO.replace("1500", "9000"));
    node.chain();
    let copy: Value = serde_json::from_str(&node.files()[&ours]).unwrap();
    assert_eq!(copy["plugins"][0]["mtu"], 9000);
    assert_eq!(copy["plugins"][2]["type"], "podrail-cni");
    // Pods go on to start when we are gone.
    let left = node.installer.uninstall(Program::Remove).unwrap();
    assert_eq!(
        left,
        Left {
            copy_for_multus: Some(ours.clone()),
            program: false
        }
    );
    let copy: Value = serde_json::from_str(&node.files()[&ours]).unwrap();
    assert_eq!(copy["plugins"].as_array().unwrap().len(), 2);
    assert_eq!(node.installer.uninstall(Program::Remove).unwrap(), left);
    // And a new installation is as the first.
    node.chain();
    assert!(node.files()[&ours].contains("podrail-cni"));
}

#[test]
fn multus_that_swallowed_our_copy_calls_us_once() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.chain();
    let copy = node.files()["00-podrail.conflist"].clone();
    let multus = format!(
        r#"{{"cniVersion": "0.3.1", "name": "m", "type": "multus", "delegates": [{copy}]}}"#
    );
    node.put("00-multus.conf", &multus);
    let standing = node.chain();
    assert!(
        matches!(standing, Standing::BelowMultus { .. }),
        "{standing}"
    );
    assert_eq!(node.loaded().unwrap().0, "00-multus.conf");
    let left = node.installer.uninstall(Program::Remove).unwrap();
    assert_eq!(
        left,
        Left {
            copy_for_multus: None,
            program: true
        }
    );
    assert!(!node.files().contains_key("00-podrail.conflist"));
}

#[test]
fn multus_with_nothing_below_it_is_waited_for() {
    let ours = THICK.replace("10-calico.conflist", "00-podrail.conflist");
    let node = Node::new(&[("00-multus.conf", &ours)]);
    assert_eq!(node.chain(), Standing::Waiting(Why::NoConfiguration));
    node.put("10-multus.conf", THICK);
    assert!(!node.chain().is_installed());
}
