//! Receipts in SQLite: any number of readers, one writer thread that commits in groups.
//!
//! [`Receipts`] works in a caller's transaction. [`Ledger`] adds the writer and the readers, and is what most
//! programs open.

mod attempt;
mod connection;
mod contracts;
mod error;
mod ledger;
mod look;
mod migrate;
mod readers;
mod receipts;
mod turn;
mod tx;
mod writer;

pub(crate) use error::refusal_of;

pub use crate::record::{Filter, Record, State, Void};
pub use crate::rule::Rule;
pub use attempt::Handler;
pub use connection::Prepare;
pub use contracts::pin_contract;
pub use ledger::{Ledger, Options};
pub use look::{look, servable};
pub use receipts::{find_record, list, void};
pub use turn::{Permit, Receipts, Turn};
pub use tx::Tx;
