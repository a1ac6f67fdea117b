//! Receipts in PostgreSQL: any number of servers over one database; the unique index and row locks decide.
//!
//! [`Receipts`] works in a caller's `tokio_postgres` transaction. [`Ledger`] adds a pool of connections of its own,
//! retries and commit, and is what most programs open.
//!
//! ## Two roles
//!
//! [`migrate`] makes and changes the tables and needs a role that may create them. [`Ledger::open`] and
//! [`Receipts::open`] need none of that once the tables are there. A role that only serves is granted
//!
//! ```sql
//! GRANT USAGE ON SCHEMA public TO app;
//! GRANT SELECT ON counterfoil_meta TO app;
//! GRANT SELECT, INSERT ON counterfoil_receipts, counterfoil_contracts TO app;
//! ```
//!
//! and can neither change nor remove a receipt. For a role that also removes what is overdue ([`crate::removal`]), and
//! begins a new epoch when it finds that recent history is missing:
//!
//! ```sql
//! GRANT UPDATE, DELETE ON counterfoil_receipts TO app;
//! GRANT UPDATE ON counterfoil_meta TO app;
//! GRANT SELECT, INSERT ON counterfoil_epochs TO app;
//! ```
//!
//! The tables are found by `search_path`.

mod attempt;
mod books;
mod connect;
mod contracts;
mod declared;
mod doubt;
mod epoch;
mod error;
mod flush;
mod ledger;
mod list;
mod migrate;
mod pool;
mod receipts;
mod removal;
mod retry;
mod run;
mod seen;
mod tls;
mod turn;
mod tx;

pub(crate) use error::{may_pass, refusal_of, what_to_do};

pub use crate::record::{Filter, Record, State, Stats, Void, Whose};
pub use crate::rule::Rule;
pub use attempt::{Handler, Step};
pub use books::{Walk, export, import, stats, walk};
pub use connect::connect;
pub use contracts::{altered_contracts, pin_contract};
pub use declared::{Column, Declaration, Declared, List, ListStatement, Part, Query, Returns, Values};
pub use epoch::begin_epoch;
pub use ledger::{Ledger, Options};
pub use migrate::migrate;
pub use receipts::{find_record, list};
pub use tls::Tls;
pub use turn::{Permit, Receipts, Turn, commit};
pub use tx::Tx;
