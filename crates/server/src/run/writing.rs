//! One call of a declared write, as far as no store is needed to know it: which rule guards it, what its rows come
//! to, and why a statement that had to change something changed nothing.

use std::sync::Arc;

use counterfoil::Fault;
use counterfoil::sqlite::Rule;
use counterfoil_core::{Argument, Call, Reading, Refusal};

use super::context::Context;
use crate::config::WriteReturns;
use crate::plan::{Plan, Statement, Step, Tool, Version, Write};

/// One call of a declared write. Each store has it as its ledger's handler.
pub(super) struct Writing {
    pub plan: Arc<Plan>,
    pub tool: Arc<Tool>,
    pub write: Arc<Write>,
    pub call: Arc<Call>,
}

/// The rule that guards the result of an operation recorded under `reading`'s revision.
pub(super) fn replay_rule<'a>(tool: &'a Tool, write: &'a Write, reading: &Reading) -> Option<&'a Statement> {
    match write.retired.iter().find(|retired| retired.revision == reading.revision) {
        Some(retired) => retired.access.as_ref(),
        None => write.replay_access.as_ref().or(tool.access.as_ref()),
    }
}

/// A row that cannot be shown (too large, or its table has changed since the start) is left out: what became of the
/// operation is told all the same.
pub(super) fn left_out<T: Default>(fault: Fault) -> T {
    tracing::warn!(problem = fault.to_string(), "the current row is left out of an answer");
    T::default()
}

impl Writing {
    pub(super) fn context<'a, V>(&'a self, reading: &'a Reading) -> Context<'a, V> {
        Context {
            principal: &self.call.principal,
            request_id: Some(&self.call.request_id),
            intent: Some(&reading.intent),
            earlier: &[],
        }
    }

    /// The arguments that the rule binds: those of the operation that committed, else the live ones.
    pub(super) fn reading<'a>(&'a self, rule: Rule<'a>) -> Option<&'a Reading> {
        match rule {
            Rule::Replay(reading) => Some(reading),
            Rule::Ordinary => self.call.live().or(self.call.retired.first()),
        }
    }

    pub(super) fn rule(&self, rule: Rule<'_>, reading: &Reading) -> Option<&Statement> {
        let live = reading.revision == self.write.contract.revision;
        match rule {
            Rule::Ordinary if live => self.tool.access.as_ref(),
            Rule::Ordinary | Rule::Replay(_) => replay_rule(&self.tool, &self.write, reading),
        }
    }

    /// The query that tells why a statement changed nothing. What was changed a moment ago is undone with this call:
    /// then the row as it is now is not the row as it stays.
    pub(super) fn question(&self, changed: bool) -> Option<&Statement> {
        self.write.current.as_ref().filter(|_| !changed)
    }

    /// The column of `query` that holds the version.
    pub(super) fn version_column(&self, query: &Statement) -> Option<usize> {
        let version: &Version = self.write.version.as_ref()?;
        query.columns.iter().position(|column| *column.name == *version.column)
    }

    /// The version that the caller expected.
    pub(super) fn expected<'a>(&self, reading: &'a Reading) -> Option<&'a Argument> {
        reading.intent.argument(&self.write.version.as_ref()?.argument)
    }

    /// A statement changed nothing that had to change something.
    pub(super) fn unmet(&self, step: &Step, found: Found) -> Refusal {
        let versioned = self.write.version.is_some() && step.versioned;
        if !versioned || found.as_expected {
            return Refusal::precondition_failed(found.current);
        }
        Refusal::version_conflict(found.current)
    }
}

/// The row that a write did not find as it wanted it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// As JSON; `null` if it is gone.
    pub current: Option<Box<str>>,
    /// It is still at the version that the caller expected.
    pub as_expected: bool,
}

/// The rows of the step that gives the result, as JSON.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<String>,
    size: usize,
}

impl Rows {
    /// One more; together they may have `limit` bytes.
    pub(super) fn push(&mut self, row: String, limit: usize) -> Result<(), Refusal> {
        self.size += row.len() + 1;
        if self.size > limit {
            return Err(Refusal::result_too_large(limit));
        }
        self.rows.push(row);
        Ok(())
    }

    /// There may be one at most where one is declared.
    pub(super) fn fit(&self, returns: WriteReturns) -> Result<(), Refusal> {
        let several = returns == WriteReturns::Row && self.rows.len() > 1;
        if several { Err(Refusal::precondition_failed(None)) } else { Ok(()) }
    }

    /// The result of the call.
    pub(super) fn result(self, returns: WriteReturns) -> Box<str> {
        match returns {
            WriteReturns::Nothing => "null".into(),
            WriteReturns::Row => self.rows.into_iter().next().map_or_else(|| "null".into(), Into::into),
            WriteReturns::Rows => format!("[{}]", self.rows.join(",")).into(),
        }
    }
}
