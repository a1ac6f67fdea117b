//! The form in which the caller owns the transaction: look up, then write, then record, all in one.

use std::future::Future;
use std::time::SystemTime;

use counterfoil_core::{
    Call, Code, Committed, Decision, Epoch, FieldError, Reading, Refusal, Reply, Timestamp, decide, limits,
};
use tokio_postgres::{Client, GenericClient, Transaction};

use super::epoch::Current;
use super::migrate::{migrate, verify};
use super::receipts::{find, insert};
use super::run::{Once, Run};
use crate::fault::{Fault, OpenError};
use crate::key::Key;

/// Receipts in the transactions of a caller who keeps the connection.
///
/// A loser of a race does not know it until it writes. So whatever goes wrong after [`Receipts::begin_tx`] is not yet
/// the answer:
///
/// ```
/// # use counterfoil::{Fault, core::{Call, Refusal, Reply}, postgres::{Receipts, Turn, commit}};
/// # use counterfoil::tokio_postgres::{Client, Transaction};
/// # async fn rename(tx: &Transaction<'_>) -> Result<Option<i64>, Fault> { Ok(None) }
/// async fn call(receipts: &Receipts, client: &mut Client, call: &Call) -> Result<Reply, Fault> {
///     let tx = client.transaction().await?;
///     // Ask for access here, and answer `resource_unavailable` yourself.
///     let fault = match attempt(receipts, &tx, call).await {
///         Ok(reply) => match commit(tx).await {
///             Ok(()) => return Ok(reply),
///             Err(fault) => fault,
///         },
///         Err(fault) => {
///             tx.rollback().await?;
///             fault
///         }
///     };
///     // A new look, after asking for access again: a rival may have committed meanwhile.
///     receipts.judge(client, call, fault).await
/// }
///
/// async fn attempt(receipts: &Receipts, tx: &Transaction<'_>, call: &Call) -> Result<Reply, Fault> {
///     match receipts.begin_tx(tx, call).await? {
///         Turn::Replay(reply) => Ok(reply),
///         Turn::Fresh(permit) => match rename(tx).await? {
///             Some(row) => permit.record(&row).await,
///             None => permit.refuse(Refusal::version_conflict(None)).await,
///         },
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Receipts {
    pub(super) epoch: Current,
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
/// # use counterfoil::{Fault, postgres::Permit};
/// async fn twice(permit: Permit<'_>) -> Result<(), Fault> {
///     permit.record(&1).await?;
///     permit.record(&2).await?;
///     Ok(())
/// }
/// ```
///
/// Nor does recording after the transaction has ended:
///
/// ```compile_fail,E0505
/// # use counterfoil::{Fault, core::Call, tokio_postgres::Transaction, postgres::{Receipts, Turn}};
/// async fn late(receipts: &Receipts, tx: Transaction<'_>, call: &Call) -> Result<(), Fault> {
///     if let Turn::Fresh(permit) = receipts.begin_tx(&tx, call).await? {
///         tx.commit().await?;
///         permit.record(&1).await?;
///     }
///     Ok(())
/// }
/// ```
#[must_use = "a write without its receipt can run twice: record it, or roll back"]
pub struct Permit<'t> {
    receipts: &'t Receipts,
    tx: &'t Transaction<'t>,
    call: &'t Call,
    reading: &'t Reading,
    begun: SystemTime,
}

impl std::fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("request_id", &self.call.request_id.short()).finish_non_exhaustive()
    }
}

impl Receipts {
    /// Brings the ledger's tables up to date, as the role that owns them.
    ///
    /// # Errors
    /// As [`migrate()`].
    pub async fn install(client: &mut Client) -> Result<Self, OpenError> {
        migrate(client).await?;
        Self::open(client).await
    }

    /// For a database whose tables are there: changes nothing.
    ///
    /// # Errors
    /// [`OpenError::NotMigrated`] and [`OpenError::TooNew`].
    pub async fn open(client: &impl GenericClient) -> Result<Self, OpenError> {
        Ok(Self { epoch: Current::new(verify(client).await?), result_limit: limits::RESULT })
    }

    /// The identity of this database's history.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    /// Looks `call` up in `tx`. Ask for access first: this does not.
    ///
    /// # Errors
    /// [`Fault::Refused`] with the answer, or the database's own.
    pub async fn begin_tx<'t>(&'t self, tx: &'t Transaction<'_>, call: &'t Call) -> Result<Turn<'t>, Fault> {
        let found = find(&Once(tx), Key::from(call)).await?;
        match decide(found.receipt.as_ref(), call, found.now) {
            Decision::Fresh(reading) => {
                Ok(Turn::Fresh(Permit { receipts: self, tx, call, reading, begun: found.begun }))
            }
            Decision::Replay(committed, result) => Ok(Turn::Replay(self.replay(call, committed, result))),
            Decision::Refuse(refusal) => Err(refusal.into()),
        }
    }

