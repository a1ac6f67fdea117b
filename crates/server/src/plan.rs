//! x
mod sql;
