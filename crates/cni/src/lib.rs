//! The CNI plugin: binds a pod's slots to rails at ADD.

pub mod protocol;
