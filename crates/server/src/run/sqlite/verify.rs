//! Rows held against their receipts: a version that is behind what a receipt says was written has gone back.

use counterfoil::Fault;
use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Record, Tx, walk};
use counterfoil_core::{Receipt, RequestId, Timestamp};
use serde_json::Value;

use super::super::operation::recorded;
use super::execute::{Context, first};
use crate::plan::{Kind, Plan, Write};

/// A row whose version is behind its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// The operation whose result says a higher version.
    pub request_id: RequestId,
    /// The version that it wrote.
    pub written: i64,
    /// The version of the row now.
    pub now: i64,
}

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
    let Some(write) = plan.tools.iter().find_map(|tool| match &tool.kind {
        Kind::Write(write) if write.contract.ledger_name == record.tool => Some(write),
        Kind::Write(_) | Kind::Read(_) => None,
    }) else {
        return Ok(None);
    };
    let (Some(column), Some(query)) = (&write.version, &write.current) else { return Ok(None) };
    let Some((reading, written)) = told(write, record, &column.column) else { return Ok(None) };
    let principal = record.principal();
    let context = Context {
        request_id: Some(&record.request_id),
        intent: Some(&reading.intent),
        ..Context::of(&principal)
    };
    let row = first(tx, query, &context, plan.limits.result)?;
    let now = row.as_deref().and_then(|row| version(row, &column.column));
    let behind = |now| Behind { request_id: record.request_id.clone(), written, now };
    Ok(now.filter(|now| *now < written).map(behind))
}

/// The arguments of an operation, and the version that it says it wrote.
fn told(write: &Write, record: &Record, column: &str) -> Option<(counterfoil_core::Reading, i64)> {
    let Receipt::Committed(committed) = &record.receipt else { return None };
    let reading = recorded(write, committed, record.intent.as_deref()?)?;
    Some((reading, version(committed.result.as_deref()?, column)?))
}

fn version(row: &str, column: &str) -> Option<i64> {
    serde_json::from_str::<Value>(row).ok()?.get(column)?.as_i64()
}
