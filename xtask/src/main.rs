//! ci, tidy, bench, test: automation as a program.
fn main() {}
