//! Running one checked statement: bind what the plan says, step through its rows.

use counterfoil::Fault;
use counterfoil::rusqlite::types::{ToSqlOutput, Value, ValueRef};
use counterfoil::rusqlite::{CachedStatement, Row};
use counterfoil::sqlite::Tx;
use counterfoil_core::Argument;

use super::super::context::{self, Given};
use super::rows;
use crate::plan::{Bind, Statement};

/// What a statement of SQLite may bind.
pub(super) type Context<'a> = context::Context<'a, Value>;

fn value<'a>(given: Given<'a, Value>, now: &'a str) -> ToSqlOutput<'a> {
    let text = |text: &'a str| ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()));
    match given {
        Given::Text(given) => text(given),
        Given::Now => text(now),
        Given::Argument(given) => argument(given),
        Given::Earlier(value) => ToSqlOutput::Borrowed(ValueRef::from(value)),
        Given::Nothing => NULL,
    }
}

const NULL: ToSqlOutput<'static> = ToSqlOutput::Borrowed(ValueRef::Null);

fn argument(argument: &Argument) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match argument {
        Argument::Null => ValueRef::Null,
        Argument::Boolean(value) => ValueRef::Integer(i64::from(*value)),
        Argument::Integer(value) => ValueRef::Integer(*value),
        Argument::Number(value) => ValueRef::Real(*value),
        Argument::Text(text) | Argument::Json(text) => ValueRef::Text(text.as_bytes()),
    })
}

fn bound<'t>(
    tx: &'t Tx<'_>,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<CachedStatement<'t>, Fault> {
    tx.statement();
    let mut prepared = tx.prepare_cached(&statement.sql)?;
    let now = if statement.binds.contains(&Bind::Now) { tx.now().to_string() } else { String::new() };
    for (at, bind) in (1..).zip(&statement.binds) {
        prepared.raw_bind_parameter(at, value(context.given(bind), &now))?;
    }
    Ok(prepared)
}

/// Does the statement find a row?
pub(super) fn finds(tx: &Tx<'_>, statement: &Statement, context: &Context<'_>) -> Result<bool, Fault> {
    Ok(bound(tx, statement, context)?.raw_query().next()?.is_some())
}

/// Runs the statement to its end and shows each row to `see`; tells how many rows it changed, or returned.
pub(super) fn each(
    tx: &Tx<'_>,
    statement: &Statement,
    context: &Context<'_>,
    mut see: impl FnMut(&Row<'_>) -> Result<Next, Fault>,
) -> Result<usize, Fault> {
    let mut prepared = bound(tx, statement, context)?;
    if statement.columns.is_empty() {
        return Ok(prepared.raw_execute()?);
    }
    let mut rows = prepared.raw_query();
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        match see(row)? {
            Next::Go => {}
            Next::Stop => break,
        }
    }
    Ok(seen)
}

/// Whether more rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    Stop,
}

/// The first row as JSON, `None` if there is none.
pub(super) fn first(
    tx: &Tx<'_>,
    statement: &Statement,
    context: &Context<'_>,
    limit: usize,
) -> Result<Option<String>, Fault> {
    let mut found = None;
    each(tx, statement, context, |row| {
        let mut out = String::new();
        rows::object(&mut out, row, &statement.columns, limit)?;
        found = Some(out);
        Ok(Next::Stop)
    })?;
    Ok(found)
}
