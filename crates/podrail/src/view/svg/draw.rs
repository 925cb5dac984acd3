//! Single elements: cells, frames, text.

use super::block::{Area, Cell, Fill, Frame, HEAD_INSET, Kind, LINE, Text};
use super::style;
use crate::view::text::{cut, cut_middle};
use ::svg::node::Text as Words;
use ::svg::node::element::{Group, Path, Rectangle, Text as Element, Title};

/// Width of one column of the heading, wide enough for a bold sans font.
pub(super) const HEADING_COLUMN: u32 = 11;
/// Width of ten columns of the monospaced font, to stay in whole numbers.
const TEN_COLUMNS: u32 = 67;
/// Space between a cell and its text.
const INSET: u32 = 5;
/// Width of the warning sign with the space after it.
const SIGN: u32 = 15;
/// Holders whose colours are shown when a device is shared; the rest is in its title.
const SHARES: usize = 4;

/// A text node: the only place for other people's text.
pub(super) fn words(text: &str) -> Words {
    Words::new(text)
}

/// A line of text; `class` may be empty.
pub(super) fn text(class: &str, (x, y): (u32, u32), text: &str) -> Element {
    let element = Element::new(text).set("x", x).set("y", y);
    if class.is_empty() {
        element
    } else {
        element.set("class", class)
    }
}

/// Columns of monospaced text that fit.
pub(super) fn columns(width: u32) -> usize {
    usize::try_from(width * 10 / TEN_COLUMNS).unwrap_or(usize::MAX)
}

/// Columns of monospaced text that fit into a cell of this width.
pub(super) fn cell_columns(width: u32) -> usize {
    columns(width.saturating_sub(2 * INSET))
}

/// A rectangle.
pub(super) fn rectangle(class: &str, area: Area) -> Rectangle {
    Rectangle::new()
        .set("class", class)
        .set("x", area.x)
        .set("y", area.y)
        .set("width", area.w)
        .set("height", area.h)
}

/// A frame's border and heading; what is in it comes later.
pub(super) fn frame(frame: &Frame, area: Area) -> Group {
    Group::new()
        .add(Title::new(frame.head.as_str()))
        .add(rectangle(frame_class(frame.kind), area).set("rx", 4))
        .add(text(
            "head",
            (area.x + HEAD_INSET, area.y + 14),
            &frame.head,
        ))
}

fn frame_class(kind: Kind) -> &'static str {
    match kind {
        Kind::Numa => "numa",
        Kind::Root => "root",
        Kind::Switch => "switch",
        Kind::Nic => "nic",
        Kind::Other => "other",
    }
}

/// A device: its colours, its border, its lines.
pub(super) fn cell(cell: &Cell, area: Area) -> Group {
    let (mark, value) = cell.mark;
    let mut group = Group::new().set(mark, value).set("class", class(cell));
    group = group.add(Title::new(cell.title.as_str()));
    group = fill(group, &cell.fill, area);
    group = group.add(rectangle("edge", area).set("rx", 2));
    let mut y = area.y + LINE;
    for line in &cell.lines {
        group = draw_line(
            group,
            line,
            Area {
                x: area.x + INSET,
                y,
                w: area.w.saturating_sub(2 * INSET),
                h: 0,
            },
        );
        y += LINE;
    }
    group
}

fn class(cell: &Cell) -> String {
    let kind = match cell.fill {
        Fill::Free => "free",
        Fill::Excluded => "excluded",
        Fill::Held(_) => "held",
    };
    format!("{kind}{}", if cell.trouble { " trouble" } else { "" })
}

fn fill(mut group: Group, fill: &Fill, area: Area) -> Group {
    let Fill::Held(holders) = fill else {
        return group.add(rectangle("ground", area).set("rx", 2));
    };
    let shares = u32::try_from(holders.len().clamp(1, SHARES)).unwrap_or(1);
    let w = area.w / shares;
    let mut x = area.x;
    for (n, holder) in (1..=shares).zip(holders) {
        let w = if n == shares { area.x + area.w - x } else { w };
        group = color(group, *holder, Area { x, w, ..area });
        x += w;
    }
    group
}

/// The holder's colour and pattern.
pub(super) fn color(group: Group, holder: usize, area: Area) -> Group {
    let look = style::look(holder);
    let group = group.add(rectangle(&look.class, area));
    match look.pattern {
        Some(pattern) => {
            group.add(rectangle("pattern", area).set("fill", format!("url(#{pattern})")))
        }
        None => group,
    }
}

fn draw_line(group: Group, line: &Text, area: Area) -> Group {
    let (at, columns) = ((area.x, area.y), columns(area.w));
    match line {
        Text::Name(name) => group.add(text("name", at, &cut(name, columns))),
        Text::Detail(detail) => group.add(text("mono", at, &cut(detail, columns))),
        Text::Holder(name) => group.add(text("mono holder", at, &cut_middle(name, columns))),
        Text::Trouble(trouble) => {
            let room = columns.saturating_sub(2);
            let group = sign(group, at);
            group.add(text(
                "mono alarm",
                (area.x + SIGN, area.y),
                &cut(trouble, room),
            ))
        }
    }
}

/// A triangle with an exclamation mark, its foot on the line.
pub(super) fn sign(group: Group, (x, y): (u32, u32)) -> Group {
    let triangle = format!("M{x} {y} l6 -11 l6 11 z");
    let mark = format!("M{} {} v4 m0 1.5 v1.5", x + 6, y - 7);
    group
        .add(Path::new().set("class", "sign").set("d", triangle))
        .add(Path::new().set("class", "sign-mark").set("d", mark))
}
