//! What a device's cell says: a few lines to read, and everything in words.

use super::block::{CELL, Cell, Fill, Text};
use super::draw;
use crate::view::text::{clean, speed, width};
use crate::view::words::{fault_words, link_word};
use crate::view::{Holder, held};
use podrail_core::topology::{Excluded, Gpu, LinkState, Rail, RailFault};

/// Cell of a GPU.
pub(super) fn gpu(at: usize, gpu: &Gpu, holders: &[Holder]) -> Cell {
    let held = held::by_gpu(holders, at);
    let (name, address) = (format!("GPU {at}"), gpu.path.function.to_string());
    let mut words = vec![name.clone(), address.clone()];
    words.extend(gpu.model.as_deref().map(|model| clean(model).into_owned()));
    words.extend(held_words(holders, &held));
    let mut lines = vec![Text::Name(name), Text::Detail(address)];
    lines.extend(held_line(holders, &held));
    Cell {
        mark: ("data-gpu", at),
        title: words.join(", "),
        lines,
        fill: fill(held),
        trouble: false,
    }
}

/// Cell of a rail.
pub(super) fn rail(rail: &Rail, holders: &[Holder]) -> Cell {
    let held = held::by_rail(holders, rail.index);
    let name = format!("rail {}", rail.index);
    let names = names(rail.netdev.as_ref(), rail.rdma.as_ref());
    let troubles = troubles(rail);
    let mut words = vec![name.clone()];
    words.extend(names.iter().cloned());
    words.extend(facts(rail));
    words.extend(held_words(holders, &held));
    let mut lines = vec![Text::Name(name)];
    lines.extend(details(names));
    lines.extend(held_line(holders, &held));
    let trouble = !troubles.is_empty();
    lines.extend(troubles.into_iter().map(Text::Trouble));
    Cell {
        mark: ("data-rail", rail.index.0.into()),
        title: words.join(", "),
        lines,
        fill: fill(held),
        trouble,
    }
}

/// Cell of the excluded port at this position, in the box of its NIC.
pub(super) fn excluded(port: &Excluded, at: usize) -> Cell {
    let names = names(port.netdev.as_ref(), port.rdma.as_ref());
    let reason = clean(&port.reason).into_owned();
    let mut words = vec!["no rail".to_owned(), port.path.function.to_string()];
    words.extend(names.iter().cloned());
    words.push(reason.clone());
    let mut lines = vec![Text::Name("no rail".to_owned())];
    lines.extend(details(names));
    lines.push(Text::Detail(reason));
    Cell {
        mark: ("data-excluded", at),
        title: words.join(", "),
        lines,
        fill: Fill::Excluded,
        trouble: false,
    }
}

/// The same, where no box around it has the address.
pub(super) fn elsewhere(port: &Excluded, at: usize) -> Cell {
    let mut cell = excluded(port, at);
    cell.lines
        .insert(1, Text::Detail(port.path.function.to_string()));
    cell
}

fn fill(held: Vec<usize>) -> Fill {
    if held.is_empty() {
        Fill::Free
    } else {
        Fill::Held(held)
    }
}

/// Nothing is said where no holder at all is known.
fn held_line(holders: &[Holder], held: &[usize]) -> Option<Text> {
    (!holders.is_empty()).then(|| Text::Holder(held::names(holders, held)))
}

fn held_words(holders: &[Holder], held: &[usize]) -> Option<String> {
    let names = held::names(holders, held);
    (!holders.is_empty()).then(|| match held {
        [] => names,
        _ => format!("held by {names}"),
    })
}

fn names(netdev: Option<&impl ToString>, rdma: Option<&impl ToString>) -> Vec<String> {
    [
        netdev.map(ToString::to_string),
        rdma.map(ToString::to_string),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The names on one line if they fit, else one line each.
fn details(names: Vec<String>) -> Vec<Text> {
    let line = names.join(" ");
    if width(&line) <= draw::cell_columns(CELL) && !line.is_empty() {
        vec![Text::Detail(line)]
    } else {
        names.into_iter().map(Text::Detail).collect()
    }
}

fn facts(rail: &Rail) -> Vec<String> {
    let mut facts = vec![rail.path.function.to_string()];
    facts.extend(rail.speed_mbps.map(|mbps| speed(Some(mbps))));
    facts.extend(rail.mtu.map(|mtu| format!("MTU {mtu}")));
    facts.push(match rail.link {
        LinkState::Unknown => "link not known".to_owned(),
        link => format!("link {}", link_word(link)),
    });
    facts.extend(rail.faults.iter().map(fault_words));
    facts
}

/// What is wrong, in as few characters as can be; the title has it in full.
fn troubles(rail: &Rail) -> Vec<String> {
    let down = (rail.link == LinkState::Down).then(|| "down".to_owned());
    down.into_iter()
        .chain(rail.faults.iter().map(short))
        .collect()
}

fn short(fault: &RailFault) -> String {
    match fault {
        RailFault::MacvlanParent => "macvlan".to_owned(),
        RailFault::Enslaved(master) => format!("in {master}"),
        RailFault::NotEthernet => "not Ethernet".to_owned(),
        RailFault::NoRdmaDevice => "no RDMA".to_owned(),
        RailFault::NoInterface => "moved away".to_owned(),
        RailFault::Gone => "gone".to_owned(),
    }
}
