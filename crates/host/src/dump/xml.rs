//! XML with bounds: no entities, no endless nesting, no endless number of elements.

mod tags;

use crate::HostError;
use roxmltree::{Document, Node, ParsingOptions};
use std::path::Path;

/// Deepest nesting; real dumps have about 15.
const DEPTH_LIMIT: usize = 64;
/// Most attributes of one element; real dumps have about 15. The parser compares each with all
/// before it, and keeps all namespaces in sight once more for each element that has its own.
const ATTRIBUTE_LIMIT: usize = 256;
/// Most nodes of a document.
const NODE_LIMIT: u32 = 1_000_000;

/// Parses a document. hwloc writes `<!DOCTYPE topology SYSTEM "hwloc2.dtd">`, so a DOCTYPE is
/// taken, but none with definitions inside (`[...]`): those are what entity bombs are made of. The
/// file that it names is never read.
pub(super) fn parse<'a>(origin: &Path, text: &'a str) -> Result<Document<'a>, HostError> {
    // The DOCTYPE's end is guessed (a `>` may be quoted, a comment may hold another DOCTYPE); an
    // entity has no other spelling.
    let bracket = doctype(text).is_some_and(|doctype| doctype.contains('['));
    if bracket || text.contains("<!ENTITY") {
        let path = origin.to_owned();
        return Err(HostError::Entities { path });
    }
    let unusual = text.contains("xmlns") || tags::most_attributes(text) > ATTRIBUTE_LIMIT;
    if unusual {
        return Err(HostError::Attributes {
            path: origin.to_owned(),
            limit: ATTRIBUTE_LIMIT,
        });
    }
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: NODE_LIMIT,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|error| HostError::Xml {
        path: origin.to_owned(),
        source: error.into(),
    })?;
    if is_deeper(&document, DEPTH_LIMIT) {
        return Err(HostError::TooDeep {
            path: origin.to_owned(),
            limit: DEPTH_LIMIT,
        });
    }
    Ok(document)
}

/// The DOCTYPE line: everything up to the first `>`, and so with the `[` if it has one. Comments
/// before it may look like one; refusing such a file is no loss.
fn doctype(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<!DOCTYPE")?;
    Some(rest.split_once('>').map_or(rest, |(inside, _)| inside))
}

/// Without recursion, since the depth is what is in doubt.
fn is_deeper(document: &Document<'_>, limit: usize) -> bool {
    let mut level: Vec<Node<'_, '_>> = vec![document.root_element()];
    for _ in 0..limit {
        level = level
            .iter()
            .flat_map(Node::children)
            .filter(Node::is_element)
            .collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

/// Child elements of a kind.
pub(super) fn elements<'a, 'i: 'a>(
    node: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children()
        .filter(move |child| child.has_tag_name(name))
}

/// An attribute as a number.
pub(super) fn number<T: std::str::FromStr>(node: Node<'_, '_>, name: &str) -> Option<T> {
    node.attribute(name)?.trim().parse().ok()
}
