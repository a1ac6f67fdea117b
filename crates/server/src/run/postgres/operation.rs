//! The built-in tools on PostgreSQL.

use counterfoil::Fault;
use counterfoil::postgres::{Record, Tx, Void, find_record};
use counterfoil_core::Refusal;

use super::super::operation::{self, Question};
use super::execute::{Context, Mode, prepare_session};
use super::write::may;

/// `operation_status`, in one snapshot.
pub(super) async fn status(tx: &Tx, question: &Question, epoch: &str) -> Result<String, Fault> {
    member(tx, question).await?;
    let record = find_record(tx, question.key(question.write()?)).await?;
    let state = question.state(record.as_ref(), tx.now())?;
    body(tx, question, state, record.as_ref(), epoch).await
}

/// The caller must be a member.
pub(super) async fn member(tx: &Tx, question: &Question) -> Result<(), Fault> {
    prepare_session(tx, &question.plan, &question.principal).await?;
    let member = may(tx, &question.plan, None, &Context::of(&question.principal), Mode::Reading).await?;
    if member { Ok(()) } else { Err(Refusal::resource_unavailable().into()) }
}

/// What is told after a void.
pub(super) async fn voided(tx: &Tx, question: &Question, void: Void, epoch: &str) -> Result<String, Fault> {
    prepare_session(tx, &question.plan, &question.principal).await?;
    let record = find_record(tx, question.key(question.write()?)).await?;
    body(tx, question, operation::voided(void), record.as_ref(), epoch).await
}

async fn body(
    tx: &Tx,
    question: &Question,
    state: &str,
    record: Option<&Record>,
    epoch: &str,
) -> Result<String, Fault> {
    let mut result = None;
    if let Some((reading, kept)) = question.kept(record, tx.now()) {
        let rule = question.rule(&reading);
        if may(tx, &question.plan, rule, &question.context(&reading), Mode::Reading).await? {
            result = Some(kept);
        }
    }
    Ok(question.body(state, record, result, epoch)?)
}
