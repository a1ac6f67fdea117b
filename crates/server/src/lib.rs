//! Config as written, the plan it becomes, and the running of it.

pub mod auth;
pub mod front;
pub mod http;
pub mod mcp;
pub mod stdio;
pub mod tools;
mod verbatim;
