//! Virtual rail nodes: a real kernel under QEMU.
