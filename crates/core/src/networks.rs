//! The pod annotation `k8s.v1.cni.cncf.io/networks`: which rails a pod names, and their interfaces.
//!
//! Both grammars of the multi-network specification are read as Multus reads them: a comma list of
//! `[namespace/]name[@interface]`, or a JSON list of objects if the text has a `[`, `{` or `"`.

use crate::config::{RailNetwork, RailRef};
use crate::ids::{BadId, IfName, RailIndex};
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

mod error;
mod json;

pub use error::NetworksError;

/// Key of the annotation.
pub const ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";

/// The API server takes no more for all annotations of an object together
/// (`TotalAnnotationSizeLimitB`).
const MOST_BYTES: usize = 256 * 1024;

/// More networks than any pod can have interfaces; bounds the work.
const MOST_ELEMENTS: usize = 1024;

/// Interfaces that every pod has already.
const OF_THE_POD: [&str; 2] = ["lo", "eth0"];

/// One element of the annotation, unchecked: it may be another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Place in the list, from 1: Multus calls its interface `net<position>`.
    pub position: usize,
    /// Namespace of the network; absent: the pod's.
    pub namespace: Option<String>,
    /// Name of the network.
    pub name: String,
    /// Interface asked for.
    pub interface: Option<String>,
    /// Other fields that ask for something.
    pub other_fields: Vec<String>,
}

/// `element 3 (default/rdma-ipvlan-7)`, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    position: usize,
    name: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {}", self.position)?;
        if !self.name.is_empty() {
            write!(f, " ({})", self.name)?;
        }
        Ok(())
    }
}

/// Reads the text of an annotation; an empty one has no elements.
///
/// # Errors
/// A text that neither grammar takes, or beyond the limits. Whether a rail is concerned cannot be
/// told then.
pub fn parse(text: &str) -> Result<Vec<Element>, NetworksError> {
    if text.len() > MOST_BYTES {
        let what = "bytes";
        return Err(NetworksError::TooLarge {
            most: MOST_BYTES,
            what,
        });
    }
    if text.contains(['[', '{', '"']) {
        return json::parse(text);
    }
    if text.trim().is_empty() {
        return Ok(vec![]);
    }
    let elements = text.split(',').zip(1..).map(|(item, position)| {
        check_count(position)?;
        short_form(position, item.trim())
    });
    elements.collect()
}

fn check_count(count: usize) -> Result<(), NetworksError> {
    if count > MOST_ELEMENTS {
        let what = "elements";
        return Err(NetworksError::TooLarge {
            most: MOST_ELEMENTS,
            what,
        });
    }
    Ok(())
}

/// `[namespace/]name[@interface]`.
fn short_form(position: usize, item: &str) -> Result<Element, NetworksError> {
    let unreadable = |reason: &str| NetworksError::Unreadable {
        place: place(position, item),
        reason: reason.to_owned(),
    };
    if item.is_empty() {
        return Err(unreadable("it is empty"));
    }
    let (network, interface) = match item.split_once('@') {
        Some((network, interface)) => (network, Some(interface.trim())),
        None => (item, None),
    };
    let (namespace, name) = match network.split_once('/') {
        Some((namespace, name)) => (Some(namespace.trim()), name.trim()),
        None => (None, network.trim()),
    };
    let texts = [namespace, Some(name), interface];
    let bad = |text: &str| text.is_empty() || text.contains(['/', '@']);
    if texts.into_iter().flatten().any(bad) {
        return Err(unreadable("expected [namespace/]name[@interface]"));
    }
    Ok(Element {
        position,
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        interface: interface.map(str::to_owned),
        other_fields: vec![],
    })
}

/// Texts of an annotation are anybody's: cut, and without control characters.
fn place(position: usize, name: &str) -> Place {
    Place {
        position,
        name: shown(name),
    }
}

fn shown(text: &str) -> String {
    let printable = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(80).map(printable).collect()
}

/// What a pod's annotation asks of the rails. Empty if it says nothing about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The rails in the order of the annotation, each once.
    pub rails: Vec<WantedRail>,
    /// Interfaces of the annotation's other networks, which rails must not take.
    pub taken: BTreeSet<IfName>,
}

/// A rail that an annotation names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedRail {
    /// The rail.
    pub rail: RailIndex,
    /// What its interface is called if the pod gets it.
    pub interface: IfName,
}

