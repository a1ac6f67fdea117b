//! The built-in tools on SQLite, each in one transaction.

use counterfoil::Fault;
use counterfoil::sqlite::{Record, Tx, find_record, void};
use counterfoil_core::Refusal;

use super::super::operation::{Question, voided};
use super::execute::Context;
use super::write::may;

/// `operation_status`, in one read transaction.
pub(super) fn status(question: &Question, tx: &Tx<'_>, epoch: &str) -> Result<String, Fault> {
    member(question, tx)?;
    let record = find_record(tx, question.key(question.write()?))?;
    let state = question.state(record.as_ref(), tx.now())?;
    body(question, tx, state, record.as_ref(), epoch)
}

/// `void_operation`, in the writer's transaction.
pub(super) fn make_void(question: &Question, tx: &Tx<'_>, epoch: &str) -> Result<String, Fault> {
    member(question, tx)?;
    let write = question.write()?;
    let state = voided(void(tx, question.key(write), write.contract.windows)?);
    let record = find_record(tx, question.key(write))?;
    body(question, tx, state, record.as_ref(), epoch)
}

fn member(question: &Question, tx: &Tx<'_>) -> Result<(), Fault> {
    let member = may(tx, &question.plan, None, &Context::of(&question.principal))?;
    if member { Ok(()) } else { Err(Refusal::resource_unavailable().into()) }
}

fn body(
    question: &Question,
    tx: &Tx<'_>,
    state: &str,
    record: Option<&Record>,
    epoch: &str,
) -> Result<String, Fault> {
    let mut result = None;
    if let Some((reading, kept)) = question.kept(record, tx.now())
        && may(tx, &question.plan, question.rule(&reading), &question.context(&reading))?
    {
        result = Some(kept);
    }
    Ok(question.body(state, record, result, epoch)?)
}
