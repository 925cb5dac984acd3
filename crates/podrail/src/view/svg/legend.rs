//! The legend: holders with what they have, then the other marks that the picture uses.

use super::block::Area;
use super::draw;
use crate::view::text::{count, cut, cut_middle};
use crate::view::{Holder, held};
use ::svg::node::element::{Group, Title};
use podrail_core::topology::{LinkState, Rail, Topology};

/// Width of an entry of a holder at least.
const ENTRY: u32 = 300;
/// Height of an entry: two lines and space.
const HEIGHT: u32 = 36;
/// Side of a patch of colour.
const PATCH: u32 = 18;
/// Width of another mark with its words.
const MARK: u32 = 140;

/// Draws the legend from the top of the area on; also tells where it ends.
pub(super) fn draw(
    mut drawing: Group,
    area: Area,
    topology: &Topology,
    holders: &[Holder],
) -> (Group, u32) {
    let columns = (area.w / ENTRY).max(1);
    let w = area.w / columns;
    let (mut column, mut y) = (0, area.y);
    for (at, holder) in holders.iter().enumerate() {
        let place = Area {
            x: area.x + column * w,
            y,
            w,
            h: HEIGHT,
        };
        drawing = drawing.add(entry(topology, (at, holder), place));
        column += 1;
        if column == columns {
            (column, y) = (0, y + HEIGHT);
        }
    }
    if column > 0 {
        y += HEIGHT;
    }
    marks(drawing, Area { y, ..area }, &used(topology, holders))
}

fn entry(topology: &Topology, (at, holder): (usize, &Holder), place: Area) -> Group {
    let name = held::name(holder);
    let has = format!(
        "{}, {}",
        count(holder.gpus.len(), "GPU"),
        count(holder.rails.len(), "rail")
    );
    let has = match held::Nearness::of(topology, holder).words(holder) {
        placement if placement.is_empty() => has,
        placement => format!("{}; {placement}", count(holder.gpus.len(), "GPU")),
    };
    let patch = Area {
        w: PATCH,
        h: PATCH,
        ..place
    };
    let (x, columns) = (place.x + PATCH + 8, draw::columns(place.w - PATCH - 20));
    let group = Group::new()
        .set("data-holder", at)
        .add(Title::new(format!("{name}: {has}")));
    draw::color(group, at, patch)
        .add(draw::rectangle("edge", patch))
        .add(draw::text(
            "mono holder",
            (x, place.y + 9),
            &cut_middle(&name, columns),
        ))
        .add(draw::text("small", (x, place.y + 23), &cut(&has, columns)))
}

/// A mark and its words.
#[derive(Clone, Copy)]
enum Mark {
    Free,
    Excluded,
    Trouble,
}

fn used(topology: &Topology, holders: &[Holder]) -> Vec<Mark> {
    let mut gpus = 0..topology.gpus.len();
    let free = gpus.any(|at| held::by_gpu(holders, at).is_empty())
        || topology
            .rails
            .iter()
            .any(|rail| held::by_rail(holders, rail.index).is_empty());
    let trouble = |rail: &Rail| rail.link == LinkState::Down || !rail.faults.is_empty();
    [
        (free && !holders.is_empty(), Mark::Free),
        (!topology.excluded.is_empty(), Mark::Excluded),
        (topology.rails.iter().any(trouble), Mark::Trouble),
    ]
    .into_iter()
    .filter_map(|(used, mark)| used.then_some(mark))
    .collect()
}

fn marks(mut drawing: Group, area: Area, marks: &[Mark]) -> (Group, u32) {
    let mut x = area.x;
    for mark in marks {
        drawing = drawing.add(one_mark(
            *mark,
            Area {
                x,
                w: PATCH,
                h: PATCH,
                ..area
            },
        ));
        x += MARK;
    }
    (
        drawing,
        if marks.is_empty() {
            area.y
        } else {
            area.y + PATCH
        },
    )
}

fn one_mark(mark: Mark, patch: Area) -> Group {
    let (class, words) = match mark {
        Mark::Free => ("free", "free"),
        Mark::Excluded => ("excluded", "not a rail"),
        Mark::Trouble => ("free trouble", "down or faulty"),
    };
    let group = Group::new()
        .set("class", class)
        .add(draw::rectangle("ground", patch))
        .add(draw::rectangle("edge", patch));
    let group = match mark {
        Mark::Trouble => draw::sign(group, (patch.x + 3, patch.y + 15)),
        Mark::Free | Mark::Excluded => group,
    };
    Group::new().add(group).add(draw::text(
        "small",
        (patch.x + PATCH + 8, patch.y + 13),
        words,
    ))
}
