//! Annotations as people write them: the post's, odd ones, wrong ones, and any text at all.

use super::*;
use crate::binding::tests::nodes;
use crate::config::Config;
use proptest::prelude::*;
use serde_json::json;
use std::error::Error as _;

fn networks() -> Vec<RailNetwork> {
    let document = json!({ "networks": [
        { "name": "rdma-ipvlan-{rail}", "namespace": "default" },
        { "name": "storage", "rail": 3 },
        { "name": "backup", "netdev": "rdma7" },
        { "name": "gone", "netdev": "eth9" },
    ] });
    Config::from_document(document).unwrap().networks
}

fn wanted(text: &str) -> Result<Wanted, NetworksError> {
    let topology = nodes::live(nodes::b4_8());
    Wanted::of(&parse(text)?, "default", &networks(), &topology)
}

/// `0:net1 5:net2`, or the error with its causes.
fn rails(text: &str) -> String {
    match wanted(text) {
        Ok(wanted) => {
            let rails = wanted.rails.iter();
            let texts: Vec<String> = rails
                .map(|wanted| format!("{}:{}", wanted.rail, wanted.interface))
                .collect();
            texts.join(" ")
        }
        Err(error) => {
            assert!(!error.hint().is_empty());
            let cause = error.source().map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
    }
}

#[test]
fn the_posts_annotation_names_all_rails_in_order() {
    let names: Vec<String> = (0..16).map(|rail| format!("rdma-ipvlan-{rail}")).collect();
    let wanted = wanted(&names.join(",")).unwrap();
    for (place, rail) in wanted.rails.iter().enumerate() {
        assert_eq!(usize::from(rail.rail.0), place);
        assert_eq!(rail.interface, rail.rail.default_interface());
    }
    assert_eq!((wanted.rails.len(), wanted.taken.len()), (16, 0));
}

#[test]
fn both_grammars() {
    for (text, expected) in [
        ("", ""),
        (" \n", ""),
        ("[]", ""),
        ("macvlan", ""),
        ("rdma-ipvlan-5", "5:net1"),
        (
            " default/rdma-ipvlan-5 , rdma-ipvlan-4@rail4\n",
            "5:net1 4:rail4",
        ),
        (
            "macvlan,rdma-ipvlan-5,other/x@net9,storage",
            "5:net2 3:net4",
        ),
        ("other/rdma-ipvlan-5,other/storage", "3:net2"),
        ("backup", "7:net1"),
        (r#"[{"name":"rdma-ipvlan-5"}]"#, "5:net1"),
        (
            r#"[{"name":"x","mac":"02:00:00:00:00:01"},
                {"name":"rdma-ipvlan-2","namespace":"default","interface":"ib2"},
                {"Name":"storage","Interface":"","ips":[],"mac":"","cni-args":null}]"#,
            "2:ib2 3:net3",
        ),
        (r#"[{"name":"storage","interfaceRequest":"old"}]"#, "3:old"),
        (r#"[{"name":"storage","namespace":""}]"#, "3:net1"),
    ] {
        assert_eq!(rails(text), expected, "{text}");
    }
}

#[test]
fn interfaces_of_other_networks_are_known() {
    let wanted = wanted("macvlan,rdma-ipvlan-5,other/x@ext0,bad@a:b").unwrap();
    let taken: Vec<&str> = wanted.taken.iter().map(IfName::as_str).collect();
    assert_eq!(taken, ["ext0", "net1"]);
}

#[test]
fn texts_that_neither_grammar_takes() {
    for (text, expected) in [
        ("a,,b", "element 2 cannot be read: it is empty"),
        ("a,", "element 2 cannot be read: it is empty"),
        (
            "a/b/c",
            "element 1 (a/b/c) cannot be read: expected [namespace/]name[@interface]",
        ),
        ("a@b@c", "element 1 (a@b@c) cannot be read"),
        ("a@", "element 1 (a@) cannot be read"),
        ("/a", "element 1 (/a) cannot be read"),
        ("@x", "element 1 (@x) cannot be read"),
        (
            "[",
            "the annotation is neither a comma list of networks nor a JSON list of objects: EOF",
        ),
        (r#"{"name":"a"}"#, "the annotation is neither"),
        (r#"["a"]"#, "element 1 cannot be read: it is not an object"),
        (
            r#"[{"name":"a"},{}]"#,
            "element 2 cannot be read: it has no name",
        ),
        (
            r#"[{"name":7}]"#,
            "element 1 cannot be read: field name is no text",
        ),
        (
            r#"[{"name":"a","interface":["x"]}]"#,
            "element 1 (a) cannot be read: field interface is no text",
        ),
        (
            r#"[{"name":"a","NAME":"b"}]"#,
            "element 1 cannot be read: field name is given twice",
        ),
    ] {
        let found = rails(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
}

#[test]
fn what_a_rail_network_cannot_do() {
    for (text, expected) in [
        (
            "rdma-ipvlan-1,rdma-ipvlan-1@x",
            "element 1 (rdma-ipvlan-1) and element 2 (rdma-ipvlan-1) are both rail 1",
        ),
        (
            "storage,rdma-ipvlan-3",
            "element 1 (storage) and element 2 (rdma-ipvlan-3) are both rail 3",
        ),
        (
            "storage@net2,rdma-ipvlan-1",
            "element 1 (storage) and element 2 (rdma-ipvlan-1) would both be interface net2",
        ),
        (
            "storage@net2,macvlan",
            "element 1 (storage) and element 2 (macvlan) would both be interface net2",
        ),
        (
            "macvlan@net2,storage",
            "element 1 (macvlan) and element 2 (storage) would both be interface net2",
        ),
        (
            "rdma-ipvlan-16",
            "element 1 (rdma-ipvlan-16): the node has no rail 16 (it has 16 rails)",
        ),
        (
            "gone",
            "element 1 (gone): the node has no rail eth9 (it has 16 rails)",
        ),
        (
            "storage@eth0",
            "element 1 (storage): field interface: every pod has an interface eth0 already",
        ),
        (
            "storage@far-too-long-a-name",
            "element 1 (storage): field interface: interface name \"far-too-long-a-name\" is not valid",
        ),
    ] {
        let found = rails(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    for field in [
        r#""ips":["10.0.0.1"]"#,
        r#""mac":"02:00:00:00:00:01""#,
        r#""infiniband-guid":"00:00""#,
        r#""portMappings":[{}]"#,
        r#""bandwidth":{"ingressRate":1}"#,
        r#""default-route":["10.0.0.1"]"#,
        r#""cni-args":{"a":1}"#,
        r#""deviceID":"0000:0c:00.0""#,
        r#""new":false"#,
    ] {
        let found = rails(&format!(
            r#"[{{"name":"x",{field}}},{{"name":"storage",{field}}}]"#
        ));
        let name = field.split('"').nth(1).unwrap();
        let expected = format!("element 2 (storage): field {name} asks for what");
        assert!(found.starts_with(&expected), "{field}: {found}");
    }
    // Two others with one interface are theirs to sort out.
    assert_eq!(rails("x@a,y@a,storage"), "3:net3");
}

#[test]
fn sizes_are_bounded() {
    let many = vec!["a"; MOST_ELEMENTS + 1].join(",");
    assert_eq!(
        rails(&many),
        "the annotation is too large: at most 1024 elements"
    );
    let many = format!("[{}]", vec![r#"{"name":"a"}"#; MOST_ELEMENTS + 1].join(","));
    assert_eq!(
        rails(&many),
        "the annotation is too large: at most 1024 elements"
    );
    let long = "a".repeat(MOST_BYTES + 1);
    assert_eq!(
        rails(&long),
        "the annotation is too large: at most 262144 bytes"
    );
    assert!(rails(&"[".repeat(MOST_BYTES)).starts_with("the annotation is neither"));
    for name in ["x%d", "all", "default"] {
        let said = rails(&format!("rdma-ipvlan-9@{name}"));
        assert!(said.contains("is no plain name to the kernel"), "{said}");
    }
    assert!(rails(&format!("{}//", "\u{7}".repeat(1000))).len() < 200);
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "rdma-ipvlan-[0-9]{1,3}",
        "storage|backup|gone|default/|@net[0-9]|,|@|/| ",
        r#"\[|\]|\{|\}|"name":|"interface":|"storage"|"#,
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(pieces in prop::collection::vec(piece(), 0..20)) {
        if let Ok(wanted) = wanted(&pieces.concat()) {
            let interfaces: BTreeSet<&IfName> = wanted.rails.iter().map(|r| &r.interface).collect();
            prop_assert_eq!(interfaces.len(), wanted.rails.len());
            prop_assert_eq!(wanted.named().len(), wanted.rails.len());
            prop_assert!(interfaces.iter().all(|name| !wanted.taken.contains(name)));
        }
    }

    #[test]
    fn the_two_grammars_agree(list in prop::collection::vec((0..20u16, prop::option::of("[a-z]{1,3}")), 1..6)) {
        let short = |(rail, interface): &(u16, Option<String>)| match interface {
            Some(interface) => format!("rdma-ipvlan-{rail}@{interface}"),
            None => format!("rdma-ipvlan-{rail}"),
        };
        let long = |(rail, interface): &(u16, Option<String>)| {
            json!({ "name": format!("rdma-ipvlan-{rail}"), "interface": interface })
        };
        let comma: Vec<String> = list.iter().map(short).collect();
        let list: Vec<_> = list.iter().map(long).collect();
        prop_assert_eq!(rails(&comma.join(",")), rails(&serde_json::to_string(&list).unwrap()));
    }
}
