//! Receipts in your own database transaction: tool calls that are safe to retry.
//!
//! Three forms, for services with handlers of their own:
//!
//! - Closures, [`sqlite::Ledger::run`]: the paved path. It owns begin, access, look-up, write, receipt, commit and group
//!   commit.
//! - A handler, [`sqlite::Ledger::perform`]: the same path, where a [`sqlite::Handler`] has each step as a method, and
//!   may also show the row as it is now, or ask a rule of its own on a replay.
//! - `_tx`, [`sqlite::Ledger::begin_tx`]: the caller owns the transaction; a [`sqlite::Permit`] is the only way to a
//!   receipt.
//!
//! All three also over PostgreSQL, for services that have outgrown one machine: [`postgres::Ledger::run`],
//! [`postgres::Ledger::perform`] and [`postgres::Receipts::begin_tx`].
//!
//! `examples/library.rs` is a complete small program.

mod clock;
pub mod export;
mod fault;
mod key;
mod queue;
mod record;
pub mod removal;
mod rule;
mod store;
mod sync;
pub mod witness;

pub use clock::{Clock, SystemClock};
pub use counterfoil_core as core;
pub use fault::{Fault, OpenError};
pub use key::Key;
pub use store::{postgres, sqlite};

/// The driver whose connections and transactions the PostgreSQL forms take.
pub use tokio_postgres;

/// The driver whose connections and transactions the SQLite forms take. Its breaking releases are frequent, and
/// each is a breaking release of this crate.
pub use rusqlite;

/// What the README shows of the library compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