    /// What the answer is, now that a try of `call` has met `fault` and was rolled back: a rival's receipt decides
    /// if there is one, `fault` if there is none. Ask for access again first: this does not.
    ///
    /// # Errors
    /// [`Fault::Refused`] with the receipt's answer; `fault` itself; or the database's own.
    pub async fn judge<C>(&self, client: &C, call: &Call, fault: Fault) -> Result<Reply, Fault>
    where
        C: GenericClient + Sync,
    {
        if unavailable(&fault) {
            return Err(fault);
        }
        let found = find(&Once(client), Key::from(call)).await?;
        match decide(found.receipt.as_ref(), call, found.now) {
            Decision::Fresh(_) => Err(fault),
            Decision::Replay(committed, result) => Ok(self.replay(call, committed, result)),
            Decision::Refuse(refusal) => Err(refusal.into()),
        }
    }

    pub(super) fn replay(&self, call: &Call, committed: &Committed, result: &str) -> Reply {
        Reply {
            result: result.into(),
            request_id: call.request_id.clone(),
            replayed: true,
            committed_at: committed.at,
            epoch: self.epoch.get(),
            current: None,
        }
    }

    /// Step 11: the receipt beside the write, in the transaction that began at `begun`.
    pub(super) async fn record(
        &self,
        run: &impl Run,
        call: &Call,
        reading: &Reading,
        result: Box<str>,
        begun: SystemTime,
    ) -> Result<Reply, Fault> {
        if result.len() > self.result_limit {
            return Err(Refusal::result_too_large(self.result_limit).into());
        }
        bounded(reading)?;
        let committed_at =
            insert(run, Key::from(call), reading, call.stored(reading), &result, begun).await?;
        Ok(self.fresh(call, committed_at, result))
    }

    pub(super) fn fresh(&self, call: &Call, committed_at: Timestamp, result: Box<str>) -> Reply {
        Reply {
            result,
            request_id: call.request_id.clone(),
            replayed: false,
            committed_at,
            epoch: self.epoch.get(),
            current: None,
        }
    }
}

/// What the receipt keeps of the arguments has its bound.
pub(super) fn bounded(reading: &Reading) -> Result<(), Refusal> {
    if reading.intent.text().len() > limits::INTENT {
        let problem = format!("are larger than {} bytes", limits::INTENT);
        return Err(Refusal::invalid_arguments(vec![FieldError::new("", problem)]));
    }
    Ok(())
}

/// An answer about access reveals no receipt.
fn unavailable(fault: &Fault) -> bool {
    let hides = |refusal: &Refusal| matches!(refusal.code(), Code::ResourceUnavailable | Code::Forbidden);
    matches!(fault, Fault::Refused(refusal) if hides(refusal))
}

impl<'t> Permit<'t> {
    /// Records `result` as what the call did. The reply is true once the caller's transaction has committed.
    ///
    /// Waits for a rival that is recording the same request id; if the rival commits, that is an error here, and
    /// [`Receipts::judge`] tells the rival's answer.
    ///
    /// # Errors
    /// `result_too_large`, or the database's own: roll back on any.
    pub fn record<T: serde::Serialize>(
        self,
        result: &T,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + use<'t, T> {
        let json = serde_json::to_string(result).map_err(|error| Fault::Broken(error.to_string()));
        async move {
            let run = Once(self.tx);
            self.receipts.record(&run, self.call, self.reading, json?.into(), self.begun).await
        }
    }

    /// Gives the permit back: the handler's write changed nothing. Roll back.
    ///
    /// Looks again, because the write may have waited for a rival with the same request id: its receipt decides.
    ///
    /// # Errors
    /// The receipt's answer; `refusal` if there is no receipt; or the database's own.
    pub async fn refuse(self, refusal: Refusal) -> Result<Reply, Fault> {
        self.receipts.judge(self.tx, self.call, refusal.into()).await
    }
}

/// Commits `tx`, surely. PostgreSQL answers the COMMIT of a failed transaction with a rollback and without an error:
/// if a statement after [`Permit::record`] failed and nobody looked, `tx.commit()` alone would tell a success.
///
/// An error whose connection is closed leaves the outcome unknown: make the same call again on a new connection.
///
/// # Errors
/// The database's own.
pub async fn commit(tx: Transaction<'_>) -> Result<(), Fault> {
    tx.batch_execute("SET LOCAL statement_timeout = 0").await?;
    Ok(tx.commit().await?)
}
