//! The form in which the caller owns the transaction: look up, then write, then record, all in one.

use std::sync::Arc;

use counterfoil_core::{
    Call, Committed, Decision, Epoch, FieldError, Reading, Refusal, Reply, Timestamp, decide, limits,
};
use rusqlite::{Connection, Transaction, TransactionState};

use super::{migrate, receipts};
use crate::clock::{Clock, SystemClock};
use crate::fault::{Fault, OpenError};
use crate::key::Key;

/// Receipts in the transactions of a caller who keeps the connection.
#[derive(Clone)]
pub struct Receipts {
    pub(super) epoch: Epoch,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) result_limit: usize,
}

/// What is to be done with a call.
#[derive(Debug)]
pub enum Turn<'t> {
    /// It committed earlier; this is its result. Nothing is left to do.
    Replay(Reply),
    /// It has not: write, then record.
    Fresh(Permit<'t>),
}

/// The right to record one result: borrowed from the transaction that was looked in, used up by recording. So
/// there is no receipt without a look-up, none twice, and none in another transaction.
///
/// Recording twice does not compile:
///
/// ```compile_fail,E0382
/// # use counterfoil::{Fault, sqlite::Permit};
/// fn twice(permit: Permit<'_>) -> Result<(), Fault> {
///     permit.record(&1)?;
///     permit.record(&2)?;
///     Ok(())
/// }
/// ```
///
/// Nor does recording after the transaction has ended:
///
/// ```compile_fail,E0505
/// # use counterfoil::{Fault, core::Call, rusqlite::Transaction, sqlite::{Receipts, Turn}};
/// fn late(receipts: &Receipts, tx: Transaction<'_>, call: &Call) -> Result<(), Fault> {
///     if let Turn::Fresh(permit) = receipts.begin_tx(&tx, call)? {
///         tx.commit()?;
///         permit.record(&1)?;
///     }
///     Ok(())
/// }
/// ```
///
/// Once, and before, does:
///
/// ```
/// # use counterfoil::{Fault, core::Call, rusqlite::Transaction, sqlite::{Receipts, Turn}};
/// fn once(receipts: &Receipts, tx: Transaction<'_>, call: &Call) -> Result<(), Fault> {
///     if let Turn::Fresh(permit) = receipts.begin_tx(&tx, call)? {
///         permit.record(&1)?;
///     }
///     Ok(tx.commit()?)
/// }
/// ```
#[must_use = "a write without its receipt can run twice: record it, or roll back"]
pub struct Permit<'t> {
    receipts: &'t Receipts,
    tx: &'t Connection,
    call: &'t Call,
    reading: &'t Reading,
}

impl std::fmt::Debug for Receipts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipts").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("request_id", &self.call.request_id.short()).finish_non_exhaustive()
    }
}

impl Receipts {
    /// Brings the ledger's tables in `connection`'s database up to date.
    ///
    /// # Errors
    /// [`OpenError::TooNew`] for a database that a newer program wrote.
    pub fn install(connection: &mut Connection) -> Result<Self, OpenError> {
        let epoch = migrate::migrate(connection)?;
        Ok(Self { epoch, clock: Arc::new(SystemClock), result_limit: limits::RESULT })
    }

    /// Takes "now" from `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Looks `call` up in `tx`. Ask for access first: this does not.
    ///
    /// # Errors
    /// [`Fault::Refused`] with the answer; [`Fault::Misuse`] unless `tx` is a write transaction
    /// (`TransactionBehavior::Immediate`): a deferred one may read a stale snapshot.
    pub fn begin_tx<'t>(&'t self, tx: &'t Transaction<'_>, call: &'t Call) -> Result<Turn<'t>, Fault> {
        if tx.transaction_state(Some("main"))? != TransactionState::Write {
            return Err(Fault::Misuse(
                "begin_tx needs a write transaction: use TransactionBehavior::Immediate",
            ));
        }
        let receipt = receipts::find(tx, Key::from(call))?;
        match decide(receipt.as_ref(), call, self.clock.now()) {
            Decision::Fresh(reading) => Ok(Turn::Fresh(Permit { receipts: self, tx, call, reading })),
            Decision::Replay(committed, result) => Ok(Turn::Replay(self.replay(call, committed, result))),
            Decision::Refuse(refusal) => Err(refusal.into()),
        }
    }

    pub(super) fn replay(&self, call: &Call, committed: &Committed, result: &str) -> Reply {
        Reply {
            result: result.into(),
            request_id: call.request_id.clone(),
            replayed: true,
            committed_at: committed.at,
            epoch: self.epoch.clone(),
            current: None,
        }
    }

    /// Step 11: the receipt beside the write, in `tx`.
    pub(super) fn record(
        &self,
        tx: &Connection,
        call: &Call,
        reading: &Reading,
        result: Box<str>,
        committed_at: Timestamp,
    ) -> Result<Reply, Fault> {
        if result.len() > self.result_limit {
            return Err(Refusal::result_too_large(self.result_limit).into());
        }
        let intent = reading.intent.text();
        if intent.len() > limits::INTENT {
            let problem = format!("are larger than {} bytes", limits::INTENT);
            return Err(Refusal::invalid_arguments(vec![FieldError::new("", problem)]).into());
        }
        if tx.is_autocommit() {
            return Err(Fault::Misuse(
                "the transaction ended before its receipt: a statement rolled it back",
            ));
        }
        receipts::insert(tx, Key::from(call), reading, call.stored(reading), committed_at, &result)?;
        Ok(Reply {
            result,
            request_id: call.request_id.clone(),
            replayed: false,
            committed_at,
            epoch: self.epoch.clone(),
            current: None,
        })
    }
}

impl Permit<'_> {
    /// Records `result` as what the call did. The reply is true once the caller's transaction has committed.
    ///
    /// # Errors
    /// `result_too_large`, or the database's own: roll back on any.
    pub fn record<T: serde::Serialize>(self, result: &T) -> Result<Reply, Fault> {
        let json = serde_json::to_string(result).map_err(|error| Fault::Broken(error.to_string()))?;
        let now = self.receipts.clock.now();
        self.receipts.record(self.tx, self.call, self.reading, json.into(), now)
    }

    /// Gives the permit back: the handler's write changed nothing, or failed. Roll back.
    ///
    /// The answer is the store's to give: here, where no other writer can have come between, it is `refusal`.
    ///
    /// # Errors
    /// Always `refusal` on SQLite.
    pub fn refuse(self, refusal: Refusal) -> Result<Reply, Refusal> {
        Err(refusal)
    }
}
