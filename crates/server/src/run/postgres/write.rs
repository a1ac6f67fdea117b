//! A declared write as the ledger's handler: access, the statements under their conditions, the row as it is now.

use std::sync::Arc;

use counterfoil::Fault;
use counterfoil::postgres::{Handler, Rule, Step as Doing, Tx, Values};
use counterfoil::tokio_postgres::Row;
use counterfoil::tokio_postgres::types::ToSql;
use counterfoil_core::{Argument, Reading, Refusal};

use super::super::writing::{Found, Rows, Writing, left_out};
use super::declare::{Composed, Declarations, Slot};
use super::execute::{Context, Mode, Next, Raw, each, finds, first, prepare_session};
use super::rows;
use crate::plan::{Plan, Statement, Step};

/// A call, and what its tool is composed to, if it is, with the values of this call.
pub(super) struct Calling {
    writing: Writing,
    composed: Option<(Arc<Composed>, Vec<Slot>)>,
}

impl Calling {
    pub(super) fn new(writing: Writing, declarations: &Declarations) -> Self {
        let composed = declarations.get(&writing.tool.name).and_then(|composed| {
            let values = composed.values(&writing, writing.call.live()?)?;
            Some((Arc::clone(composed), values))
        });
        Self { writing, composed }
    }
}

impl Handler for Calling {
    fn access<'a>(&'a mut self, tx: &'a Tx, rule: Rule<'a>) -> Doing<'a, bool> {
        self.writing.access(tx, rule)
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, reading: &'a Reading) -> Doing<'a, Box<str>> {
        self.writing.write(tx, reading)
    }

    fn declared(&mut self) -> Option<Values<'_>> {
        let (composed, slots) = self.composed.as_ref()?;
        let values = slots.iter().map(|slot| slot as &(dyn ToSql + Sync)).collect();
        Some(Values { declared: &composed.declared, values })
    }

    fn unmet(&mut self, statement: usize, current: Option<Box<str>>) -> Refusal {
        let writing = &self.writing;
        let Some(step) = writing.write.steps.get(statement) else {
            return Refusal::precondition_failed(current);
        };
        let as_expected = writing.call.live().is_some_and(|live| {
            let version = writing.write.version.as_ref();
            let seen = version.and_then(|version| member(current.as_deref()?, &version.column));
            seen.is_some_and(|seen| is(&seen, writing.expected(live)))
        });
        writing.unmet(step, Found { current, as_expected })
    }

    fn current<'a>(&'a mut self, tx: &'a Tx) -> Doing<'a, Option<Box<str>>> {
        self.writing.current(tx)
    }
}

/// The member `name` of a JSON object, without quotes.
fn member(object: &str, name: &str) -> Option<String> {
    let object: serde_json::Value = serde_json::from_str(object).ok()?;
    let value = object.get(name)?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// Step by step.
impl Writing {
    fn access<'a>(&'a mut self, tx: &'a Tx, rule: Rule<'a>) -> Doing<'a, bool> {
        Box::pin(async move {
            prepare_session(tx, &self.plan, &self.call.principal).await?;
            let Some(reading) = self.reading(rule) else { return Ok(false) };
            may(tx, &self.plan, self.rule(rule, reading), &self.context(reading), Mode::Writing).await
        })
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, reading: &'a Reading) -> Doing<'a, Box<str>> {
        Box::pin(async move {
            let mut run =
                Run { writing: self, reading, rows: Vec::new(), result: Rows::default(), changed: false };
            for (at, step) in self.write.steps.iter().enumerate() {
                run.step(tx, at, step).await?;
            }
            Ok(run.result.result(self.write.returns))
        })
    }

    fn current<'a>(&'a mut self, tx: &'a Tx) -> Doing<'a, Option<Box<str>>> {
        Box::pin(async move { shown(self, tx).await })
    }
}

/// Membership and rule, both asked whatever the first says, so that refusals look alike from outside.
pub(super) async fn may(
    tx: &Tx,
    plan: &Plan,
    rule: Option<&Statement>,
    context: &Context<'_>,
    mode: Mode,
) -> Result<bool, Fault> {
    let mut may = true;
    for statement in plan.membership.iter().chain(rule) {
        may &= finds(tx, statement, context, mode).await?;
    }
    Ok(may)
}

