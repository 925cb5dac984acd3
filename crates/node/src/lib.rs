//! One node: configuration, facts, locks, and carrying a decision out.
