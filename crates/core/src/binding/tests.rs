//! The choice of rails: the post's machines, an independent oracle, and laws that hold for any node.

mod cases;
mod laws;
pub(crate) mod nodes;
mod oracle;
mod shapes;

use super::*;