impl Wanted {
    /// Picks the rails among the elements; other networks are left to whoever serves them.
    ///
    /// # Errors
    /// Anything about a rail that cannot be done as written. Nothing about other networks.
    pub fn of(
        elements: &[Element],
        pod_namespace: &str,
        networks: &[RailNetwork],
        topology: &Topology,
    ) -> Result<Self, NetworksError> {
        let mut wanted = Self::default();
        let mut rails: BTreeMap<RailIndex, Place> = BTreeMap::new();
        for element in elements {
            let Some(named) = element.rail(pod_namespace, networks) else {
                wanted.taken.extend(element.interface().ok());
                continue;
            };
            let rail = element.check(&named, topology)?;
            let interface = element.checked_interface()?;
            if let Some(first) = rails.insert(rail, element.place()) {
                let second = element.place();
                return Err(NetworksError::RailTwice {
                    first,
                    second,
                    rail,
                });
            }
            wanted.rails.push(WantedRail { rail, interface });
        }
        wanted.refuse_same_interfaces(elements)?;
        Ok(wanted)
    }

    /// The rails that are named.
    #[must_use]
    pub fn named(&self) -> BTreeSet<RailIndex> {
        self.rails.iter().map(|wanted| wanted.rail).collect()
    }

    /// Two elements with one interface, if a rail is one of them.
    fn refuse_same_interfaces(&self, elements: &[Element]) -> Result<(), NetworksError> {
        let mut seen: BTreeMap<IfName, &Element> = BTreeMap::new();
        let ours = |name: &IfName| self.rails.iter().any(|rail| rail.interface == *name);
        for element in elements {
            let Ok(name) = element.interface() else {
                continue;
            };
            let concerned = ours(&name);
            match seen.insert(name.clone(), element) {
                Some(first) if concerned => {
                    return Err(NetworksError::InterfaceTwice {
                        first: first.place(),
                        second: element.place(),
                        interface: name.to_string(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Element {
    fn place(&self) -> Place {
        match &self.namespace {
            Some(namespace) => place(self.position, &format!("{namespace}/{}", self.name)),
            None => place(self.position, &self.name),
        }
    }

    fn rail(&self, pod_namespace: &str, networks: &[RailNetwork]) -> Option<RailRef> {
        let namespace = self.namespace.as_deref().unwrap_or(pod_namespace);
        networks
            .iter()
            .find_map(|network| network.rail(namespace, &self.name))
    }

    /// The interface asked for, or the one that Multus would give.
    fn interface(&self) -> Result<IfName, BadId> {
        match &self.interface {
            Some(asked) => IfName::parse(asked),
            None => IfName::parse(&format!("net{}", self.position)),
        }
    }

    fn checked_interface(&self) -> Result<IfName, NetworksError> {
        let place = self.place();
        match self.interface() {
            Err(source) => Err(NetworksError::Interface { place, source }),
            Ok(interface) if OF_THE_POD.contains(&interface.as_str()) => {
                Err(NetworksError::OfThePod { place, interface })
            }
            // `x%d` becomes x0, and /proc/sys/net/ipv6/conf has `all` and `default`.
            Ok(interface)
                if interface.as_str().contains('%')
                    || ["all", "default"].contains(&interface.as_str()) =>
            {
                Err(NetworksError::NotPlain { place, interface })
            }
            Ok(interface) => Ok(interface),
        }
    }

    /// The rail of the node, if nothing is asked that it does not give.
    fn check(&self, named: &RailRef, topology: &Topology) -> Result<RailIndex, NetworksError> {
        let place = || self.place();
        if let Some(field) = self.other_fields.first() {
            let field = shown(field);
            return Err(NetworksError::NotGiven {
                place: place(),
                field,
            });
        }
        let mut rails = topology.rails.iter();
        let found = rails.find(|rail| match named {
            RailRef::Index(index) => rail.index == *index,
            RailRef::Netdev(netdev) => rail.netdev.as_ref() == Some(netdev),
        });
        found
            .map(|rail| rail.index)
            .ok_or_else(|| NetworksError::NoSuchRail {
                place: place(),
                rail: named.clone(),
                on_node: topology.rails.len(),
            })
    }
}

#[cfg(test)]
mod tests;
