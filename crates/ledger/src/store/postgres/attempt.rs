//! The order of a write call, from access to commit: the one function through which every entry point goes.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use counterfoil_core::{Call, Decision, Reading, Receipt, Refusal, Reply, decide};
use deadpool::managed::Object;
use futures_util::FutureExt;

use super::declared::Values;
use super::doubt::Doubt;
use super::error::raced;
use super::flush::at_once;
use super::pool::Manager;
use super::receipts::insert_void;
use super::retry::{Attempt, Boxed, Setback};
use super::turn::Receipts;
use super::tx::Tx;
use crate::fault::Fault;
use crate::key::Key;
use crate::rule::{Rule, same_operation};

/// One step of a handler: boxed, because async closures over a borrowed transaction cannot be spawned today.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// What a tool does, step by step. A step may run more than once, each time in a transaction that has forgotten
/// the time before: keep nothing between steps.
pub trait Handler: Send + 'static {
    /// Step 7: may the caller touch the resource *now*? Membership and access rule.
    ///
    /// The row may move between this and the write: repeat the condition in the write, or end in `FOR SHARE`.
    ///
    /// # Errors
    /// Whatever a statement met.
    fn access<'a>(&'a mut self, tx: &'a Tx, rule: Rule<'a>) -> Step<'a, bool>;

    /// Step 10: the write, with its version condition; the result as JSON text.
    ///
    /// # Errors
    /// `version_conflict` and the like as [`Fault::Refused`], or whatever a statement met.
    fn write<'a>(&'a mut self, tx: &'a Tx, reading: &'a Reading) -> Step<'a, Box<str>>;

    /// The write, the access rule and the rest, if all of it is one statement that the ledger may compose and send
    /// at once, and the values of this call. The steps above must do the same: they serve where this is not enough.
    fn declared(&mut self) -> Option<Values<'_>> {
        None
    }

    /// Why a declared write found no row: `current` is the row as it is now, if the tool can read it and the ordinary
    /// rule passes; `null` if it is gone.
    fn unchanged(&mut self, current: Option<Box<str>>) -> Refusal {
        Refusal::version_conflict(current)
    }

    /// As [`Handler::unchanged`], of the statement at `statement` of a declared list.
    fn unmet(&mut self, statement: usize, current: Option<Box<str>>) -> Refusal {
        let _ = statement;
        self.unchanged(current)
    }

    /// The row as it is now, for a replay: JSON, if the tool can read it and the ordinary rule passes.
    ///
    /// # Errors
    /// Whatever a statement met.
    fn current<'a>(&'a mut self, tx: &'a Tx) -> Step<'a, Option<Box<str>>> {
        let _ = tx;
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A write call on its way to an answer.
pub(super) struct Writing<H> {
    pub(super) receipts: Receipts,
    pub(super) call: Arc<Call>,
    pub(super) handler: H,
    /// Has it the look of a retry?
    pub(super) retry: bool,
}

/// What the ledger already knows of a call.
enum Seen<'a> {
    /// Nothing: it may write.
    Fresh(&'a Reading),
    /// A receipt answers it.
    Answered(Result<Reply, Refusal>),
}

/// How far one transaction came.
enum Done {
    /// The receipt is inserted: commit.
    Written(Reply),
    /// A receipt answered.
    Answered(Result<Reply, Refusal>),
}

impl<H: Handler> Attempt for Writing<H> {
    type Answer = Reply;

    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<Reply, Setback>> {
        let (receipts, call, handler) = (&self.receipts, &*self.call, &mut self.handler);
        let (mut tx, retry) = (Tx::new(connection), self.retry);
        Box::pin(async move {
            match at_once(receipts, call, handler, &mut tx, doubt, retry).await {
                Some(answer) => answer,
                None => attempt(receipts, call, handler, tx, doubt).await,
            }
        })
    }
}

/// Steps 6 to 12.
async fn attempt(
    receipts: &Receipts,
    call: &Call,
    handler: &mut dyn Handler,
    mut tx: Tx,
    doubt: &Doubt,
) -> Result<Reply, Setback> {
    let receipt = tx.begin(Key::from(call)).await?;
    let met = match write(receipts, call, handler, &tx, receipt.as_ref()).await {
        Ok(Done::Answered(answer)) => return answered(&mut tx, answer, doubt).await,
        Ok(Done::Written(reply)) => match tx.commit(doubt).await {
            Ok(()) => return Ok(reply),
            Err(setback) => setback,
        },
        Err(fault) => fault.into(),
    };
    match met {
        // What is open is severed: nobody knows what is still running on it.
        Setback::Lost | Setback::Doubt => Err(met),
        Setback::Again => {
            tx.rollback();
            Err(met)
        }
        Setback::Failed(verdict) => {
            tx.rollback();
            judge(receipts, call, handler, &mut tx, verdict, doubt).await
        }
    }
}

/// Steps 7 to 11.
async fn write(
    receipts: &Receipts,
    call: &Call,
    handler: &mut dyn Handler,
    tx: &Tx,
    receipt: Option<&Receipt>,
) -> Result<Done, Fault> {
    match look(receipts, call, handler, tx, receipt).await? {
        Seen::Answered(answer) => Ok(Done::Answered(answer)),
        Seen::Fresh(reading) => {
            let result = guarded(async { handler.write(tx, reading).await }).await?;
            let reply = receipts.record(tx.connection(), call, reading, result, tx.begun()).await?;
            Ok(Done::Written(reply))
        }
    }
}

/// Steps 7 to 9: access now, and only then what the receipt says.
async fn look<'a>(
    receipts: &Receipts,
    call: &'a Call,
    handler: &mut dyn Handler,
    tx: &Tx,
    receipt: Option<&Receipt>,
) -> Result<Seen<'a>, Fault> {
    let rule = same_operation(receipt, call).map_or(Rule::Ordinary, Rule::Replay);
    if !guarded(async { handler.access(tx, rule).await }).await? {
        return Err(Refusal::resource_unavailable().into());
    }
    match decide(receipt, call, tx.now()) {
        Decision::Fresh(reading) => Ok(Seen::Fresh(reading)),
        Decision::Refuse(refusal) if receipt.is_none() => Err(refusal.into()),
        Decision::Refuse(refusal) => Ok(Seen::Answered(Err(refusal))),
        Decision::Replay(committed, result) => {
            let reply = receipts.replay(call, committed, result);
            let current = guarded(async { handler.current(tx).await }).await?;
            Ok(Seen::Answered(Ok(Reply { current, ..reply })))
        }
    }
}

