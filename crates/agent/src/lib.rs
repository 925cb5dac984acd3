//! The node agent: slots for the kubelet, health, garbage, metrics, installation.
