//! The state of a node in one SQLite file.
