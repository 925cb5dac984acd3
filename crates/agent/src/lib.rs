//! The node agent: slots for the kubelet, health, garbage, metrics, installation.
//!
//! Reading order: [`run`](run()) wires the parts. `survey` looks at the node, whenever `changes`
//! says so; the device plugin offers what it saw, and asks `allocator` before it answers the
//! kubelet; `chain` keeps the plugin on the node by [`install`]; `garbage` takes away what `stale`
//! finds to be nobody's; the [`board`] is what [`http`] and [`metrics`] tell.
//!
//! Deliberately absent: binding rails. No pod waits for this process, except for slots.

mod allocator;
pub mod board;
mod chain;
mod changes;
mod config;
mod context;
mod garbage;
pub mod http;
pub mod install;
pub mod metrics;
mod options;
mod run;
mod say;
mod stale;
mod survey;

pub use options::Options;
pub use run::{AgentError, run, serve};
