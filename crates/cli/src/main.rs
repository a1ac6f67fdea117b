//! The `counterfoil` command: argument parsing and wiring only.
fn main() {}
