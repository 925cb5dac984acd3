//! Lines of a tree set in columns, cut to the terminal, coloured if asked.

use super::Style;
use crate::view::table::columns;
use crate::view::text::{cut, cut_middle, pad, width};
use crate::view::{Holder, held};
use anstyle::{AnsiColor, Style as Ansi};

/// Titles of the columns; the holders' column follows where there are holders.
const COLUMNS: [&str; 7] = [
    "DEVICE",
    "PCI ADDRESS",
    "NETDEV",
    "RDMA",
    "SPEED",
    "MTU",
    "LINK",
];
/// Space between two columns.
const GAP: usize = 2;
/// Holders' names get at least this many columns, however narrow the terminal.
const LEAST_NAME: usize = 12;
/// A GPU's model widens the last column up to this width of the model.
const WIDEST_MODEL: usize = 24;
/// One per holder, in turn; red is kept for what is wrong.
const COLORS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Green,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
];

/// How a line is to stand out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Alarm,
}

/// One line of a tree.
pub(super) struct Line {
    /// Cells of the first columns; a single one is text without columns.
    pub(super) cells: Vec<String>,
    /// Text across the columns that have no cell.
    pub(super) across: Option<String>,
    /// Positions of the holders, for lines of devices.
    pub(super) holders: Option<Vec<usize>>,
    /// How it stands out.
    pub(super) tone: Tone,
}

impl Line {
    /// A line without columns.
    pub(super) fn text(text: String, tone: Tone) -> Self {
        Self {
            cells: vec![text],
            across: None,
            holders: None,
            tone,
        }
    }

    fn titles(with_holders: bool) -> Self {
        let mut cells = COLUMNS.map(str::to_owned).to_vec();
        if with_holders {
            cells.push("HELD BY".to_owned());
        }
        Self {
            cells,
            across: None,
            holders: None,
            tone: Tone::Heading,
        }
    }
}

/// Where lines are set.
pub(super) struct Page<'a> {
    holders: &'a [Holder],
    style: Style,
    widths: Vec<usize>,
}

impl<'a> Page<'a> {
    /// A page on which these holders' names stand.
    pub(super) fn new(holders: &'a [Holder], style: Style) -> Self {
        Self {
            holders,
            style,
            widths: Vec::new(),
        }
    }

    /// The lines below a line of titles.
    pub(super) fn print(mut self, lines: &[Line]) -> String {
        let titles = Line::titles(!self.holders.is_empty());
        self.measure(lines);
        std::iter::once(&titles)
            .chain(lines)
            .map(|line| self.line(line))
            .collect()
    }

    fn measure(&mut self, lines: &[Line]) {
        let titles = COLUMNS.iter().map(|title| (*title).to_owned()).collect();
        let rows = lines
            .iter()
            .map(|line| line.cells.clone())
            .filter(|cells| cells.len() > 1);
        self.widths = columns(&std::iter::once(titles).chain(rows).collect::<Vec<_>>());
        let lacking = lines.iter().filter_map(|line| {
            let model = width(line.across.as_deref()?).min(WIDEST_MODEL);
            Some(model.saturating_sub(self.span(line.cells.len())))
        });
        let lacking = lacking.max().unwrap_or(0);
        if let Some(last) = self.widths.last_mut() {
            *last += lacking;
        }
    }

    /// Width of the columns from this one on, with the space between them.
    fn span(&self, from: usize) -> usize {
        let rest: Vec<_> = self.widths.iter().skip(from).collect();
        rest.iter().copied().sum::<usize>() + GAP * rest.len().saturating_sub(1)
    }

    fn line(&self, line: &Line) -> String {
        let mut cells: Vec<_> = match line.cells.as_slice() {
            [text] => vec![text.clone()],
            cells => self.padded(cells),
        };
        if let Some(across) = &line.across {
            let span = self.span(line.cells.len());
            cells.push(pad(&cut(across, span), span));
        }
        let text = cells.join(&" ".repeat(GAP));
        let held = match &line.holders {
            Some(holders) if !self.holders.is_empty() => self.held(holders),
            _ => return format!("{}\n", self.paint(text.trim_end(), tone(line.tone))),
        };
        format!(
            "{}{}{held}\n",
            self.paint(&text, tone(line.tone)),
            " ".repeat(GAP)
        )
    }

    fn padded(&self, cells: &[String]) -> Vec<String> {
        let widths = self.widths.iter().copied().chain(std::iter::repeat(0));
        cells
            .iter()
            .zip(widths)
            .map(|(cell, columns)| pad(cell, columns))
            .collect()
    }

    /// The names, each in its colour if all fit, else cut.
    fn held(&self, positions: &[usize]) -> String {
        let room = self
            .style
            .width
            .saturating_sub(self.span(0) + GAP)
            .max(LEAST_NAME);
        let names = held::names(self.holders, positions);
        if width(&names) > room || positions.len() < 2 {
            let color = positions
                .first()
                .map_or_else(|| Ansi::new().dimmed(), |at| color(*at));
            return self.paint(&cut_middle(&names, room), color);
        }
        let painted = |at: &usize| self.paint(&held::names(self.holders, &[*at]), color(*at));
        positions.iter().map(painted).collect::<Vec<_>>().join(", ")
    }

    fn paint(&self, text: &str, style: Ansi) -> String {
        if self.style.color {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

fn tone(tone: Tone) -> Ansi {
    match tone {
        Tone::Plain => Ansi::new(),
        Tone::Heading => Ansi::new().bold(),
        Tone::Alarm => AnsiColor::Red.on_default().bold(),
    }
}

fn color(holder: usize) -> Ansi {
    let color = COLORS.into_iter().cycle().nth(holder % COLORS.len());
    color.unwrap_or(AnsiColor::Cyan).on_default()
}
