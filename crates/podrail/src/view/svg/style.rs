//! Colours and fonts of the picture, for light and dark surroundings.
//!
//! Written without variables: not every renderer knows them. Each rule starts with `.podrail`, so
//! that a picture set into a page changes nothing of the page.

use ::svg::node::element::{Definitions, Path, Pattern};

/// Paul Tol's light scheme: made for cells with dark text in them, and told apart by people who do
/// not see all colours. Its pale grey is left out; free cells look like it.
/// <https://personal.sron.nl/~pault/>
const COLORS: usize = 8;
/// Patterns over the colours, for holders after the first eight.
const PATTERNS: [&str; 3] = ["podrail-stripes", "podrail-dots", "podrail-grid"];

/// How one holder looks.
pub(super) struct Look {
    /// Class with its colour.
    pub(super) class: String,
    /// Pattern over the colour.
    pub(super) pattern: Option<&'static str>,
}

/// How the holder at this position looks; after the last pattern looks repeat, names do not.
pub(super) fn look(holder: usize) -> Look {
    let round = holder / COLORS % (PATTERNS.len() + 1);
    Look {
        class: format!("color-{}", holder % COLORS),
        pattern: round
            .checked_sub(1)
            .and_then(|at| PATTERNS.get(at))
            .copied(),
    }
}

/// Definitions of the patterns.
pub(super) fn patterns() -> Definitions {
    let shapes = [
        "M-2 2 l4 -4 M0 8 l8 -8 M6 10 l4 -4",
        "M1.5 2 h2 M5.5 6 h2",
        "M0 4 h8 M4 0 v8",
    ];
    let pattern = |(id, shape): (&str, &str)| {
        let path = Path::new().set("class", "pattern-line").set("d", shape);
        Pattern::new()
            .set("id", id)
            .set("width", 8)
            .set("height", 8)
            .set("patternUnits", "userSpaceOnUse")
            .add(path)
    };
    PATTERNS
        .into_iter()
        .zip(shapes)
        .map(pattern)
        .fold(Definitions::new(), Definitions::add)
}

/// The style sheet.
pub(super) const SHEET: &str = "
.podrail { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; }
.podrail text { fill: #1f2328; font-size: 12px; }
.podrail .title { font-size: 17px; font-weight: 600; }
.podrail .head { font-size: 11.5px; font-weight: 600; fill: #424a53; }
.podrail .name { font-weight: 600; }
.podrail .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace; font-size: 11px; }
.podrail .small { font-size: 11px; fill: #424a53; }
.podrail .page { fill: #ffffff; }
.podrail .numa { fill: #f3f5f7; stroke: #8c959f; }
.podrail .root { fill: #ffffff; stroke: #8c959f; }
.podrail .switch { fill: #e9edf1; stroke: #6e7781; stroke-dasharray: 5 3; }
.podrail .nic { fill: #ffffff; stroke: #6e7781; }
.podrail .other { fill: #f3f5f7; stroke: #8c959f; stroke-dasharray: 2 3; }
.podrail .edge { fill: none; stroke: #57606a; }
.podrail .ground { fill: #ffffff; }
.podrail .excluded .ground { fill: #d8dce1; }
.podrail .excluded .edge { stroke: #8c959f; stroke-dasharray: 2 2; }
.podrail .excluded text { fill: #57606a; }
.podrail .trouble .edge { stroke: #b3001b; stroke-width: 2; stroke-dasharray: 6 2; }
.podrail .holder { font-weight: 600; }
.podrail .alarm { fill: #9a0018; font-weight: 600; }
.podrail .held .alarm { fill: #5c000e; }
.podrail .sign { fill: #b3001b; stroke: #ffffff; stroke-width: 0.7; }
.podrail .sign-mark { fill: none; stroke: #ffffff; stroke-width: 1.5; }
.podrail .pattern-line { fill: none; stroke: #1f2328; stroke-opacity: 0.28; stroke-width: 1.2; }
.podrail .color-0 { fill: #77aadd; }
.podrail .color-1 { fill: #ee8866; }
.podrail .color-2 { fill: #eedd88; }
.podrail .color-3 { fill: #ffaabb; }
.podrail .color-4 { fill: #44bb99; }
.podrail .color-5 { fill: #bbcc33; }
.podrail .color-6 { fill: #99ddff; }
.podrail .color-7 { fill: #aaaa00; }
@media (prefers-color-scheme: dark) {
.podrail text { fill: #e6edf3; }
.podrail .head, .podrail .small { fill: #b1bac4; }
.podrail .page { fill: #0d1117; }
.podrail .numa, .podrail .other { fill: #161b22; stroke: #6e7681; }
.podrail .root { fill: #0d1117; stroke: #6e7681; }
.podrail .switch { fill: #21262d; stroke: #8b949e; }
.podrail .nic { fill: #161b22; stroke: #8b949e; }
.podrail .edge { stroke: #8b949e; }
.podrail .ground { fill: #0d1117; }
.podrail .excluded .ground { fill: #30363d; }
.podrail .excluded text { fill: #b1bac4; }
.podrail .held text { fill: #1f2328; }
.podrail .trouble .edge { stroke: #ff7b72; }
.podrail .free .alarm { fill: #ff9d94; }
.podrail .held .alarm { fill: #5c000e; }
.podrail .held.trouble .edge { stroke: #ff5a50; }
}
";

#[cfg(test)]
mod tests;
