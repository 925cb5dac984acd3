//! What people see of a node: a tree for the terminal, tables, and a picture.
//!
//! Pure: values in, text out. Nothing here reads a node, a terminal or a file, and nothing decides
//! who gets what. Names of pods and models are other people's text: each is cleaned of control and
//! direction characters before it reaches a terminal or a picture.

mod held;
mod outline;
mod svg;
mod table;
mod text;
mod tree;
mod words;

pub use svg::{SvgOptions, svg};
pub use table::table;
pub use tree::{Style, tree};

use podrail_core::ids::RailIndex;

/// Who holds which devices: a pod sandbox, or a job without Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// Name to show, as `namespace/pod`.
    pub name: String,
    /// Positions of its GPUs in `Topology::gpus`.
    pub gpus: Vec<usize>,
    /// Its rails.
    pub rails: Vec<RailIndex>,
}

#[cfg(test)]
mod tests;
