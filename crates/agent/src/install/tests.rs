//! On directories of their own, judged by the rule by which runtimes load.

mod files;
mod multus;

use super::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const CALICO: &str = r#"{
  "name": "k8s-pod-network", "cniVersion": "0.3.1", "disableCheck": true,
  "plugins": [
    {"type": "calico", "mtu": 1500, "big": 12345678901234567890123, "nodename": "n\u0031"},
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
  ]
}"#;
const BRIDGE: &str =
    r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge", "isGateway": true}"#;

/// A node's directories, with the plugin's program.
struct Node {
    _dir: TempDir,
    installer: Installer,
}

impl Node {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("bin")).unwrap();
        fs::create_dir(path("net.d")).unwrap();
        fs::write(path("podrail-cni"), "program 1").unwrap();
        let node = Self {
            installer: Installer {
                source: path("podrail-cni"),
                bin_dir: path("bin"),
                conf_dir: path("net.d"),
                places: Places::default(),
            },
            _dir: dir,
        };
        files.iter().for_each(|(name, text)| node.put(name, text));
        node
    }

    fn conf(&self, name: &str) -> PathBuf {
        self.installer.conf_dir.join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.conf(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.conf(name)).unwrap();
    }

    fn chain(&self) -> Standing {
        let done = self.installer.chain().unwrap();
        let again = self.installer.chain().unwrap();
        assert_eq!(again.steps, [], "the second time");
        assert_eq!(again.standing, done.standing);
        done.standing
    }

    fn files(&self) -> BTreeMap<String, String> {
        contents(&self.installer.conf_dir)
    }

    /// What a runtime loads: the first file by name.
    fn loaded(&self) -> Option<(String, Value)> {
        let first = self.files().into_iter().find(|(name, _)| {
            [".conf", ".conflist", ".json"]
                .iter()
                .any(|extension| name.ends_with(extension))
        });
        first.map(|(name, text)| (name, serde_json::from_str(&text).unwrap()))
    }

    fn loaded_types(&self) -> Vec<String> {
        let (_, list) = self.loaded().unwrap();
        let plugins = list["plugins"].as_array().unwrap();
        let kind = |plugin: &Value| plugin["type"].as_str().unwrap().to_owned();
        plugins.iter().map(kind).collect()
    }
}

fn contents(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| !entry.path().is_dir());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap_or_default())
        })
        .collect()
}

