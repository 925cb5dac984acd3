//! The program `podrail`: reads the command line and runs one command.

fn main() {}
