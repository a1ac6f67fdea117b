//! A declared tool of several statements: access, look-up and statements in one flush, receipt and COMMIT in another.

use std::error::Error as Cause;

use counterfoil_core::{Call, Decision, Reading, Reply, decide};
use futures_util::future::{join_all, join3};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Error, Row};

use super::declared::{Composed, Listed, Returns, Step, Values};
use super::doubt::Doubt;
use super::error::raced;
use super::flush::{Met, Value, Verdict, query};
use super::pool::Connection;
use super::retry::Setback;
use super::turn::Receipts;
use super::tx::Tx;
use crate::fault::Fault;
use crate::key::Key;

/// A column's value as the server wrote it, for a parameter of the column's own type.
#[derive(Debug)]
struct Raw(Option<Vec<u8>>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Cause + Sync + Send>> {
        Ok(Self(Some(raw.to_vec())))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Cause + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Cause + Sync + Send>> {
        let Some(raw) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(raw);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// What one statement has told.
struct Told {
    count: i64,
    result: Option<Box<str>>,
    columns: Vec<Raw>,
}

impl Told {
    fn of(step: &Step, rows: &[Row]) -> Result<Self, Fault> {
        let row = rows.first().ok_or_else(|| Fault::Broken("a statement told nothing".into()))?;
        let columns = (0..step.told.len()).map(|at| row.try_get(2 + at)).collect::<Result<_, _>>()?;
        Ok(Self {
            count: row.try_get(0)?,
            result: row.try_get::<_, Option<&str>>(1)?.map(Into::into),
            columns,
        })
    }
}

/// Steps 6 to 12.
pub(super) async fn several(
    receipts: &Receipts,
    call: &Call,
    reading: &Reading,
    values: &Values<'_>,
    list: &Listed,
    tx: &mut Tx,
    doubt: &Doubt,
) -> Result<Reply, Met> {
    let met = match written(receipts, call, values, list, tx).await {
        Ok(result) => match tx.record(call, reading, &result, doubt).await {
            Ok(committed_at) => return Ok(receipts.fresh(call, committed_at, result)),
            Err(setback) => setback.into(),
        },
        Err(met) => met,
    };
    // What is open is severed where nobody knows what is still running on it.
    if !matches!(met, Met::Over(Setback::Lost | Setback::Doubt)) {
        tx.rollback();
    }
    Err(met)
}

impl From<Setback> for Met {
    fn from(setback: Setback) -> Self {
        match setback {
            Setback::Failed(Fault::Postgres(error)) if raced(&error) => {
                // A rival's receipt: the next look finds it.
                Met::Verdict(Verdict::NotGiven)
            }
            Setback::Failed(fault) => Met::Verdict(Verdict::Fault(fault)),
            Setback::Again | Setback::Lost | Setback::Doubt => Met::Over(setback),
        }
    }
}

impl From<Fault> for Met {
    fn from(fault: Fault) -> Self {
        Setback::from(fault).into()
    }
}

impl From<Error> for Met {
    fn from(error: Error) -> Self {
        Setback::from(error).into()
    }
}

/// The statements that need no row of one at or after `from`, `from` among them.
fn together(list: &Listed, from: usize) -> usize {
    let ready = |step: &&Step| step.earlier.iter().all(|(statement, _)| *statement < from);
    from + list.steps.iter().skip(from).take_while(ready).count()
}

/// Steps 6 to 10: the result.
async fn written(
    receipts: &Receipts,
    call: &Call,
    values: &Values<'_>,
    list: &Listed,
    tx: &mut Tx,
) -> Result<Box<str>, Met> {
    tx.opened();
    for composed in values.declared.statements() {
        tx.connection().prepare(composed).await?;
    }
    let mut told: Vec<Told> = Vec::new();
    let mut next = together(list, 0);
    let (receipt, (set, gate, first)) = tx
        .begin_with(Key::from(call), async |connection: &Connection| {
            join3(
                settings(connection, values),
                ask(connection, &list.gate, &[], values),
                run(connection, list, 0..next, &[], values),
            )
            .await
        })
        .await?;
    set?;
    let gate = gate?;
    let passes = |row: &Row| Ok::<_, Error>(row.try_get::<_, bool>(0)? && row.try_get::<_, bool>(1)?);
    if !gate.first().map(passes).transpose()?.unwrap_or(false)
        || !matches!(decide(receipt.as_ref(), call, tx.now()), Decision::Fresh(_))
    {
        return Err(Met::Verdict(Verdict::NotGiven));
    }
    take(list, &mut told, first)?;
    while next < list.steps.len() {
        let until = together(list, next);
        let rows = run(tx.connection(), list, next..until, &told, values).await;
        take(list, &mut told, rows)?;
        next = until;
    }
    let many = told.get(list.result).is_some_and(|told| told.count > 1);
    if many && list.returns == Returns::Row {
        return Err(Met::Verdict(Verdict::Many));
    }
    let result = told.into_iter().nth(list.result).and_then(|told| told.result);
    let result = result.unwrap_or_else(|| "null".into());
    if result.len() > receipts.result_limit {
        return Err(Met::Verdict(Verdict::TooLarge));
    }
    Ok(result)
}

/// Judges what the next statements have told, in their order.
fn take(list: &Listed, told: &mut Vec<Told>, rows: Vec<Result<Vec<Row>, Fault>>) -> Result<(), Met> {
    for rows in rows {
        let at = told.len();
        let Some(step) = list.steps.get(at) else { return Ok(()) };
        let one = Told::of(step, &rows?)?;
        if one.count == 0 && !step.may_change_nothing {
            return Err(Met::Verdict(Verdict::Unchanged(at)));
        }
        told.push(one);
    }
    Ok(())
}

async fn settings(connection: &Connection, values: &Values<'_>) -> Result<(), Fault> {
    match &values.declared.session {
        None => Ok(()),
        Some(session) => ask(connection, session, &[], values).await.map(drop),
    }
}

/// All of them at once, answered in order.
async fn run(
    connection: &Connection,
    list: &Listed,
    which: std::ops::Range<usize>,
    told: &[Told],
    values: &Values<'_>,
) -> Vec<Result<Vec<Row>, Fault>> {
    let steps = list.steps.get(which).unwrap_or_default();
    let sent = steps.iter().map(|step| async move {
        let earlier = |(statement, column): &(usize, usize)| {
            Some(told.get(*statement)?.columns.get(*column)? as Value<'_>)
        };
        let own = step.earlier.iter().map(earlier).collect::<Option<Vec<_>>>();
        let own = own.ok_or_else(|| Fault::Broken("an earlier row is not there yet".into()))?;
        ask(connection, &step.composed, &own, values).await
    });
    join_all(sent).await
}

async fn ask(
    connection: &Connection,
    composed: &Composed,
    own: &[Value<'_>],
    values: &Values<'_>,
) -> Result<Vec<Row>, Fault> {
    let parameters = composed.values(own, &values.values);
    let parameters = parameters.ok_or(Fault::Misuse("a declared tool is called with too few values"))?;
    Ok(query(connection, (composed, parameters)).await?)
}
