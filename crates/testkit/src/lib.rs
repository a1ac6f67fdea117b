//! Test parts shared by every crate.
