//! Tables as kubectl prints them: no borders, two spaces between columns.

use super::text::{clean, pad, width};

/// A table: the headers, then the rows, left-aligned, each line ended by a newline.
///
/// Rows may be shorter or longer than the headers. No line ends in spaces.
#[must_use]
pub fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let lines: Vec<Vec<_>> = std::iter::once(headers.iter().map(|cell| clean(cell)).collect())
        .chain(
            rows.iter()
                .map(|row| row.iter().map(|cell| clean(cell)).collect()),
        )
        .collect();
    let widths = columns(&lines);
    lines.iter().map(|line| render(line, &widths)).collect()
}

/// Width of each column: its widest cell.
pub(super) fn columns<C: AsRef<str>>(rows: &[Vec<C>]) -> Vec<usize> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell: &C| width(cell.as_ref()))
            .max()
            .unwrap_or(0)
    };
    (0..count).map(widest).collect()
}

fn render(cells: &[impl AsRef<str>], widths: &[usize]) -> String {
    let padded: Vec<_> = cells
        .iter()
        .zip(widths)
        .map(|(cell, w)| pad(cell.as_ref(), *w))
        .collect();
    format!("{}\n", padded.join("  ").trim_end())
}
