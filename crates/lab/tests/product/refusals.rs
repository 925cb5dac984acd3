//! Bad input: one clear error with a hint, a documented exit code, nothing changed.
