//! The receipts table: look up, record, void, list. Every statement of it is in `sql/`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use counterfoil_core::{
    Committed, Fingerprint, Issuer, Reading, Receipt, RequestId, Revision, Subject, Timestamp, ToolName,
    Workspace,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::error::{describe, ours};
use super::pool::Connection;
use super::run::{Parameter, Run};
use super::tx::Tx;
use crate::fault::Fault;
use crate::key::Key;
use crate::record::{Filter, Record, State};

const FIND: &str = include_str!("sql/find.sql");
const NOW: &str = include_str!("sql/now.sql");
pub(super) const FIND_RECORD: &str = include_str!("sql/find_record.sql");
const INSERT: &str = include_str!("sql/insert.sql");
const VOID: &str = include_str!("sql/void.sql");
const LIST: &str = include_str!("sql/list.sql");

/// The types of the insertion's parameters.
const INSERTED: [Type; 10] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::BYTEA,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
];

/// What one look-up tells.
pub(super) struct Found {
    /// When the transaction that was looked in began: the receipt is recorded in that one or not at all.
    pub(super) begun: SystemTime,
    /// The database's clock.
    pub(super) now: Timestamp,
    pub(super) receipt: Option<Receipt>,
}

pub(super) async fn find(run: &impl Run, key: Key<'_>) -> Result<Found, Fault> {
    let rows = run.rows(FIND, &Words::of(&key).parameters()).await?;
    let row = rows.first().ok_or_else(|| Fault::Broken("a look-up told nothing".into()))?;
    Ok(Found { begun: row.try_get(0)?, now: timestamp(row.try_get(1)?), receipt: receipt(row, 2)? })
}

/// The receipt, if there is one, in the columns from `at`: state, revision, fingerprint, committed_at, result.
pub(super) fn receipt(row: &Row, at: usize) -> Result<Option<Receipt>, Fault> {
    match row.try_get::<_, Option<&str>>(at)? {
        None => Ok(None),
        Some("voided") => Ok(Some(Receipt::Voided)),
        Some("committed") => {
            let [revision, fingerprint, instant, result] = [at + 1, at + 2, at + 3, at + 4];
            let committed = committed(
                row.try_get(revision)?,
                row.try_get(fingerprint)?,
                row.try_get(instant)?,
                row.try_get(result)?,
            );
            Ok(Some(Receipt::Committed(committed?)))
        }
        Some(_) => Err(newer()),
    }
}

/// Has the look-up prepared on `connection`, if it keeps it: so that it goes out in one flush with its BEGIN.
pub(super) async fn prepare_find(connection: &Connection) -> Result<(), tokio_postgres::Error> {
    prepare(connection, FIND, &[const { Type::TEXT }; 5]).await
}

/// Has the receipt's insertion prepared: so that no COMMIT which is sent after it can overtake it.
pub(super) async fn prepare_insert(connection: &Connection) -> Result<(), tokio_postgres::Error> {
    prepare(connection, INSERT, &INSERTED).await
}

async fn prepare(
    connection: &Connection,
    sql: &'static str,
    types: &[Type],
) -> Result<(), tokio_postgres::Error> {
    if !connection.keeps() {
        return Ok(());
    }
    connection.wrapper.prepare_typed_cached(sql, types).await.map(drop)
}

/// The database's clock.
pub(super) async fn now(run: &impl Run) -> Result<Timestamp, Fault> {
    let rows = run.rows(NOW, &[]).await?;
    let row = rows.first().ok_or_else(|| Fault::Broken("the database has no clock".into()))?;
    Ok(timestamp(row.try_get(0)?))
}

/// Step 11: a plain INSERT, in the transaction that began at `begun`. Tells when.
pub(super) async fn insert(
    run: &impl Run,
    key: Key<'_>,
    reading: &Reading,
    intent: Option<&str>,
    result: &str,
    begun: SystemTime,
) -> Result<Timestamp, Fault> {
    let revision = reading.revision.as_str();
    let fingerprint = reading.fingerprint.as_bytes().as_slice();
    let words = Words::of(&key);
    let mut values: Vec<&(dyn ToSql + Sync)> = words.values().collect();
    values.extend([&revision as &(dyn ToSql + Sync), &fingerprint, &intent, &result, &begun]);
    let parameters: Vec<Parameter<'_>> = values.into_iter().zip(INSERTED).collect();
    let rows = run.rows(INSERT, &parameters).await.map_err(fault_of_ours)?;
    let row =
        rows.first().ok_or_else(|| Fault::Broken("a receipt was swallowed by a trigger or rule".into()))?;
    Ok(timestamp(row.try_get(0)?))
}

