//! The picture in words, for people who do not see it.

use crate::view::outline::outline;
use crate::view::text::{clean, count, ranges};
use crate::view::words::fault_words;
use crate::view::{Holder, held};
use podrail_core::topology::{Excluded, LinkState, Rail, Topology};

/// Sentences: what the node has, who holds what, what is wrong, what is no rail.
pub(super) fn describe(topology: &Topology, holders: &[Holder]) -> String {
    let mut sentences = vec![size(topology)];
    sentences.extend(holders.iter().map(|holder| holds(topology, holder)));
    sentences.extend(free(topology, holders));
    sentences.extend(topology.rails.iter().filter_map(trouble));
    let no_rail = |port: &Excluded| {
        format!(
            "{} is no rail: {}.",
            port.path.function,
            clean(&port.reason)
        )
    };
    sentences.extend(topology.excluded.iter().map(no_rail));
    sentences.join(" ")
}

fn size(topology: &Topology) -> String {
    let groups = outline(topology, &[]);
    let roots = groups.iter().map(|group| group.roots.len()).sum();
    format!(
        "{}, {}, {} and {}.",
        count(groups.len(), "NUMA node"),
        count(roots, "PCIe root"),
        count(topology.gpus.len(), "GPU"),
        count(topology.rails.len(), "rail"),
    )
}

fn holds(topology: &Topology, holder: &Holder) -> String {
    let gpus = ranges(holder.gpus.iter().copied());
    let rails = ranges(holder.rails.iter().map(|rail| rail.0.into()));
    let held = format!("{} holds GPUs {gpus} and rails {rails}", held::name(holder));
    match held::Nearness::of(topology, holder).words(holder) {
        placement if placement.is_empty() => format!("{held}."),
        placement => format!("{held}: {placement}."),
    }
}

fn free(topology: &Topology, holders: &[Holder]) -> Option<String> {
    let gpus = (0..topology.gpus.len()).filter(|at| held::by_gpu(holders, *at).is_empty());
    let rails = topology.rails.iter().map(|rail| rail.index);
    let rails = rails.filter(|rail| held::by_rail(holders, *rail).is_empty());
    let free = format!(
        "Free: GPUs {}, rails {}.",
        ranges(gpus),
        ranges(rails.map(|r| r.0.into()))
    );
    (!holders.is_empty()).then_some(free)
}

fn trouble(rail: &Rail) -> Option<String> {
    let down = (rail.link == LinkState::Down).then(|| "link down".to_owned());
    let troubles: Vec<_> = down
        .into_iter()
        .chain(rail.faults.iter().map(fault_words))
        .collect();
    (!troubles.is_empty()).then(|| format!("Rail {}: {}.", rail.index, troubles.join(", ")))
}
