//! Against the running kernel, judged by `ip -j`.
//!
//! IPvlan is not in every kernel; making one is tested in the lab, here only its refusal.

mod changes;
mod namespaces;
mod reads;
mod sandbox;
