//! Running one checked statement: bind what the plan says, step through its rows.

use std::error::Error;
use std::pin::pin;

use bytes::BytesMut;
use counterfoil::Fault;
use counterfoil::postgres::Tx;
use counterfoil::tokio_postgres::Row;
use counterfoil::tokio_postgres::types::{FromSql, Type};
use counterfoil_core::Principal;
use futures_util::TryStreamExt;

use super::super::context;
use super::bind::{Bound, bound};
use super::rows;
use crate::plan::{Database, Plan, Statement};

/// What a statement of PostgreSQL may bind.
pub(super) type Context<'a> = context::Context<'a, Raw>;

/// A value of an earlier row, as it came.
#[derive(Debug, Clone)]
pub(super) struct Raw(pub Option<BytesMut>);

impl FromSql<'_> for Raw {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Some(BytesMut::from(raw))))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Whether the transaction can take row locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Writing,
    Reading,
}

/// Whether more rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    Stop,
}

/// The settings that the transaction's row-level security goes by; before any statement of the application's.
pub(super) async fn prepare_session(tx: &Tx, plan: &Plan, principal: &Principal) -> Result<(), Fault> {
    let Database::Postgres(server) = &plan.database else { return Ok(()) };
    let context = Context::of(principal);
    for (name, bind) in &server.session {
        let context::Given::Text(value) = context.given(bind) else { continue };
        let sql = "SELECT set_config($1, $2, true)";
        tx.query_typed(sql, &[(name, Type::TEXT), (&value, Type::TEXT)]).await?;
    }
    Ok(())
}

/// Runs the statement to its end, or as far as `see` wants; tells how many rows it changed, or returned.
pub(super) async fn each(
    tx: &Tx,
    statement: &Statement,
    context: &Context<'_>,
    mode: Mode,
    mut see: impl FnMut(&Row) -> Result<Next, Fault>,
) -> Result<u64, Fault> {
    let unlocked = statement.unlocked.as_deref().filter(|_| mode == Mode::Reading);
    let sql = unlocked.unwrap_or(&statement.sql);
    let values = |kinds: &[Type]| -> Result<Vec<Bound>, Fault> {
        let pairs = statement.binds.iter().zip(kinds);
        pairs.map(|(bind, kind)| bound(bind, &context.given(bind), kind, tx.now())).collect()
    };
    let stream = if tx.keeps_statements() {
        let prepared = tx.prepare_cached(sql).await?;
        let values = values(prepared.params())?;
        if values.len() != prepared.params().len() {
            return Err(Fault::Broken("a statement has other parameters than when it was checked".into()));
        }
        tx.query_raw(&prepared, values).await?
    } else {
        tx.query_typed_raw(sql, values(&statement.kinds)?.into_iter().zip(statement.kinds.clone())).await?
    };
    let mut stream = pin!(stream);
    let mut seen = 0;
    while let Some(row) = stream.try_next().await? {
        seen += 1;
        match see(&row)? {
            Next::Go => {}
            Next::Stop => return Ok(seen),
        }
    }
    let returns = !statement.columns.is_empty();
    Ok(if returns { seen } else { stream.rows_affected().unwrap_or(seen) })
}

/// Does the statement find a row?
pub(super) async fn finds(
    tx: &Tx,
    statement: &Statement,
    context: &Context<'_>,
    mode: Mode,
) -> Result<bool, Fault> {
    let mut found = false;
    // To its end: every row that it locks is meant.
    let see = |_: &Row| {
        found = true;
        Ok(Next::Go)
    };
    each(tx, statement, context, mode, see).await?;
    Ok(found)
}

/// The first row as JSON, `None` if there is none.
pub(super) async fn first(
    tx: &Tx,
    statement: &Statement,
    context: &Context<'_>,
    limit: usize,
    mode: Mode,
) -> Result<Option<String>, Fault> {
    let mut found = None;
    let see = |row: &Row| {
        let mut out = String::new();
        rows::object(&mut out, row, &statement.columns, limit)?;
        found = Some(out);
        Ok(Next::Stop)
    };
    each(tx, statement, context, mode, see).await?;
    Ok(found)
}
