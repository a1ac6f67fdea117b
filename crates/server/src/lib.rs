//! Config as written, the plan it becomes, and the running of it.
//!
//! [`config`] reads a file, [`plan`] holds it against the database, [`run`] serves calls by the plan. The edge knows
//! the engine only as [`tools::Tools`]: [`front`] reads each message, [`mcp`] speaks the protocol, [`http`], [`auth`]
//! and [`stdio`] are the two ways in.

pub mod audit;
pub mod auth;
pub mod config;
pub mod diagnostics;
pub mod front;
pub mod http;
mod kind;
pub mod limit;
pub mod mcp;
pub mod plan;
pub mod run;
pub mod stdio;
pub mod tools;
mod verbatim;
