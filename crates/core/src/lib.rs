//! The decisions of Podrail: pure values, no I/O.