/// A constraint that refuses a receipt is none of the caller's: other arguments would not help. A rival's receipt
/// stays what it is.
pub(super) fn fault_of_ours(error: tokio_postgres::Error) -> Fault {
    if ours(&error) {
        Fault::Broken(format!("a receipt was refused: {}", describe(&error)))
    } else {
        error.into()
    }
}

/// Records that `key` will never commit. A rival's receipt is an error.
pub(super) async fn insert_void(run: &impl Run, key: Key<'_>) -> Result<(), Fault> {
    run.rows(VOID, &Words::of(&key).parameters()).await.map(drop).map_err(fault_of_ours)
}

/// The whole record under `key`, intent included.
///
/// # Errors
/// [`Fault::Broken`] for a row that a newer program wrote.
pub async fn find_record(tx: &Tx, key: Key<'_>) -> Result<Option<Record>, Fault> {
    let rows = tx.connection().rows(FIND_RECORD, &Words::of(&key).parameters()).await?;
    rows.first().map(record).transpose()
}

/// Receipts, newest first.
///
/// # Errors
/// The database's own, and [`Fault::Broken`] for a row that a newer program wrote.
pub async fn list(tx: &Tx, filter: &Filter) -> Result<Vec<Record>, Fault> {
    let state = filter.state.map(State::as_str);
    let (since, until) = (filter.since.map(instant), filter.until.map(instant));
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let offset = i64::try_from(filter.offset).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 9] = [
        (&filter.workspace, Type::TEXT),
        (&filter.subject, Type::TEXT),
        (&filter.tool, Type::TEXT),
        (&state, Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&filter.prefix, Type::TEXT),
        (&limit, Type::INT8),
        (&offset, Type::INT8),
    ];
    tx.connection().rows(LIST, &parameters).await?.iter().map(record).collect()
}

/// The words of a key, borrowed for as long as a statement runs.
pub(super) struct Words<'a>([&'a str; 5]);

impl<'a> Words<'a> {
    pub(super) fn of(key: &Key<'a>) -> Self {
        let principal = key.principal;
        Self([
            principal.workspace.as_str(),
            principal.issuer.as_str(),
            principal.subject.as_str(),
            key.tool.as_str(),
            key.request_id.as_str(),
        ])
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.0.iter().map(|word| word as &(dyn ToSql + Sync))
    }

    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        self.values().map(|word| (word, Type::TEXT)).collect()
    }
}

fn committed(
    revision: &str,
    fingerprint: &[u8],
    at: SystemTime,
    result: Option<&str>,
) -> Result<Committed, Fault> {
    Ok(Committed {
        revision: Revision::parse(revision).map_err(|_| broken("a revision"))?,
        fingerprint: Fingerprint::from_bytes(fingerprint).ok_or_else(|| broken("a fingerprint"))?,
        at: timestamp(at),
        result: result.map(Into::into),
    })
}

pub(super) fn record(row: &Row) -> Result<Record, Fault> {
    let at: SystemTime = row.try_get(6)?;
    let receipt = match row.try_get(5)? {
        "voided" => Receipt::Voided,
        "committed" => Receipt::Committed(committed(row.try_get(7)?, row.try_get(8)?, at, row.try_get(10)?)?),
        _ => return Err(newer()),
    };
    Ok(Record {
        workspace: Workspace::parse(row.try_get(0)?).map_err(|_| broken("a workspace"))?,
        issuer: Issuer::parse(row.try_get(1)?).map_err(|_| broken("an issuer"))?,
        subject: Subject::parse(row.try_get(2)?).map_err(|_| broken("a subject"))?,
        tool: ToolName::parse(row.try_get(3)?).map_err(|_| broken("a tool"))?,
        request_id: RequestId::parse(row.try_get(4)?).map_err(|_| broken("a request id"))?,
        at: timestamp(at),
        receipt,
        intent: row.try_get::<_, Option<&str>>(9)?.map(Into::into),
    })
}

fn broken(what: &str) -> Fault {
    Fault::Broken(format!("a receipt holds {what} that this program cannot read"))
}

fn newer() -> Fault {
    Fault::Broken("a receipt is in a state that this program does not know: a newer one wrote it".into())
}

/// Whole microseconds both here and there, so nothing is lost either way.
pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let micros = |of: Duration| i64::try_from(of.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(match at.duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    })
}

pub(super) fn instant(at: Timestamp) -> SystemTime {
    let by = Duration::from_micros(at.micros().unsigned_abs());
    if at.micros() < 0 { UNIX_EPOCH - by } else { UNIX_EPOCH + by }
}
