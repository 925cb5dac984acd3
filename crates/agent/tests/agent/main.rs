//! The agent as a whole.
//!
//! `cfg(test)` is always on here; clippy takes it as the mark of test helpers.

#[cfg(test)]
mod whole;
