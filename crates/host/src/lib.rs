//! Facts of a node, read from sysfs, /proc and /dev below a given root.
