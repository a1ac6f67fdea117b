//! The receipts table: look up, record, void, list. Every statement of it is in `sql/`.

use counterfoil_core::{
    Committed, Fingerprint, Issuer, Reading, Receipt, RequestId, Revision, Subject, Timestamp, ToolName,
    Windows, Workspace, decide,
};
use rusqlite::{Connection, ErrorCode, Row};

use super::error::describe;
use super::tx::Tx;
use crate::fault::Fault;
use crate::key::Key;
use crate::record::{Filter, Record, State, Void};

const FIND: &str = include_str!("sql/find.sql");
const FIND_RECORD: &str = include_str!("sql/find_record.sql");
const INSERT: &str = include_str!("sql/insert.sql");
const VOID: &str = include_str!("sql/void.sql");
const LIST: &str = include_str!("sql/list.sql");

pub(super) fn find(connection: &Connection, key: Key<'_>) -> Result<Option<Receipt>, Fault> {
    let mut statement = connection.prepare_cached(FIND)?;
    let mut rows = statement.query(key_parameters(&key))?;
    rows.next()?.map(receipt).transpose()
}

/// The whole record under `key`, intent included.
///
/// # Errors
/// [`Fault::Broken`] for a row that a newer program wrote.
pub fn find_record(connection: &Connection, key: Key<'_>) -> Result<Option<Record>, Fault> {
    let mut statement = connection.prepare_cached(FIND_RECORD)?;
    let mut rows = statement.query(key_parameters(&key))?;
    rows.next()?.map(record).transpose()
}

/// Step 11: a plain INSERT. A conflict is an error, never ignored.
pub(super) fn insert(
    connection: &Connection,
    key: Key<'_>,
    reading: &Reading,
    intent: Option<&str>,
    at: Timestamp,
    result: &str,
) -> Result<(), Fault> {
    let (workspace, issuer, subject, tool, id) = key_parameters(&key);
    let mut statement = connection.prepare_cached(INSERT)?;
    let inserted = statement.execute((
        workspace,
        issuer,
        subject,
        tool,
        id,
        at.micros(),
        reading.revision.as_str(),
        reading.fingerprint.as_bytes().as_slice(),
        intent,
        result,
    ));
    match inserted.map_err(fault_of_ours)? {
        1 => Ok(()),
        _ => Err(Fault::Broken(
            "a receipt was not inserted: a foreign trigger is on the ledger's table".into(),
        )),
    }
}

/// A constraint that refuses a receipt is none of the caller's: other arguments would not help.
pub(super) fn fault_of_ours(error: rusqlite::Error) -> Fault {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => {
            Fault::Broken(format!("a receipt was refused: {}", describe(&error)))
        }
        Some(_) | None => error.into(),
    }
}

/// Records that `key` will never commit, unless it has: exactly one of the two, ever. `tx` must be able to write.
///
/// # Errors
/// `request_id_expired` where the fact of a commit may be gone already.
pub fn void(tx: &Tx<'_>, key: Key<'_>, windows: Windows) -> Result<Void, Fault> {
    match find(tx, key)? {
        Some(Receipt::Voided) => Ok(Void::Voided),
        Some(Receipt::Committed(committed)) => Ok(Void::Committed(committed.at)),
        None => match decide::dated(key.request_id, windows.remember, tx.now()) {
            Some(refusal) => Err(refusal.into()),
            None => {
                let (workspace, issuer, subject, tool, id) = key_parameters(&key);
                let mut statement = tx.prepare_cached(VOID)?;
                let inserted = statement.execute((workspace, issuer, subject, tool, id, tx.now().micros()));
                inserted.map_err(fault_of_ours)?;
                Ok(Void::Voided)
            }
        },
    }
}

/// Receipts, newest first.
///
/// # Errors
/// The database's own, and [`Fault::Broken`] for a row that a newer program wrote.
pub fn list(connection: &Connection, filter: &Filter) -> Result<Vec<Record>, Fault> {
    let mut statement = connection.prepare_cached(LIST)?;
    let mut rows = statement.query((
        &filter.workspace,
        &filter.subject,
        &filter.tool,
        filter.state.map(State::as_str),
        filter.since.map(Timestamp::micros),
        filter.until.map(Timestamp::micros),
        &filter.prefix,
        i64::try_from(filter.limit).unwrap_or(i64::MAX),
        i64::try_from(filter.offset).unwrap_or(i64::MAX),
    ))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(record(row)?);
    }
    Ok(records)
}

fn key_parameters<'a>(key: &Key<'a>) -> (&'a str, &'a str, &'a str, &'a str, &'a str) {
    let principal = key.principal;
    (
        principal.workspace.as_str(),
        principal.issuer.as_str(),
        principal.subject.as_str(),
        key.tool.as_str(),
        key.request_id.as_str(),
    )
}

/// A row of `find.sql`.
fn receipt(row: &Row<'_>) -> Result<Receipt, Fault> {
    match text(row, 0)? {
        "voided" => Ok(Receipt::Voided),
        "committed" => {
            committed(text(row, 1)?, blob(row, 2)?, row.get(3)?, row.get(4)?).map(Receipt::Committed)
        }
        _ => Err(Fault::Broken(
            "a receipt is in a state that this program does not know: a newer one wrote it".into(),
        )),
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, rusqlite::Error> {
    Ok(row.get_ref(column)?.as_str()?)
}

fn blob<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8], rusqlite::Error> {
    Ok(row.get_ref(column)?.as_blob()?)
}

fn committed(
    revision: &str,
    fingerprint: &[u8],
    at: i64,
    result: Option<Box<str>>,
) -> Result<Committed, Fault> {
    Ok(Committed {
        revision: Revision::parse(revision).map_err(|_| broken("a revision"))?,
        fingerprint: Fingerprint::from_bytes(fingerprint).ok_or_else(|| broken("a fingerprint"))?,
        at: Timestamp::from_micros(at),
        result,
    })
}

pub(super) fn record(row: &Row<'_>) -> Result<Record, Fault> {
    let at = Timestamp::from_micros(row.get(6)?);
    let receipt = match text(row, 5)? {
        "voided" => Receipt::Voided,
        "committed" => {
            Receipt::Committed(committed(text(row, 7)?, blob(row, 8)?, at.micros(), row.get(10)?)?)
        }
        _ => return Err(broken("a state")),
    };
    Ok(Record {
        workspace: Workspace::parse(text(row, 0)?).map_err(|_| broken("a workspace"))?,
        issuer: Issuer::parse(text(row, 1)?).map_err(|_| broken("an issuer"))?,
        subject: Subject::parse(text(row, 2)?).map_err(|_| broken("a subject"))?,
        tool: ToolName::parse(text(row, 3)?).map_err(|_| broken("a tool"))?,
        request_id: RequestId::parse(text(row, 4)?).map_err(|_| broken("a request id"))?,
        at,
        receipt,
        intent: row.get(9)?,
    })
}

fn broken(what: &str) -> Fault {
    Fault::Broken(format!("a receipt holds {what} that this program cannot read"))
}
