//! Entry of `podrail-cni`.

fn main() {}
