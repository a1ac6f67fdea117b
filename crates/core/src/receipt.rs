//! What a ledger remembers of one operation.

use crate::fingerprint::Fingerprint;
use crate::time::Timestamp;
use crate::words::Revision;

/// The durable record of one request id: it committed, or it never will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    /// The operation committed.
    Committed(Committed),
    /// The id was voided: it will never commit.
    Voided,
}

/// The fact of a commit, and its result as long as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Under which contract.
    pub revision: Revision,
    /// Of tool and intent.
    pub fingerprint: Fingerprint,
    /// When.
    pub at: Timestamp,
    /// The result's JSON, byte for byte; `None` once it is no longer kept.
    pub result: Option<Box<str>>,
}
