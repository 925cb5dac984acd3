//! The pod's annotation that names networks, in both grammars.

use crate::told::told;
use podrail_core::config::Config;
use podrail_core::networks::{self, Element, Wanted};
use podrail_core::topology::Topology;
use podrail_host::Selectors;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

/// Elements above which an annotation is refused.
const MOST: usize = 1024;

/// A node with rails, and names for them.
static NODE: LazyLock<(Config, Topology)> = LazyLock::new(|| {
    let document = json!({ "networks": [
        { "name": "rdma-ipvlan-{rail}", "namespace": "default" },
        { "name": "storage", "rail": 3 },
        { "name": "gone", "netdev": "eth9" },
    ] });
    let config = Config::from_document(document).expect("the names are clear");
    let text = include_str!("../../../fixtures/nccl-topo/BM.GPU4.8.xml");
    let dump = podrail_host::dump::parse(Path::new("x"), text, &Selectors::default());
    (config, dump.expect("the dump is good").topology)
});

/// One annotation, for a pod of namespace `default`.
pub(crate) fn annotation(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let elements = match networks::parse(text) {
        Ok(elements) => elements,
        Err(error) => return told(&error, Some(error.hint()), &["element", "the annotation"]),
    };
    assert!(elements.len() <= MOST);
    again(&elements);
    let (config, topology) = &*NODE;
    match Wanted::of(&elements, "default", &config.networks, topology) {
        Ok(wanted) => consistent(&wanted, topology),
        Err(error) => told(&error, Some(error.hint()), &["element"]),
    }
}

fn consistent(wanted: &Wanted, topology: &Topology) {
    let interfaces: BTreeSet<_> = wanted.rails.iter().map(|rail| &rail.interface).collect();
    assert_eq!(interfaces.len(), wanted.rails.len());
    assert_eq!(wanted.named().len(), wanted.rails.len());
    assert!(wanted.rails.len() <= topology.rails.len());
    assert!(interfaces.is_disjoint(&wanted.taken.iter().collect()));
}

/// The elements as a JSON list read as the same elements.
fn again(elements: &[Element]) {
    let list: Vec<Value> = elements.iter().map(object).collect();
    let text = Value::from(list).to_string();
    match networks::parse(&text) {
        Ok(second) => assert_eq!(second, elements),
        // A comma list may become too large as JSON.
        Err(error) => assert!(error.to_string().contains("too large"), "{error}"),
    }
}

fn object(element: &Element) -> Value {
    let other = |field: &String| (field.clone(), Value::from(1));
    let mut fields: Map<String, Value> = element.other_fields.iter().map(other).collect();
    fields.insert("name".into(), json!(element.name));
    fields.insert("namespace".into(), json!(element.namespace));
    fields.insert("interface".into(), json!(element.interface));
    Value::from(fields)
}
