//! A declared write as the ledger's handler: access, the statements under their conditions, the row as it is now.

use counterfoil::Fault;
use counterfoil::rusqlite::types::Value;
use counterfoil::sqlite::{Handler, Rule, Tx};
use counterfoil_core::{Argument, Reading, Refusal};

use super::super::writing::{Found, Rows, Writing, left_out};
use super::execute::{Context, Next, each, finds, first};
use super::rows;
use crate::plan::{Plan, Statement, Step};

impl Handler for Writing {
    fn access(&mut self, tx: &Tx<'_>, rule: Rule<'_>) -> Result<bool, Fault> {
        let Some(reading) = self.reading(rule) else { return Ok(false) };
        may(tx, &self.plan, self.rule(rule, reading), &self.context(reading))
    }

    fn write(&mut self, tx: &Tx<'_>, reading: &Reading) -> Result<Box<str>, Fault> {
        let mut run =
            Run { writing: self, reading, rows: Vec::new(), result: Rows::default(), changed: false };
        for (at, step) in self.write.steps.iter().enumerate() {
            run.step(tx, at, step)?;
        }
        Ok(run.result.result(self.write.returns))
    }

    fn current(&mut self, tx: &Tx<'_>) -> Result<Option<Box<str>>, Fault> {
        Ok(shown(self, tx).unwrap_or_else(left_out))
    }

    fn alone(&self) -> bool {
        self.write.alone
    }
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

/// The row as it is now, if the ordinary rule passes.
fn shown(writing: &Writing, tx: &Tx<'_>) -> Result<Option<Box<str>>, Fault> {
    let (Some(query), Some(live)) = (&writing.write.current, writing.call.live()) else { return Ok(None) };
    let context = writing.context(live);
    if !may(tx, &writing.plan, writing.tool.access.as_ref(), &context)? {
        return Ok(None);
    }
    let row = first(tx, query, &context, writing.plan.limits.result)?;
    Ok(Some(row.unwrap_or_else(|| "null".into()).into()))
}

/// The row that a statement did not find as it wanted it.
fn found(writing: &Writing, tx: &Tx<'_>, reading: &Reading, query: &Statement) -> Result<Found, Fault> {
    let column = writing.version_column(query);
    let mut found = Found { current: Some("null".into()), as_expected: false };
    each(tx, query, &writing.context(reading), |row| {
        let mut out = String::new();
        rows::object(&mut out, row, &query.columns, writing.plan.limits.result)?;
        found.current = Some(out.into());
        let seen = column.map(|column| row.get::<_, Value>(column)).transpose()?;
        found.as_expected = seen.is_some_and(|seen| is(&seen, writing.expected(reading)));
        Ok(Next::Stop)
    })?;
    Ok(found)
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
    writing: &'a Writing,
    reading: &'a Reading,
    /// First row of each step, for those that bind `:step.column`.
    rows: Vec<Vec<Value>>,
    result: Rows,
    changed: bool,
}

impl Run<'_> {
    fn step(&mut self, tx: &Tx<'_>, at: usize, step: &Step) -> Result<(), Fault> {
        let write = &self.writing.write;
        let (limit, statement) = (self.writing.plan.limits.result, &step.statement);
        let (mut kept, mut first) = (Rows::default(), Vec::new());
        let context = Context { earlier: &self.rows, ..self.writing.context(self.reading) };
        let count = each(tx, statement, &context, |row| {
            if first.is_empty() {
                first = values(row, statement.columns.len())?;
            }
            if write.result == Some(at) {
                let mut out = String::new();
                rows::object(&mut out, row, &statement.columns, limit)?;
                kept.push(out, limit)?;
            }
            Ok(Next::Go)
        })?;
        if count == 0 && !step.may_change_nothing {
            return Err(self.unmet(tx, step).into());
        }
        if write.result == Some(at) {
            kept.fit(write.returns)?;
            self.result = kept;
        }
        self.changed |= count > 0;
        self.rows.push(first);
        Ok(())
    }

    /// A statement changed nothing that had to change something: why?
    fn unmet(&self, tx: &Tx<'_>, step: &Step) -> Refusal {
        let query = self.writing.question(self.changed);
        let found = query.map(|query| found(self.writing, tx, self.reading, query).unwrap_or_else(left_out));
        self.writing.unmet(step, found.unwrap_or_default())
    }
}

fn values(row: &counterfoil::rusqlite::Row<'_>, columns: usize) -> Result<Vec<Value>, Fault> {
    Ok((0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?)
}
