//! Against the running kernel, judged by `ip -j`.
//!
//! IPvlan is not in every kernel; making one is tested in the lab, here only its refusal.
//! `cfg(test)` is always on here; clippy takes it as the mark of test helpers.

#[cfg(test)]
mod changes;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod sandbox;
