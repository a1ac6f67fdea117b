//! Rows of SQLite held against their receipts.

use counterfoil::Fault;
use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Record, Tx, walk};
use counterfoil_core::Timestamp;

use super::super::behind::{Behind, Told};
use super::execute::{Context, first};
use crate::plan::Plan;

/// Shows every row of which a tool of `plan` can tell, by its `current` query and an integer version in its result,
/// that it is behind one of its receipts. Rows that are gone, or out of their principal's reach, are not.
///
/// # Errors
/// The database's own.
pub fn behind(
    plan: &Plan,
    connection: &Connection,
    now: Timestamp,
    mut see: impl FnMut(Behind),
) -> Result<(), Fault> {
    let tx = Tx::looking(connection, now);
    walk(connection, |record| {
        let Ok(record) = record else { return Ok(()) };
        if let Some(behind) = compare(plan, &tx, &record)? {
            see(behind);
        }
        Ok(())
    })
}

fn compare(plan: &Plan, tx: &Tx<'_>, record: &Record) -> Result<Option<Behind>, Fault> {
    let Some(told) = Told::of(plan, record) else { return Ok(None) };
    let principal = record.principal();
    let context = Context {
        request_id: Some(&record.request_id),
        intent: Some(&told.reading.intent),
        ..Context::of(&principal)
    };
    Ok(told.behind(record, first(tx, told.query, &context, plan.limits.result)?.as_deref()))
}
