//! Stand-ins that keep state: a kubelet that drives a real container runtime.
