//! A node as a picture: boxes for NUMA nodes, roots and switches, GPUs and ports in the colours of
//! their holders.
//!
//! One SVG file that needs nothing else: no script, no font, no link. Other people's text stands in
//! text nodes only, never in an attribute: the `svg` crate does not escape quotes there.

mod block;
mod build;
mod cells;
mod describe;
mod draw;
mod legend;
mod style;

use super::Holder;
use super::text::{clean, cut};
use ::svg::Document;
use ::svg::node::element::{Description, Group, Rectangle, Style, Title};
use block::{Area, Block};
use podrail_core::topology::Topology;

/// What a picture is to say besides its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SvgOptions {
    /// Heading, such as the node's name; also the picture's name for screen readers.
    pub title: String,
}

/// Space around the picture.
const MARGIN: u32 = 16;
/// Height of the heading.
const HEADING: u32 = 30;
/// Width that the heading and the legend need at least.
const LEAST_WIDTH: u32 = 560;

/// The node as a standalone SVG file.
///
/// Each GPU, rail and excluded port is one `g` element (`data-gpu`, `data-rail`, `data-excluded`)
/// with a `title` in words. Holders are told apart by colour, by pattern after the eighth, and by
/// name. Without holders nothing is said about who holds what: the caller may not know.
#[must_use]
pub fn svg(topology: &Topology, holders: &[Holder], options: &SvgOptions) -> String {
    let rows = build::rows(topology, holders);
    let widest = rows.iter().map(|row| block::row_width(row)).max();
    let page = Page {
        width: widest.unwrap_or(0).max(LEAST_WIDTH),
        top: MARGIN,
        drawing: Group::new(),
    };
    let title = heading(&options.title);
    let page = page
        .heading(&title)
        .note(topology)
        .boxes(&rows)
        .legend(topology, holders);
    document(&title, &describe::describe(topology, holders), page)
}

fn heading(title: &str) -> String {
    match clean(title.trim()) {
        title if title.is_empty() => "Rails and GPUs of a node".to_owned(),
        title => title.into_owned(),
    }
}

/// What is drawn so far, from top to bottom.
struct Page {
    width: u32,
    top: u32,
    drawing: Group,
}

impl Page {
    fn heading(mut self, title: &str) -> Self {
        let columns = self.width / draw::HEADING_COLUMN;
        let text = cut(title, usize::try_from(columns).unwrap_or(usize::MAX));
        self.drawing = self
            .drawing
            .add(draw::text("title", (MARGIN, self.top + 15), &text));
        self.top += HEADING;
        self
    }

    fn note(mut self, topology: &Topology) -> Self {
        if topology.gpus.is_empty() && topology.rails.is_empty() {
            let note = draw::text("", (MARGIN, self.top + 12), "No GPUs and no rails.");
            self.drawing = self.drawing.add(note);
            self.top += 24;
        }
        self
    }

    fn boxes(mut self, rows: &[Vec<Block>]) -> Self {
        for row in rows {
            let (w, h) = (block::row_width(row), block::row_height(row));
            self.drawing = block::draw_row(
                self.drawing,
                row,
                Area {
                    x: MARGIN,
                    y: self.top,
                    w,
                    h,
                },
            );
            self.top += h + block::GAP;
        }
        self
    }

    fn legend(mut self, topology: &Topology, holders: &[Holder]) -> Self {
        let area = Area {
            x: MARGIN,
            y: self.top + 6,
            w: self.width,
            h: 0,
        };
        (self.drawing, self.top) = legend::draw(self.drawing, area, topology, holders);
        self
    }
}

fn document(title: &str, description: &str, page: Page) -> String {
    let (width, height) = (page.width + 2 * MARGIN, page.top + MARGIN);
    let ground = Rectangle::new()
        .set("class", "page")
        .set("width", width)
        .set("height", height);
    let document = Document::new()
        .set("class", "podrail")
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .set("aria-labelledby", "podrail-title podrail-description")
        .add(Title::new(title).set("id", "podrail-title"))
        .add(
            Description::new()
                .set("id", "podrail-description")
                .add(draw::words(description)),
        )
        .add(Style::new(style::SHEET))
        .add(style::patterns())
        .add(ground)
        .add(page.drawing);
    format!("{document}\n")
}