fn chained(standing: &Standing) -> (&str, &str) {
    match standing {
        Standing::Chained { file, original } => (file, original),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_is_copied_with_our_entry_at_its_end() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    let standing = node.chain();
    assert_eq!(
        chained(&standing),
        ("00-podrail.conflist", "10-calico.conflist")
    );
    let (_, copy) = node.loaded().unwrap();
    let mut expected: Value = serde_json::from_str(CALICO).unwrap();
    expected["podrail.io/copy-of"] = "10-calico.conflist".into();
    let ours = serde_json::json!({
        "type": "podrail-cni",
        "capabilities": {"io.kubernetes.cri.pod-annotations": true},
    });
    expected["plugins"].as_array_mut().unwrap().push(ours);
    assert_eq!(copy, expected);
    // Numbers and escapes come through as they were written.
    let text = &node.files()["00-podrail.conflist"];
    assert!(text.contains("12345678901234567890123"), "{text}");
    assert!(text.contains(r#""n\u0031""#), "{text}");
    assert_eq!(node.files()["10-calico.conflist"], CALICO);
}

#[test]
fn a_single_plugin_becomes_a_list() {
    for name in ["20-bridge.conf", "20-bridge.json"] {
        let node = Node::new(&[(name, BRIDGE)]);
        assert_eq!(chained(&node.chain()).1, name);
        let (_, copy) = node.loaded().unwrap();
        assert_eq!(copy["name"], "net");
        assert_eq!(copy["cniVersion"], "1.0.0");
        assert_eq!(copy["isGateway"], Value::Null);
        let bridge: Value = serde_json::from_str(BRIDGE).unwrap();
        assert_eq!(copy["plugins"][0], bridge);
        assert_eq!(node.loaded_types(), ["bridge", "podrail-cni"]);
    }
}

#[test]
fn ours_always_sorts_before_the_original() {
    for (original, ours) in [
        ("05-cilium.conflist", "00-podrail.conflist"),
        ("99-loopback.conflist", "00-podrail.conflist"),
        ("cbr0.conflist", "00-podrail.conflist"),
        ("00-podrail.conf", "00--podrail.conflist"),
        ("00-calico.conflist", "00--podrail.conflist"),
        ("00.conflist", "00-podrail.conflist"),
        ("00--a.conflist", "0-podrail.conflist"),
        ("-a.conflist", "+podrail.conflist"),
        (".hidden.conflist", "+podrail.conflist"),
    ] {
        let single = original.ends_with(".conf");
        let node = Node::new(&[(original, if single { BRIDGE } else { CALICO })]);
        let standing = node.chain();
        assert_eq!(chained(&standing), (ours, original));
        assert_eq!(node.loaded().unwrap().0, ours);
    }
    let node = Node::new(&[("!a.conflist", CALICO)]);
    let standing = node.chain();
    assert!(matches!(
        standing,
        Standing::Waiting(Why::SortsFirst { .. })
    ));
    assert_eq!(node.files().len(), 1);
}

#[test]
fn ours_follows_the_first_configuration() {
    let node = Node::new(&[("10-calico.conflist", CALICO), ("zz.txt", "x")]);
    node.chain();
    node.put("10-calico.conflist", &CALICO.replace("1500", "9000"));
    node.chain();
    assert_eq!(node.loaded().unwrap().1["plugins"][0]["mtu"], 9000);
    node.put("00-first.conf", BRIDGE);
    assert_eq!(
        chained(&node.chain()),
        ("00--podrail.conflist", "00-first.conf")
    );
    assert_eq!(node.loaded_types(), ["bridge", "podrail-cni"]);
    assert!(!node.files().contains_key("00-podrail.conflist"), "stale");
    node.remove("00-first.conf");
    assert_eq!(
        chained(&node.chain()),
        ("00-podrail.conflist", "10-calico.conflist")
    );
    node.remove("10-calico.conflist");
    assert_eq!(node.chain(), Standing::Waiting(Why::NoConfiguration));
    assert_eq!(node.loaded(), None, "not ready, as without us");
    assert_eq!(node.files().keys().collect::<Vec<_>>(), ["zz.txt"]);
}

#[test]
fn a_broken_configuration_is_told_and_a_copy_stays() {
    let many = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for (broken, word) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "JSON object"),
        (
            r#"{"name": "a", "cniVersion": "1.0.0", "plugins": []}"#,
            "no plugins",
        ),
        (r#"{"name": "a", "cniVersion": "1.0.0"}"#, "no plugins"),
        (
            r#"{"name": "a", "cniVersion": "1.0.0", "plugins": 7}"#,
            "plugins",
        ),
        (
            r#"{"name": "a", "cniVersion": "1.0.0", "plugins": [{}]}"#,
            "no type",
        ),
        (
            r#"{"name": "a", "cniVersion": "1.0.0", "plugins": [7]}"#,
            "plugin 0",
        ),
        (
            r#"{"cniVersion": "1.0.0", "plugins": [{"type": "a"}]}"#,
            "no name",
        ),
        (many.as_str(), "JSON"),
    ] {
        let node = Node::new(&[("20-later.conflist", CALICO)]);
        node.chain();
        let before = node.loaded();
        node.put("10-broken.conflist", broken);
        let standing = node.chain();
        let said = standing.to_string();
        assert!(standing.is_installed() && !standing.is_current(), "{said}");
        assert!(said.contains("10-broken.conflist"), "{said}");
        assert!(said.contains(word), "{said}");
        assert_eq!(node.loaded(), before);
        // On a node that never had a copy there is nothing to keep.
        let node = Node::new(&[("10-broken.conflist", broken), ("20-x.conflist", CALICO)]);
        let standing = node.chain();
        assert!(
            matches!(standing, Standing::Waiting(Why::Broken { .. })),
            "{standing}"
        );
        assert_eq!(node.files().len(), 2);
    }
}

#[test]
fn a_rewrite_in_place_does_not_make_the_node_not_ready() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.chain();
    for half in ["", &CALICO[..CALICO.len() / 2]] {
        node.put("10-calico.conflist", half);
        let standing = node.chain();
        assert!(matches!(standing, Standing::Kept { .. }), "{standing}");
        assert_eq!(node.loaded_types(), ["calico", "portmap", "podrail-cni"]);
    }
    node.put("10-calico.conflist", &CALICO.replace("1500", "9000"));
    chained(&node.chain());
    assert_eq!(node.loaded().unwrap().1["plugins"][0]["mtu"], 9000);
    // Broken and then gone is gone.
    node.put("10-calico.conflist", "");
    node.chain();
    node.remove("10-calico.conflist");
    assert_eq!(node.chain(), Standing::Waiting(Why::NoConfiguration));
    assert_eq!(node.files().len(), 0);
}

#[test]
fn a_copy_of_what_is_gone_does_not_hide_what_is_broken() {
    let node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.chain();
    node.put("20-other.conflist", "{");
    node.remove("10-calico.conflist");
    let standing = node.chain();
    assert!(
        matches!(standing, Standing::Waiting(Why::Broken { .. })),
        "{standing}"
    );
    assert_eq!(
        node.files().keys().collect::<Vec<_>>(),
        ["20-other.conflist"]
    );
}

#[test]
fn a_version_that_the_plugin_does_not_speak_ends_the_chain() {
    for (first, word) in [
        (
            r#"{"name": "a", "plugins": [{"type": "a"}]}"#,
            "no cniVersion",
        ),
        (
            r#"{"name": "a", "cniVersion": "0.2.0", "plugins": [{"type": "a"}]}"#,
            "0.2.0",
        ),
        (
            r#"{"name": "a", "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "9.0.0"], "plugins": [{"type": "a"}]}"#,
            "9.0.0",
        ),
    ] {
        let node = Node::new(&[("20-later.conflist", CALICO)]);
        node.chain();
        node.put("10-first.conflist", first);
        let standing = node.chain();
        let said = standing.to_string();
        assert!(
            matches!(standing, Standing::Waiting(Why::Unusable { .. })),
            "{said}"
        );
        assert!(said.contains("10-first.conflist"), "{said}");
        assert!(said.contains(word), "{said}");
        assert_eq!(node.files().len(), 2, "ours is gone: {said}");
    }
}

#[test]
fn a_chain_made_by_hand_is_left_alone() {
    let by_hand = CALICO.replace("portmap", "podrail-cni");
    let node = Node::new(&[("00-podrail.conflist", &by_hand)]);
    let file = "00-podrail.conflist".to_owned();
    assert_eq!(node.chain(), Standing::ByHand { file });
    assert_eq!(node.files()["00-podrail.conflist"], by_hand);
    let left = node.installer.uninstall(Program::Remove).unwrap();
    assert!(left.program, "the list by hand would fail without it");
    assert_eq!(node.files()["00-podrail.conflist"], by_hand);
}

#[test]
fn a_foreign_file_with_our_name_is_foreign() {
    let node = Node::new(&[("00-podrail.conflist", CALICO), ("10-x.conflist", CALICO)]);
    assert_eq!(
        chained(&node.chain()),
        ("00--podrail.conflist", "00-podrail.conflist")
    );
    node.installer.uninstall(Program::Remove).unwrap();
    assert_eq!(node.files().len(), 2);
}

#[test]
fn the_entry_has_what_differs_from_the_defaults() {
    let mut node = Node::new(&[("10-calico.conflist", CALICO)]);
    node.installer.places.cdi = "/etc/cdi".into();
    node.installer.places.state = "/srv/\"state\".db".into();
    node.chain();
    let (_, copy) = node.loaded().unwrap();
    let expected = serde_json::json!({
        "type": "podrail-cni",
        "capabilities": {"io.kubernetes.cri.pod-annotations": true},
        "state": "/srv/\"state\".db",
        "cdi": "/etc/cdi",
    });
    assert_eq!(copy["plugins"][2], expected);
}
