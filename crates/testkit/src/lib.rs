//! Test parts shared by every crate: fresh databases, owned clocks, people, calls, and the suite that every store
//! and every entry point is held to.
//!
//! To hold an entry point to the suite, implement [`suite::Subject`] for it and hand it to
//! [`suite::hold`]; `crates/ledger/tests/reference.rs` does it for the library, `crates/cli/tests/wire_reference.rs`
//! for a server process over HTTP and over stdio.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that cannot be set up has failed"
)]

pub mod answer;
pub mod ask;
pub mod clock;
pub mod database;
pub mod gate;
pub mod http;
pub mod issuer;
pub mod library;
pub mod pending;
pub mod people;
pub mod postgres;
pub mod server;
pub mod site;
pub mod stdio;
pub mod suite;
pub mod wire;

pub use answer::{Answer, Done, Refused};
pub use ask::{Ask, set_interval};
pub use clock::OwnedClock;
pub use database::{Database, Row};
pub use gate::Gate;
pub use http::Http;
pub use issuer::Signer;
pub use pending::{Pending, block_on};
pub use people::Who;
pub use server::{Refused as NotServed, Server};
pub use site::Site;
pub use stdio::Stdio;
pub use wire::{Send, Told};
