//! Interface names of a pod's rails.

use crate::ids::{IfName, RailIndex};
use crate::networks::Wanted;
use std::collections::{BTreeMap, BTreeSet};

/// A name for each rail: the annotation's; else `net<rail+1>`; if another network or a named rail
/// has that, the next `net<N>` that nobody has.
pub(super) fn names(rails: &BTreeSet<RailIndex>, wanted: &Wanted) -> BTreeMap<RailIndex, IfName> {
    let asked = wanted.rails.iter().filter(|w| rails.contains(&w.rail));
    let mut names: BTreeMap<RailIndex, IfName> = asked
        .map(|wanted| (wanted.rail, wanted.interface.clone()))
        .collect();
    let mut taken: BTreeSet<IfName> = names.values().chain(&wanted.taken).cloned().collect();
    let mut pushed_out = vec![];
    for rail in rails {
        if names.contains_key(rail) {
            continue;
        }
        let name = rail.default_interface();
        if taken.insert(name.clone()) {
            names.insert(*rail, name);
        } else {
            pushed_out.push(*rail);
        }
    }
    for rail in pushed_out {
        let name = next_free(rail, &taken);
        taken.insert(name.clone());
        names.insert(rail, name);
    }
    names
}

fn next_free(rail: RailIndex, taken: &BTreeSet<IfName>) -> IfName {
    let numbers = u32::from(rail.0) + 1..=u32::MAX;
    let mut names = numbers.filter_map(|number| IfName::parse(&format!("net{number}")).ok());
    let free = names.find(|name| !taken.contains(name));
    free.unwrap_or_else(|| rail.default_interface())
}
