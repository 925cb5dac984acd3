//! The node agent: slots for the kubelet, health, garbage, metrics, installation.

pub mod board;
pub mod http;
pub mod install;
pub mod metrics;
