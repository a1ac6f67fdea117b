//! The words and the rules of Counterfoil, pure: no I/O, no clock, no randomness, no driver.
//!
//! Read it in this order: [`words`] (who, what, which operation), [`json`] and [`schema`] (text becomes an
//! [`Intent`]), [`contract`] (a request becomes a [`Call`]), [`decide`](mod@decide) (a receipt, or none, becomes an answer),
//! [`refusal`] and [`reply`] (the two kinds of answer).

pub mod contract;
pub mod decide;
pub mod fingerprint;
mod frame;
pub mod intent;
pub mod json;
pub mod limits;
mod number;
mod pages;
pub mod receipt;
pub mod refusal;
pub mod reply;
pub mod schema;
pub mod time;
pub mod wire;
pub mod words;

pub use contract::{Call, Contract, IdForm, Reading, Sources, Windows};
pub use decide::{Decision, decide};
pub use fingerprint::Fingerprint;
pub use intent::{Argument, Intent};
pub use receipt::{Committed, Receipt};
pub use refusal::{Code, FieldError, Operation, Refusal, Retry};
pub use reply::Reply;
pub use schema::Schema;
pub use time::Timestamp;
pub use words::{
    Epoch, Issuer, Principal, RequestId, Revision, Scope, Subject, ToolName, ToolRevision, Workspace,
};
