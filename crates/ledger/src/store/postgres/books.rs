//! The books as a whole: counted, walked through, written out and read in; on a connection of the caller's.

use std::io::{BufRead, Write};
use std::time::SystemTime;

use counterfoil_core::{Receipt, RequestId, Timestamp};
use tokio::sync::mpsc;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Row, Transaction};

use super::migrate::verify;
use super::receipts::{FIND_RECORD, Words, instant, record, timestamp};
use super::run::Parameter;
use crate::export::{Exporter, ImportError, Imported, read};
use crate::fault::Fault;
use crate::key::Key;
use crate::record::{Record, State, Stats};

const STATS: &str = include_str!("sql/stats.sql");
const WALK: &str = include_str!("sql/walk.sql");
const NEXT: &str = "FETCH 500 FROM counterfoil_walk";
const IMPORT: &str = include_str!("sql/import.sql");

/// What there is, tool by tool.
///
/// # Errors
/// The database's own.
pub async fn stats(client: &impl GenericClient) -> Result<Vec<Stats>, Fault> {
    let rows = client.query_typed(STATS, &[]).await?;
    let one = |row: &Row| -> Result<Stats, tokio_postgres::Error> {
        let count = |column| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
        let at = |column| row.try_get::<_, Option<SystemTime>>(column).map(|at| at.map(timestamp));
        Ok(Stats {
            tool: row.try_get(0)?,
            committed: count(1)?,
            held: count(2)?,
            voided: count(3)?,
            bytes: count(4)?,
            oldest: at(5)?,
            newest: at(6)?,
        })
    };
    Ok(rows.iter().map(one).collect::<Result<_, _>>()?)
}

/// Shows every receipt to `see`, in the order of their keys and of one instant; one that cannot be read as the request
/// id that it claims, and why.
///
/// # Errors
/// The database's own, and what `see` says.
pub async fn walk(
    client: &mut Client,
    see: impl FnMut(Result<Record, (Option<RequestId>, String)>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    walk_in(&snapshot(client).await?, see).await
}

async fn snapshot(client: &mut Client) -> Result<Transaction<'_>, Fault> {
    let level = IsolationLevel::RepeatableRead;
    Ok(client.build_transaction().isolation_level(level).read_only(true).start().await?)
}

async fn walk_in(
    tx: &Transaction<'_>,
    mut see: impl FnMut(Result<Record, (Option<RequestId>, String)>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let walk = Walk::begin(tx.client()).await?;
    loop {
        let some = walk.some().await?;
        if some.is_empty() {
            return Ok(());
        }
        some.into_iter().try_for_each(&mut see)?;
    }
}

/// Every receipt of the transaction's snapshot, in the order of their keys, some at a time.
#[derive(Debug)]
pub struct Walk<'a>(&'a Client);

impl<'a> Walk<'a> {
    /// At the first receipt. `client` must be in a transaction, and has one walk at a time.
    ///
    /// # Errors
    /// The database's own.
    pub async fn begin(client: &'a Client) -> Result<Self, Fault> {
        client.batch_execute(WALK).await?;
        Ok(Self(client))
    }

    /// The next few; none after the last. One that cannot be read as the request id that it claims, and why.
    ///
    /// # Errors
    /// The database's own.
    pub async fn some(&self) -> Result<Vec<Result<Record, (Option<RequestId>, String)>>, Fault> {
        let rows = self.0.query_typed(NEXT, &[]).await?;
        let one = |row: &Row| {
            let claimed = || row.try_get::<_, &str>(4).ok().and_then(|id| RequestId::parse(id).ok());
            record(row).map_err(|fault| (claimed(), fault.to_string()))
        };
        Ok(rows.iter().map(one).collect())
    }
}

/// Writes all receipts of one instant to `out`; tells how many.
///
/// # Errors
/// The database's own, a receipt that cannot be read, or the output's as [`Fault::Broken`].
pub async fn export(client: &mut Client, out: impl Write, at: Timestamp) -> Result<u64, Fault> {
    let tx = snapshot(client).await?;
    let told = |error: std::io::Error| Fault::Broken(format!("the export cannot be written: {error}"));
    let here = verify(&tx).await.map_err(|error| Fault::Broken(error.to_string()))?;
    let mut exporter = Exporter::begin(out, &here, at).map_err(told)?;
    walk_in(&tx, |record| {
        let record = record.map_err(|(_, problem)| Fault::Broken(problem))?;
        exporter.record(&record).map_err(told)
    })
    .await?;
    exporter.finish().map_err(told)
}

/// Records on their way from the file to the database.
const AHEAD: usize = 64;

/// Reads an export in: all of it or, if any line is wrong or contradicts what is here, nothing.
///
/// # Errors
/// The line that is in the way; line 0 for the database itself.
pub async fn import(
    client: &mut Client,
    input: impl BufRead + Send + 'static,
) -> Result<Imported, ImportError> {
    let told = |problem: String| ImportError { line: 0, problem };
    let tx = client.transaction().await.map_err(|error| told(error.to_string()))?;
    let (give, mut take) = mpsc::channel(AHEAD);
    let reader = tokio::task::spawn_blocking(move || {
        // Whoever does not take any more has met something itself, and says so.
        read(input, |record| give.blocking_send(record).map_err(|_| "it was not taken".into()))
    });
    let (mut added, mut known, mut line) = (0, 0, 1);
    let mut met = None;
    while let Some(record) = take.recv().await {
        line += 1;
        match add(&tx, &record).await {
            Ok(Added::New) => added += 1,
            Ok(Added::Same) => known += 1,
            Ok(Added::Other) => met = Some("another receipt has this key here".to_owned()),
            Err(fault) => met = Some(fault.to_string()),
        }
        if met.is_some() {
            break;
        }
    }
    drop(take);
    let read = reader.await.map_err(|_| told("the reader of the export ended".into()))?;
    if let Some(problem) = met {
        return Err(ImportError { line, problem });
    }
    let epoch = read?;
    tx.commit().await.map_err(|error| told(error.to_string()))?;
    Ok(Imported { epoch, added, known })
}

enum Added {
    New,
    Same,
    Other,
}

async fn add(tx: &Transaction<'_>, record: &Record) -> Result<Added, Fault> {
    let (state, committed) = match &record.receipt {
        Receipt::Voided => (State::Voided, None),
        Receipt::Committed(committed) => (State::Committed, Some(committed)),
    };
    let principal = record.principal();
    let key = Key { principal: &principal, tool: &record.tool, request_id: &record.request_id };
    let words = Words::of(&key);
    let (state, at) = (state.as_str(), instant(record.at));
    let revision = committed.map(|committed| committed.revision.as_str());
    let fingerprint = committed.map(|committed| committed.fingerprint.as_bytes().as_slice());
    let (intent, result) =
        (record.intent.as_deref(), committed.and_then(|committed| committed.result.as_deref()));
    let mut parameters: Vec<Parameter<'_>> = words.parameters();
    parameters.push((&state, Type::TEXT));
    parameters.push((&at, Type::TIMESTAMPTZ));
    parameters.push((&revision, Type::TEXT));
    parameters.push((&fingerprint, Type::BYTEA));
    parameters.push((&intent, Type::TEXT));
    parameters.push((&result, Type::TEXT));
    if tx.execute_typed(IMPORT, &parameters).await? == 1 {
        return Ok(Added::New);
    }
    let rows = tx.query_typed(FIND_RECORD, &words.parameters()).await?;
    let here = rows.first().map(super::receipts::record).transpose()?;
    Ok(if here.as_ref() == Some(record) { Added::Same } else { Added::Other })
}