/// The row as it is now, if the ordinary rule passes. An error in a transaction is its end: a savepoint is what keeps a
/// row that cannot be shown from taking the answer away.
async fn shown(writing: &Writing, tx: &Tx) -> Result<Option<Box<str>>, Fault> {
    let (Some(query), Some(live)) = (&writing.write.current, writing.call.live()) else { return Ok(None) };
    tx.batch_execute("SAVEPOINT counterfoil_current").await?;
    let context = writing.context(live);
    let looked = async {
        if !may(tx, &writing.plan, writing.tool.access.as_ref(), &context, Mode::Writing).await? {
            return Ok(None);
        }
        let row = first(tx, query, &context, writing.plan.limits.result, Mode::Writing).await?;
        Ok(Some(row.unwrap_or_else(|| "null".into()).into()))
    };
    match looked.await {
        Ok(shown) => Ok(shown),
        Err(fault) => {
            tx.batch_execute("ROLLBACK TO SAVEPOINT counterfoil_current").await?;
            Ok(left_out(fault))
        }
    }
}

/// The row that a statement did not find as it wanted it.
async fn found(writing: &Writing, tx: &Tx, reading: &Reading, query: &Statement) -> Result<Found, Fault> {
    let column = writing.version_column(query);
    let mut found = Found { current: Some("null".into()), as_expected: false };
    let see = |row: &Row| {
        let mut out = String::new();
        rows::object(&mut out, row, &query.columns, writing.plan.limits.result)?;
        found.current = Some(out.into());
        let seen = column.map(|column| rows::plain(row, column)).transpose()?.flatten();
        found.as_expected = seen.is_some_and(|seen| is(&seen, writing.expected(reading)));
        Ok(Next::Stop)
    };
    each(tx, query, &writing.context(reading), Mode::Writing, see).await?;
    Ok(found)
}

/// Is the stored version, as text, the one that the caller expected?
fn is(stored: &str, expected: Option<&Argument>) -> bool {
    match expected {
        Some(Argument::Integer(expected)) => stored == expected.to_string(),
        Some(Argument::Text(expected)) => stored == &**expected,
        Some(Argument::Number(expected)) => stored.parse::<f64>().is_ok_and(|stored| stored == *expected),
        Some(Argument::Null | Argument::Boolean(_) | Argument::Json(_)) | None => false,
    }
}

/// The statements of one call, as far as they have run.
struct Run<'a> {
    writing: &'a Writing,
    reading: &'a Reading,
    /// First row of each step, for those that bind `:step.column`.
    rows: Vec<Vec<Raw>>,
    result: Rows,
    changed: bool,
}

impl Run<'_> {
    async fn step(&mut self, tx: &Tx, at: usize, step: &Step) -> Result<(), Fault> {
        let write = &self.writing.write;
        let (limit, statement) = (self.writing.plan.limits.result, &step.statement);
        let (mut kept, mut first) = (Rows::default(), Vec::new());
        let context = Context { earlier: &self.rows, ..self.writing.context(self.reading) };
        let see = |row: &Row| {
            if first.is_empty() {
                first = (0..row.len()).map(|column| row.try_get(column)).collect::<Result<_, _>>()?;
            }
            if write.result == Some(at) {
                let mut out = String::new();
                rows::object(&mut out, row, &statement.columns, limit)?;
                kept.push(out, limit)?;
            }
            Ok(Next::Go)
        };
        let count = each(tx, statement, &context, Mode::Writing, see).await?;
        if count == 0 && !step.may_change_nothing {
            return Err(self.unmet(tx, step).await.into());
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
    async fn unmet(&self, tx: &Tx, step: &Step) -> Refusal {
        let mut seen = Found::default();
        if let Some(query) = self.writing.question(self.changed) {
            seen = found(self.writing, tx, self.reading, query).await.unwrap_or_else(left_out);
        }
        self.writing.unmet(step, seen)
    }
}
