//! Receipts in SQLite: any number of readers, one writer thread that commits in groups.
//!
//! [`Receipts`] works in a caller's transaction. [`Ledger`] adds the writer and the readers, and is what most
//! programs open.

mod attempt;
mod backup;
mod books;
mod connection;
mod contracts;
mod epoch;
mod error;
mod ledger;
mod look;
mod migrate;
mod readers;
mod receipts;
mod removal;
mod turn;
mod tx;
mod writer;

pub(crate) use error::refusal_of;

pub use crate::record::{Filter, Record, State, Stats, Void, Whose};
pub use crate::rule::Rule;
pub use attempt::Handler;
pub use backup::{CopyError, Restored, Stage, Verified, backup, begin_epoch, restore, verify};
pub use books::{begin_import, export, import, stats, walk};
pub use connection::Prepare;
pub use contracts::{altered_contracts, pin_contract};
pub use ledger::{Ledger, Options};
pub use look::{look, servable};
pub use receipts::{find_record, list, void};
pub use removal::overdue;
pub use turn::{Permit, Receipts, Turn};
pub use tx::Tx;
