//! Config as written, the plan it becomes, and the running of it.
//!
//! [`config`] reads a file, [`plan`] holds it against the database, [`run`] serves calls by the plan. The edge knows
//! the engine only as [`tools::Tools`].

pub mod config;
pub mod diagnostics;
pub mod plan;
pub mod run;
pub mod tools;
