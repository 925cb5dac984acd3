//! Boxes in boxes: how large each must be, and where each is drawn.
//!
//! Sizes come from the inside, places from the outside: a frame asks its rows how wide and high they
//! are, then shares what it was given among them.

use super::draw;
use crate::view::text::width;
use ::svg::node::element::Group;

/// Space between boxes side by side.
pub(super) const GAP: u32 = 6;
/// Space between a frame and what is in it.
const PAD: u32 = 6;
/// Height of a frame's heading.
const HEAD: u32 = 20;
/// Width of a cell: 15 columns of monospaced text.
pub(super) const CELL: u32 = 112;
/// Width of a column of a frame's heading, in a bold sans font.
const HEAD_COLUMN: u32 = 7;
/// Space between a frame and its heading.
pub(super) const HEAD_INSET: u32 = 7;
/// Height of a line of text.
pub(super) const LINE: u32 = 14;
/// What a cell is higher than its lines.
const CELL_PAD: u32 = 8;

/// A rectangle of the picture.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) w: u32,
    pub(super) h: u32,
}

/// A box.
pub(super) enum Block {
    /// A device.
    Cell(Cell),
    /// A box around others.
    Frame(Frame),
}

/// A GPU or a port.
pub(super) struct Cell {
    /// Attribute by which the element is found, and its value: a number, so safe in an attribute.
    pub(super) mark: (&'static str, usize),
    /// All that is known, in words.
    pub(super) title: String,
    /// Lines to show, cut to the width that there is.
    pub(super) lines: Vec<Text>,
    /// How the cell is filled.
    pub(super) fill: Fill,
    /// Whether the device cannot be used as it is.
    pub(super) trouble: bool,
}

/// A line in a cell.
pub(super) enum Text {
    /// What the device is.
    Name(String),
    /// Another name or address of it.
    Detail(String),
    /// Who holds it: cut in the middle.
    Holder(String),
    /// What is wrong with it.
    Trouble(String),
}

/// How a cell is filled.
pub(super) enum Fill {
    /// Nothing is known, or nobody holds it.
    Free,
    /// No rail.
    Excluded,
    /// In the colours of the holders at these positions.
    Held(Vec<usize>),
}

/// What a frame stands for; its class of the style sheet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Numa,
    Root,
    Switch,
    Nic,
    /// Ports elsewhere.
    Other,
}

/// A box around others.
pub(super) struct Frame {
    /// What it stands for.
    pub(super) kind: Kind,
    /// Heading.
    pub(super) head: String,
    /// Boxes side by side, row below row.
    pub(super) rows: Vec<Vec<Block>>,
    /// Width below which the frame does not go.
    pub(super) least: u32,
}

impl Block {
    /// Smallest width.
    pub(super) fn width(&self) -> u32 {
        match self {
            Self::Cell(_) => CELL,
            Self::Frame(frame) => {
                let rows = frame.rows.iter().map(|row| row_width(row));
                let head = HEAD_COLUMN * size(width(&frame.head)) + 2 * HEAD_INSET;
                (rows.max().unwrap_or(CELL) + 2 * PAD)
                    .max(head)
                    .max(frame.least)
            }
        }
    }

    /// Smallest height.
    pub(super) fn height(&self) -> u32 {
        match self {
            Self::Cell(cell) => CELL_PAD + LINE * size(cell.lines.len()),
            Self::Frame(frame) => frame.height(),
        }
    }

    fn draw(&self, area: Area) -> Group {
        match self {
            Self::Cell(cell) => draw::cell(cell, area),
            Self::Frame(frame) => draw_frame(frame, area),
        }
    }
}

impl Frame {
    fn height(&self) -> u32 {
        let rows: u32 = self.rows.iter().map(|row| row_height(row)).sum();
        HEAD + rows + gaps(self.rows.len()) + PAD
    }
}

/// Smallest width of boxes side by side.
pub(super) fn row_width(row: &[Block]) -> u32 {
    row.iter().map(Block::width).sum::<u32>() + gaps(row.len())
}

/// Height of boxes side by side: that of the highest.
pub(super) fn row_height(row: &[Block]) -> u32 {
    row.iter().map(Block::height).max().unwrap_or(0)
}

/// Draws boxes side by side, all as high as the area; what it is wider than they is shared.
pub(super) fn draw_row(mut drawing: Group, row: &[Block], area: Area) -> Group {
    let spare = area.w.saturating_sub(row_width(row)) / size(row.len()).max(1);
    let mut x = area.x;
    for block in row {
        let w = block.width() + spare;
        drawing = drawing.add(block.draw(Area { x, w, ..area }));
        x += w + GAP;
    }
    drawing
}

fn draw_frame(frame: &Frame, area: Area) -> Group {
    let mut drawing = draw::frame(frame, area);
    let (x, w) = (area.x + PAD, area.w.saturating_sub(2 * PAD));
    let mut y = area.y + HEAD;
    let spare = area.h.saturating_sub(frame.height());
    for (left, row) in frame
        .rows
        .iter()
        .enumerate()
        .map(|(at, row)| (frame.rows.len() - at, row))
    {
        // Roots of one row of the picture are equally high; devices keep their height.
        let stretch = if left == 1 && frame.kind == Kind::Numa {
            spare
        } else {
            0
        };
        let h = row_height(row) + stretch;
        drawing = draw_row(drawing, row, Area { x, y, w, h });
        y += h + GAP;
    }
    drawing
}

fn gaps(boxes: usize) -> u32 {
    GAP * size(boxes.saturating_sub(1))
}

/// Counts of boxes are small; a picture of more than that could not be drawn anyway.
fn size(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
