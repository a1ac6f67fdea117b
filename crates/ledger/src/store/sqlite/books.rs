//! The books as a whole: counted, walked through, written out and read in.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use counterfoil_core::{Receipt, RequestId, Timestamp};
use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior};

use super::migrate::{epoch, migrate};
use super::receipts::{fault_of_ours, find_record, record};
use crate::export::{Exporter, ImportError, Imported, read};
use crate::fault::Fault;
use crate::key::Key;
use crate::record::{Record, State, Stats};

const STATS: &str = include_str!("sql/stats.sql");
const WALK: &str = include_str!("sql/walk.sql");
const IMPORT: &str = include_str!("sql/import.sql");

/// What there is, tool by tool.
///
/// # Errors
/// The database's own.
pub fn stats(connection: &Connection) -> Result<Vec<Stats>, Fault> {
    let count = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let at = |row: &Row<'_>, column| {
        row.get::<_, Option<i64>>(column).map(|micros| micros.map(Timestamp::from_micros))
    };
    let mut statement = connection.prepare(STATS)?;
    let all = statement.query_map([], |row| {
        Ok(Stats {
            tool: row.get(0)?,
            committed: count(row, 1)?,
            held: count(row, 2)?,
            voided: count(row, 3)?,
            bytes: count(row, 4)?,
            oldest: at(row, 5)?,
            newest: at(row, 6)?,
        })
    })?;
    Ok(all.collect::<Result<_, _>>()?)
}

/// Shows every receipt to `see`, in the order of their keys; one that cannot be read as the request id that it claims,
/// and why.
///
/// # Errors
/// The database's own, and what `see` says.
pub fn walk(
    connection: &Connection,
    mut see: impl FnMut(Result<Record, (Option<RequestId>, String)>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut statement = connection.prepare(WALK)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let claimed = || row.get::<_, String>(4).ok().and_then(|id| RequestId::parse(&id).ok());
        see(record(row).map_err(|fault| (claimed(), fault.to_string())))?;
    }
    Ok(())
}

/// Writes all receipts of one instant to `out`; tells how many.
///
/// # Errors
/// The database's own, a receipt that cannot be read, or the output's as [`Fault::Broken`].
pub fn export(connection: &Connection, out: impl Write, at: Timestamp) -> Result<u64, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let told = |error: std::io::Error| Fault::Broken(format!("the export cannot be written: {error}"));
    let here = epoch(&snapshot).map_err(|error| Fault::Broken(error.to_string()))?;
    let mut exporter = Exporter::begin(out, &here, at).map_err(told)?;
    walk(&snapshot, |record| {
        let record = record.map_err(|(_, problem)| Fault::Broken(problem))?;
        exporter.record(&record).map_err(told)
    })?;
    exporter.finish().map_err(told)
}

/// Reads an export in: all of it or, if any line is wrong or contradicts what is here, nothing.
///
/// # Errors
/// The line that is in the way.
pub fn import(connection: &mut Connection, input: impl BufRead) -> Result<Imported, ImportError> {
    let database = |error: rusqlite::Error| ImportError { line: 0, problem: error.to_string() };
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(database)?;
    let (mut added, mut known) = (0, 0);
    let epoch = read(input, |record| match add(&tx, &record).map_err(|fault| fault.to_string())? {
        Added::New => {
            added += 1;
            Ok(())
        }
        Added::Same => {
            known += 1;
            Ok(())
        }
        Added::Other => Err("another receipt has this key here".into()),
    })?;
    tx.commit().map_err(database)?;
    Ok(Imported { epoch, added, known })
}

/// As [`import`], into the ledger at `path`, whose tables are brought up to date first.
///
/// # Errors
/// The line that is in the way; line 0 for the database itself.
pub fn begin_import(path: &Path, input: impl BufRead) -> Result<Imported, ImportError> {
    let told = |problem: String| ImportError { line: 0, problem };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| told(error.to_string()))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(|error| told(error.to_string()))?;
    migrate(&mut connection).map_err(|error| told(error.to_string()))?;
    import(&mut connection, input)
}

enum Added {
    New,
    Same,
    Other,
}

fn add(connection: &Connection, record: &Record) -> Result<Added, Fault> {
    let principal = record.principal();
    let key = Key { principal: &principal, tool: &record.tool, request_id: &record.request_id };
    if let Some(here) = find_record(connection, key)? {
        return Ok(if here == *record { Added::Same } else { Added::Other });
    }
    let (state, committed) = match &record.receipt {
        Receipt::Voided => (State::Voided, None),
        Receipt::Committed(committed) => (State::Committed, Some(committed)),
    };
    let inserted = connection.prepare_cached(IMPORT)?.execute((
        record.workspace.as_str(),
        record.issuer.as_str(),
        record.subject.as_str(),
        record.tool.as_str(),
        record.request_id.as_str(),
        state.as_str(),
        record.at.micros(),
        committed.map(|committed| committed.revision.as_str()),
        committed.map(|committed| committed.fingerprint.as_bytes().as_slice()),
        record.intent.as_deref(),
        committed.and_then(|committed| committed.result.as_deref()),
    ));
    inserted.map_err(fault_of_ours)?;
    Ok(Added::New)
}
