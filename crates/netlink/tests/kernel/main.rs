//! Against the running kernel, judged by `ip -j`.
//!
//! Built as one program, so that it can also be run in the lab, where there are IPvlan and RDMA.
//! `cfg(test)` is always on here; clippy takes it as the mark of test helpers.

#[cfg(test)]
mod changes;
#[cfg(test)]
mod children;
#[cfg(test)]
mod events;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod rdma;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod sandbox;
