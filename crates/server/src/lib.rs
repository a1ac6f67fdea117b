//! Config as written, the plan it becomes, and the running of it.

pub mod config;
pub mod diagnostics;
