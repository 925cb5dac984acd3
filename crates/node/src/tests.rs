//! The node as a whole.

#[cfg(feature = "faults")]
mod model;
