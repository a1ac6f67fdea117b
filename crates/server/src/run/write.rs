//! A declared write as the ledger's handler: access, the statements under their conditions, the row as it is now.

use std::sync::Arc;

use counterfoil::Fault;
use counterfoil::rusqlite::types::Value;
use counterfoil::sqlite::{Handler, Rule, Tx};
use counterfoil_core::{Argument, Call, Reading, Refusal};

use super::execute::{Context, Next, each, finds, first};
use super::rows;
use crate::config::WriteReturns;
use crate::plan::{Plan, Statement, Step, Tool, Version, Write};

/// One call of a declared write.
pub(super) struct WriteHandler {
    pub plan: Arc<Plan>,
    pub tool: Arc<Tool>,
    pub write: Arc<Write>,
    pub call: Arc<Call>,
}

impl Handler for WriteHandler {
    fn access(&mut self, tx: &Tx<'_>, rule: Rule<'_>) -> Result<bool, Fault> {
        let Some(reading) = self.reading(rule) else { return Ok(false) };
        let context = self.context(reading);
        may(tx, &self.plan, self.rule(rule, reading), &context)
    }

    fn write(&mut self, tx: &Tx<'_>, reading: &Reading) -> Result<Box<str>, Fault> {
        let mut run = Run { handler: self, reading, rows: Vec::new(), result: Vec::new(), changed: false };
        for (at, step) in self.write.steps.iter().enumerate() {
            run.step(tx, at, step)?;
        }
        Ok(run.result())
    }

    fn current(&mut self, tx: &Tx<'_>) -> Result<Option<Box<str>>, Fault> {
        Ok(self.shown(tx).unwrap_or_else(left_out))
    }

    fn alone(&self) -> bool {
        self.write.alone
    }
}

/// A row that cannot be shown (too large, or its table has changed since the start) is left out: what became of the
/// operation is told all the same.
fn left_out<T: Default>(fault: Fault) -> T {
    tracing::warn!(problem = fault.to_string(), "the current row is left out of an answer");
    T::default()
}

/// Membership and rule, both asked whatever the first says, so that refusals look alike from outside.
pub(super) fn may(
    tx: &Tx<'_>,
    plan: &Plan,
    rule: Option<&Statement>,
    context: &Context<'_>,
) -> Result<bool, Fault> {
    let passes = |statement: Option<&Statement>| match statement {
        None => Ok(true),
        Some(statement) => finds(tx, statement, context),
    };
    let member = passes(plan.membership.as_ref())?;
    let allowed = passes(rule)?;
    Ok(member && allowed)
}

/// The rule that guards the result of an operation recorded under `reading`'s revision.
pub(super) fn replay_rule<'a>(tool: &'a Tool, write: &'a Write, reading: &Reading) -> Option<&'a Statement> {
    match write.retired.iter().find(|retired| retired.revision == reading.revision) {
        Some(retired) => retired.access.as_ref(),
        None => write.replay_access.as_ref().or(tool.access.as_ref()),
    }
}

impl WriteHandler {
    fn context<'a>(&'a self, reading: &'a Reading) -> Context<'a> {
        Context {
            principal: &self.call.principal,
            request_id: Some(&self.call.request_id),
            intent: Some(&reading.intent),
            earlier: &[],
        }
    }

    /// The row as it is now, if the ordinary rule passes.
    fn shown(&self, tx: &Tx<'_>) -> Result<Option<Box<str>>, Fault> {
        let (Some(query), Some(live)) = (&self.write.current, self.call.live()) else { return Ok(None) };
        let context = self.context(live);
        if !may(tx, &self.plan, self.tool.access.as_ref(), &context)? {
            return Ok(None);
        }
        let row = first(tx, query, &context, self.plan.limits.result)?;
        Ok(Some(row.unwrap_or_else(|| "null".into()).into()))
    }

    /// The arguments that the rule binds: those of the operation that committed, else the live ones.
    fn reading<'a>(&'a self, rule: Rule<'a>) -> Option<&'a Reading> {
        match rule {
            Rule::Replay(reading) => Some(reading),
            Rule::Ordinary => self.call.live().or(self.call.retired.first()),
        }
    }

    fn rule(&self, rule: Rule<'_>, reading: &Reading) -> Option<&Statement> {
        let live = reading.revision == self.write.contract.revision;
        match rule {
            Rule::Ordinary if live => self.tool.access.as_ref(),
            Rule::Ordinary | Rule::Replay(_) => replay_rule(&self.tool, &self.write, reading),
        }
    }

