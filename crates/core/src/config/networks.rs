//! Names of networks that a pod's annotation may use for rails.

use super::doc::{FaultList, Section};
use crate::ids::{IfName, KubeName, RailIndex};
use serde::{Serialize, Serializer};
use serde_json::json;

/// More entries than any node has rails; each is compared with all before it.
const MOST_ENTRIES: usize = 1024;

/// Stands for the rail index in a name.
const PLACEHOLDER: &str = "{rail}";

/// One entry of `networks`: a name, or a row of numbered names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailNetwork {
    /// Namespace of the network; absent: any.
    pub namespace: Option<KubeName>,
    /// What it is called, and which rail that is.
    pub names: NetworkNames,
}

/// Names and their rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkNames {
    /// `<before><rail index><after>`: one name per rail, the index in decimal without zeros before.
    Numbered {
        /// Text before the index.
        before: String,
        /// Text after it.
        after: String,
    },
    /// A name of one rail.
    Single {
        /// The name.
        name: KubeName,
        /// Its rail.
        rail: RailRef,
    },
}

/// A rail as the configuration names it; the node may not have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailRef {
    /// By index.
    Index(RailIndex),
    /// By its interface on the host.
    Netdev(IfName),
}

impl std::fmt::Display for RailRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "rail {index}"),
            Self::Netdev(netdev) => write!(f, "rail {netdev}"),
        }
    }
}

impl RailNetwork {
    /// The rail that a network stands for; none if it is another's.
    #[must_use]
    pub fn rail(&self, namespace: &str, name: &str) -> Option<RailRef> {
        let here = self.namespace.as_ref();
        if here.is_some_and(|here| here.as_str() != namespace) {
            return None;
        }
        match &self.names {
            NetworkNames::Single { name: own, rail } => {
                (own.as_str() == name).then(|| rail.clone())
            }
            NetworkNames::Numbered { before, after } => {
                let number = name
                    .strip_prefix(before.as_str())?
                    .strip_suffix(after.as_str())?;
                let index: u16 = number.parse().ok()?;
                // "07" and "+7" parse too: a rail has one name.
                (index.to_string() == number).then_some(RailRef::Index(RailIndex(index)))
            }
        }
    }

    fn name(&self) -> String {
        match &self.names {
            NetworkNames::Single { name, .. } => name.to_string(),
            NetworkNames::Numbered { before, after } => format!("{before}{PLACEHOLDER}{after}"),
        }
    }

    /// Whether a network could belong to both.
    fn overlaps(&self, other: &Self) -> bool {
        let apart = match (&self.namespace, &other.namespace) {
            (Some(here), Some(there)) => here != there,
            _ => false,
        };
        !apart && self.names.overlap(&other.names)
    }
}

impl NetworkNames {
    fn overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Single { name, .. }, Self::Single { name: other, .. }) => name == other,
            (Self::Single { name, .. }, Self::Numbered { before, after })
            | (Self::Numbered { before, after }, Self::Single { name, .. }) => {
                let number = name.as_str().strip_prefix(before.as_str());
                let number = number.and_then(|rest| rest.strip_suffix(after.as_str()));
                number.is_some_and(|number| !number.is_empty() && is_digits(number))
            }
            (
                Self::Numbered { before, after },
                Self::Numbered {
                    before: other_before,
                    after: other_after,
                },
            ) => {
                // One may have digits beside its index that the other reads as part of the index.
                let rest = |short: &str, long: &str| long.strip_prefix(short).map(str::to_owned);
                let first = rest(before, other_before).or_else(|| rest(other_before, before));
                let rest = |short: &str, long: &str| long.strip_suffix(short).map(str::to_owned);
                let last = rest(after, other_after).or_else(|| rest(other_after, after));
                first.is_some_and(|text| is_digits(&text))
                    && last.is_some_and(|text| is_digits(&text))
            }
        }
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// As the document has it.
impl Serialize for RailNetwork {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut rail, mut netdev) = (None, None);
        if let NetworkNames::Single { rail: named, .. } = &self.names {
            match named {
                RailRef::Index(index) => rail = Some(index),
                RailRef::Netdev(name) => netdev = Some(name),
            }
        }
        let entry = json!({
            "name": self.name(), "namespace": self.namespace, "rail": rail, "netdev": netdev,
        });
        entry.serialize(serializer)
    }
}

/// Reads the list; entries that could mean the same network are faults.
pub(super) fn read(sections: Vec<Section<'_>>, faults: &FaultList) -> Vec<RailNetwork> {
    let mut networks: Vec<(usize, RailNetwork)> = vec![];
    if sections.len() > MOST_ENTRIES {
        let text = format!("has {} entries, at most {MOST_ENTRIES}", sections.len());
        faults.add("networks", text);
        return vec![];
    }
    for (at, section) in sections.into_iter().enumerate() {
        let Some(network) = read_one(section) else {
            continue;
        };
        let earlier = networks.iter().find(|(_, other)| other.overlaps(&network));
        if let Some((first, other)) = earlier {
            let text = format!(
                "could be meant by networks[{first}] ({}) as well",
                other.name()
            );
            faults.add(&format!("networks[{at}].name"), text);
        }
        networks.push((at, network));
    }
    networks.into_iter().map(|(_, network)| network).collect()
}

fn read_one(mut section: Section<'_>) -> Option<RailNetwork> {
    let name: Option<String> = section.required("name");
    let namespace = section.parsed("namespace");
    let given = section.has("rail") || section.has("netdev");
    let index = section.number("rail", 0..=u32::from(u16::MAX));
    let index = index.and_then(|index| u16::try_from(index).ok());
    let netdev: Option<IfName> = section.parsed("netdev");
    let rails: Vec<RailRef> = index
        .map(|index| RailRef::Index(RailIndex(index)))
        .into_iter()
        .chain(netdev.map(RailRef::Netdev))
        .collect();
    let names = name.and_then(|name| {
        // What was given and is no rail has its own fault already.
        if given && rails.is_empty() && !name.contains(PLACEHOLDER) {
            return None;
        }
        names(&name, rails)
            .map_err(|(field, text)| section.fault(field, &text))
            .ok()
    });
    section.finish();
    Some(RailNetwork {
        namespace,
        names: names?,
    })
}

/// The names of an entry, or the field that is wrong and why.
fn names(name: &str, rails: Vec<RailRef>) -> Result<NetworkNames, (&'static str, String)> {
    let bad_name = |error: crate::ids::BadId| ("name", error.to_string());
    let mut rails = rails.into_iter();
    let (rail, second) = (rails.next(), rails.next());
    if let Some((before, after)) = name.split_once(PLACEHOLDER) {
        if after.contains(PLACEHOLDER) {
            return Err(("name", format!("{PLACEHOLDER} may stand only once")));
        }
        KubeName::parse(&format!("{before}0{after}")).map_err(bad_name)?;
        if rail.is_some() {
            let text =
                format!("{PLACEHOLDER} already says which rail: leave out 'rail' and 'netdev'");
            return Err(("name", text));
        }
        let (before, after) = (before.to_owned(), after.to_owned());
        return Ok(NetworkNames::Numbered { before, after });
    }
    let name = KubeName::parse(name).map_err(bad_name)?;
    match (rail, second) {
        (Some(rail), None) => Ok(NetworkNames::Single { name, rail }),
        (None, _) => {
            let text = format!("which rail? give 'rail', 'netdev' or a name with {PLACEHOLDER}");
            Err(("name", text))
        }
        (Some(_), Some(_)) => Err(("netdev", "give 'rail' or 'netdev', not both".into())),
    }
}