/// The write failed, or changed nothing, or access was not given, and none of it is an answer yet: the write ran
/// before a rival's receipt could be known. A new transaction re-reads receipt and access; what they say comes first.
pub(super) async fn judge(
    receipts: &Receipts,
    call: &Call,
    handler: &mut dyn Handler,
    tx: &mut Tx,
    verdict: Fault,
    doubt: &Doubt,
) -> Result<Reply, Setback> {
    if doubt.raised() {
        wait_for_older_try(call, tx, doubt).await?;
    }
    let receipt = tx.begin(Key::from(call)).await?;
    match look(receipts, call, handler, tx, receipt.as_ref()).await {
        Ok(Seen::Answered(answer)) => answered(tx, answer, doubt).await,
        Ok(Seen::Fresh(_)) => {
            tx.rollback();
            Err(verdict.into())
        }
        Err(fault) => {
            let setback = Setback::from(fault);
            if !matches!(setback, Setback::Lost) {
                tx.rollback();
            }
            Err(setback)
        }
    }
}

/// An older try has sent its COMMIT, so its receipt is in the unique index, and an insertion under the same key
/// waits for it and tells whether it is in. What is inserted here for that is rolled back.
async fn wait_for_older_try(call: &Call, tx: &mut Tx, doubt: &Doubt) -> Result<(), Setback> {
    let key = Key::from(call);
    let _ = tx.begin(key).await?;
    match insert_void(tx.connection(), key).await {
        Ok(()) => doubt.waited(),
        Err(Fault::Postgres(error)) if raced(&error) => {}
        Err(fault) => {
            let setback = Setback::from(fault);
            if !matches!(setback, Setback::Lost) {
                tx.rollback();
            }
            return Err(setback);
        }
    }
    tx.rollback();
    Ok(())
}

/// A receipt answers; but a replay is evidence, so it must be as durable as it looks. A connection that has made no
/// commit since it was opened may see one that a standby never got.
pub(super) async fn answered(
    tx: &mut Tx,
    answer: Result<Reply, Refusal>,
    doubt: &Doubt,
) -> Result<Reply, Setback> {
    if tx.fenced() && !doubt.raised() {
        tx.rollback();
    } else {
        tx.fence(doubt).await?;
    }
    Ok(answer?)
}

/// Runs a step that others wrote: a panic in it is rolled back and answered `internal`.
pub(super) async fn guarded<T>(step: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let done = AssertUnwindSafe(step).catch_unwind().await;
    done.unwrap_or_else(|_| Err(Fault::Broken("a handler panicked".into())))
}