    fn found(&self, tx: &Tx<'_>, reading: &Reading, query: &Statement) -> Result<Found, Fault> {
        let column = self.write.version.as_ref().and_then(|version| position(query, version));
        let mut found = Found { current: Some("null".into()), seen: None };
        each(tx, query, &self.context(reading), |row| {
            let mut out = String::new();
            rows::object(&mut out, row, &query.columns, self.plan.limits.result)?;
            found.current = Some(out.into());
            found.seen = column.map(|column| row.get::<_, Value>(column)).transpose()?;
            Ok(Next::Stop)
        })?;
        Ok(found)
    }

    /// A statement changed nothing that had to change something: why?
    fn unmet(&self, tx: &Tx<'_>, reading: &Reading, step: &Step, changed: bool) -> Refusal {
        // What was changed a moment ago is undone with this call: the row as it is now is not the row as it stays.
        let query = self.write.current.as_ref().filter(|_| !changed);
        let found = query.map(|query| self.found(tx, reading, query).unwrap_or_else(left_out));
        let Found { current, seen } = found.unwrap_or_default();
        let expected = self.write.version.as_ref().filter(|_| step.versioned);
        let Some(expected) = expected.map(|version| reading.intent.argument(&version.argument)) else {
            return Refusal::precondition_failed(current);
        };
        if seen.is_some_and(|seen| is(&seen, expected)) {
            return Refusal::precondition_failed(current);
        }
        Refusal::version_conflict(current)
    }
}

/// The row that a write did not find as it wanted it.
#[derive(Default)]
struct Found {
    /// As JSON; `null` if it is gone.
    current: Option<Box<str>>,
    /// Its version, if the query reads it.
    seen: Option<Value>,
}

fn position(query: &Statement, version: &Version) -> Option<usize> {
    query.columns.iter().position(|column| *column.name == *version.column)
}

/// Is the stored version the one the caller expected?
fn is(stored: &Value, expected: Option<&Argument>) -> bool {
    match (stored, expected) {
        (Value::Integer(stored), Some(Argument::Integer(expected))) => stored == expected,
        (Value::Real(stored), Some(Argument::Number(expected))) => stored.to_bits() == expected.to_bits(),
        (Value::Text(stored), Some(Argument::Text(expected))) => **stored == **expected,
        // SQLite compares a number and its text as equal where a column is numeric.
        (Value::Integer(stored), Some(Argument::Text(expected))) => stored.to_string() == **expected,
        (Value::Text(stored), Some(Argument::Integer(expected))) => *stored == expected.to_string(),
        _ => false,
    }
}

/// The statements of one call, as far as they have run.
struct Run<'a> {
    handler: &'a WriteHandler,
    reading: &'a Reading,
    /// First row of each step, for those that bind `:step.column`.
    rows: Vec<Vec<Value>>,
    /// Rows of the step that gives the result, as JSON.
    result: Vec<String>,
    changed: bool,
}

impl Run<'_> {
    fn step(&mut self, tx: &Tx<'_>, at: usize, step: &Step) -> Result<(), Fault> {
        let write = &self.handler.write;
        let (limit, statement) = (self.handler.plan.limits.result, &step.statement);
        let (mut kept, mut first, mut size) = (Vec::new(), Vec::new(), 0);
        let context = Context { earlier: &self.rows, ..self.handler.context(self.reading) };
        let count = each(tx, statement, &context, |row| {
            if first.is_empty() {
                first = values(row, statement.columns.len())?;
            }
            if write.result == Some(at) {
                let mut out = String::new();
                rows::object(&mut out, row, &statement.columns, limit)?;
                size += out.len() + 1;
                if size > limit {
                    return Err(Refusal::result_too_large(limit).into());
                }
                kept.push(out);
            }
            Ok(Next::Go)
        })?;
        if count == 0 && !step.may_change_nothing {
            return Err(self.handler.unmet(tx, self.reading, step, self.changed).into());
        }
        if write.result == Some(at) {
            if write.returns == WriteReturns::Row && count > 1 {
                return Err(Refusal::precondition_failed(None).into());
            }
            self.result = kept;
        }
        self.changed |= count > 0;
        self.rows.push(first);
        Ok(())
    }

    fn result(self) -> Box<str> {
        match self.handler.write.returns {
            WriteReturns::Nothing => "null".into(),
            WriteReturns::Row => self.result.into_iter().next().map_or_else(|| "null".into(), Into::into),
            WriteReturns::Rows => format!("[{}]", self.result.join(",")).into(),
        }
    }
}

fn values(row: &counterfoil::rusqlite::Row<'_>, columns: usize) -> Result<Vec<Value>, Fault> {
    Ok((0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?)
}
