//! The order of a write call, from access to receipt: the one function through which every entry point goes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use counterfoil_core::{Call, Committed, Decision, Reading, Receipt, Refusal, Reply, decide};

use super::receipts;
use super::turn::Receipts;
use super::tx::Tx;
use crate::fault::Fault;
use crate::key::Key;
use crate::rule::{Rule, same_operation};

/// What a tool does, step by step. A step may run more than once, each time in a transaction that has forgotten
/// the time before: keep nothing between steps.
pub trait Handler: Send + 'static {
    /// Step 7: may the caller touch the resource *now*? Membership and access rule.
    ///
    /// # Errors
    /// Whatever a statement met.
    fn access(&mut self, tx: &Tx<'_>, rule: Rule<'_>) -> Result<bool, Fault>;

    /// Step 10: the write, with its version condition; the result as JSON text.
    ///
    /// # Errors
    /// `version_conflict` and the like as [`Fault::Refused`], or whatever a statement met.
    fn write(&mut self, tx: &Tx<'_>, reading: &Reading) -> Result<Box<str>, Fault>;

    /// The row as it is now, for a replay: JSON, if the tool can read it and the ordinary rule passes.
    ///
    /// # Errors
    /// Whatever a statement met.
    fn current(&mut self, tx: &Tx<'_>) -> Result<Option<Box<str>>, Fault> {
        let _ = tx;
        Ok(None)
    }

    /// Writes tables with deferrable constraints: their failure shows only at COMMIT, so the call has it alone.
    fn alone(&self) -> bool {
        false
    }
}

/// What the ledger already knows of a call.
enum Seen<'a> {
    /// Nothing: it may write.
    Fresh(&'a Reading),
    /// A receipt answers it.
    Answered(Result<Reply, Refusal>),
}

/// Steps 7 to 11. Step 12, commit, is the writer's; only then is anything answered.
pub(super) fn attempt(
    receipts: &Receipts,
    tx: &Tx<'_>,
    call: &Call,
    handler: &mut dyn Handler,
) -> Result<Reply, Fault> {
    match look(receipts, tx, call, handler)? {
        Seen::Answered(answer) => Ok(answer?),
        Seen::Fresh(reading) => {
            tx.statement();
            let result = handler.write(tx, reading)?;
            tx.statement();
            receipts.record(tx, call, reading, result, tx.now())
        }
    }
}

/// Steps 7 to 9: access now, and only then what the receipt says.
fn look<'a>(
    receipts: &Receipts,
    tx: &Tx<'_>,
    call: &'a Call,
    handler: &mut dyn Handler,
) -> Result<Seen<'a>, Fault> {
    let receipt = receipts::find(tx, Key::from(call))?;
    judge(receipts, tx, call, handler, receipt)
}

/// As [`look`], where only a receipt answers: without one nothing more is asked, least of all the handler.
pub(super) fn glance(
    receipts: &Receipts,
    tx: &Tx<'_>,
    call: &Call,
    handler: &mut dyn Handler,
) -> Result<Option<Result<Reply, Refusal>>, Fault> {
    let Some(receipt) = receipts::find(tx, Key::from(call))? else { return Ok(None) };
    match judge(receipts, tx, call, handler, Some(receipt))? {
        Seen::Answered(answer) => Ok(Some(answer)),
        Seen::Fresh(_) => Ok(None),
    }
}

fn judge<'a>(
    receipts: &Receipts,
    tx: &Tx<'_>,
    call: &'a Call,
    handler: &mut dyn Handler,
    receipt: Option<Receipt>,
) -> Result<Seen<'a>, Fault> {
    let rule = same_operation(receipt.as_ref(), call).map_or(Rule::Ordinary, Rule::Replay);
    tx.statement();
    if !handler.access(tx, rule)? {
        return Err(Refusal::resource_unavailable().into());
    }
    match decide(receipt.as_ref(), call, tx.now()) {
        Decision::Fresh(reading) => Ok(Seen::Fresh(reading)),
        Decision::Refuse(refusal) if receipt.is_none() => Err(refusal.into()),
        Decision::Refuse(refusal) => Ok(Seen::Answered(Err(refusal))),
        Decision::Replay(committed, result) => replay(receipts, tx, call, handler, committed, result),
    }
}

fn replay<'a>(
    receipts: &Receipts,
    tx: &Tx<'_>,
    call: &Call,
    handler: &mut dyn Handler,
    committed: &Committed,
    result: &str,
) -> Result<Seen<'a>, Fault> {
    let reply = receipts.replay(call, committed, result);
    tx.statement();
    let current = handler.current(tx)?;
    Ok(Seen::Answered(Ok(Reply { current, ..reply })))
}

/// Runs a step that others wrote: a panic in it is rolled back and answered `internal`.
pub(super) fn guarded<T>(step: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err(Fault::Broken("a handler panicked".into())))
}
