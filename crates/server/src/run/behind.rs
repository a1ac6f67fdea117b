//! Rows held against their receipts: a version that is behind what a receipt says was written has gone back.

use counterfoil::sqlite::Record;
use counterfoil_core::{Reading, Receipt, RequestId};
use serde_json::Value;

use super::operation::recorded;
use crate::plan::{Kind, Plan, Statement, Write};

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

/// What a receipt tells of its row.
pub(super) struct Told<'a> {
    /// The arguments of the operation.
    pub(super) reading: Reading,
    /// How the row is read now.
    pub(super) query: &'a Statement,
    column: &'a str,
    written: i64,
}

impl<'a> Told<'a> {
    /// `None` if its tool has no `current` query, or its result no integer version.
    pub(super) fn of(plan: &'a Plan, record: &Record) -> Option<Self> {
        let write = plan.tools.iter().find_map(|tool| match &tool.kind {
            Kind::Write(write) if write.contract.ledger_name == record.tool => Some(write),
            Kind::Write(_) | Kind::Read(_) => None,
        })?;
        let column = &*write.version.as_ref()?.column;
        let query = write.current.as_ref()?;
        let (reading, written) = written(write, record, column)?;
        Some(Self { reading, query, column, written })
    }

    /// Is `row`, as it is now, behind?
    pub(super) fn behind(&self, record: &Record, row: Option<&str>) -> Option<Behind> {
        let now = version(row?, self.column)?;
        let behind = Behind { request_id: record.request_id.clone(), written: self.written, now };
        (now < self.written).then_some(behind)
    }
}

/// The arguments of an operation, and the version that it says it wrote.
fn written(write: &Write, record: &Record, column: &str) -> Option<(Reading, i64)> {
    let Receipt::Committed(committed) = &record.receipt else { return None };
    let reading = recorded(write, committed, record.intent.as_deref()?)?;
    Some((reading, version(committed.result.as_deref()?, column)?))
}

fn version(row: &str, column: &str) -> Option<i64> {
    serde_json::from_str::<Value>(row).ok()?.get(column)?.as_i64()
}
