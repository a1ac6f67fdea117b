//! `sqlite_group`: what the ledger adds to the statements it needs, when many call at once.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use counterfoil::sqlite::Receipts;
use rusqlite::{Connection, Statement};
use tokio::task::JoinSet;

use crate::figure::{Round, per_second, rate, rounds};
use crate::store::{
    ACCESS, Edit, ISSUER, REVISION, SUBJECT, Service, TOOL, UPDATE, WORKSPACE, connect, create, open,
    request_id, update,
};

/// Callers at once, and calls in one of the baseline's batches.
const CALLERS: i64 = 64;

/// Ours: 64 callers on a runtime with a thread a core, each with a row of its own and one call at a time.
///
/// Baseline: the same four statements (access, receipt, versioned `UPDATE … RETURNING`, receipt) written by hand: one
/// thread, one connection, every statement prepared once, 64 calls in one transaction and one commit for all. It has
/// no callers to wake, no savepoints, judges nothing, and its fingerprint is a constant.
pub(crate) fn measure(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let service = Service::new(open(&create(room, "ours.db", CALLERS)?)?)?;
    let mut bare = connect(&create(room, "bare.db", CALLERS)?)?;
    Receipts::install(&mut bare)?;
    let mut by_hand = ByHand::prepare(&bare)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut edits: Vec<Edit> = (1..=CALLERS).map(Edit::first).collect();
    let mut plain = edits.clone();
    let ours = || runtime.block_on(together(&service, &mut edits, slice));
    let baseline = || rate(slice, || by_hand.batch(&mut plain));
    rounds(ours, baseline)
}

async fn together(service: &Service, edits: &mut Vec<Edit>, slice: Duration) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for edit in edits.drain(..) {
        callers.spawn(caller(service.clone(), edit, start + slice));
    }
    let mut made = 0;
    while let Some(ended) = callers.join_next().await {
        let (edit, calls) = ended??;
        edits.push(edit);
        made += calls;
    }
    Ok(per_second(made, start))
}

async fn caller(service: Service, mut edit: Edit, end: Instant) -> anyhow::Result<(Edit, u32)> {
    let mut made = 0;
    while made == 0 || Instant::now() < end {
        ensure!(!service.call(&request_id(), edit).await?, "a fresh call was replayed");
        edit = edit.next();
        made += 1;
    }
    Ok((edit, made))
}

pub(crate) const FIND: &str = "SELECT state, revision, fingerprint, committed_at, result FROM counterfoil_receipts \
     WHERE workspace = ?1 AND issuer = ?2 AND subject = ?3 AND tool = ?4 AND request_id = ?5";

const INSERT: &str = "INSERT INTO counterfoil_receipts \
     (workspace, issuer, subject, tool, request_id, state, committed_at, revision, fingerprint, intent, result) \
     VALUES (?1, ?2, ?3, ?4, ?5, 'committed', ?6, ?7, ?8, ?9, ?10)";

/// As long as the intent of an [`Edit`] in canonical form.
const INTENT: &str = "{\"expected_version\":10000,\"id\":64,\"interval_minutes\":15}";

/// A commit's time; only its size in the row matters.
const AT: i64 = 1_796_000_000_123_456;

/// Everything that a batch says, prepared once.
struct ByHand<'c> {
    begin: Statement<'c>,
    access: Statement<'c>,
    find: Statement<'c>,
    update: Statement<'c>,
    insert: Statement<'c>,
    commit: Statement<'c>,
}

impl<'c> ByHand<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            access: connection.prepare(ACCESS)?,
            find: connection.prepare(FIND)?,
            update: connection.prepare(UPDATE)?,
            insert: connection.prepare(INSERT)?,
            commit: connection.prepare("COMMIT")?,
        })
    }

    fn batch(&mut self, edits: &mut [Edit]) -> anyhow::Result<u32> {
        self.begin.execute([])?;
        let mut made = 0;
        for edit in edits {
            self.call(edit)?;
            *edit = edit.next();
            made += 1;
        }
        self.commit.execute([])?;
        Ok(made)
    }

    fn call(&mut self, edit: &Edit) -> anyhow::Result<()> {
        let id = request_id();
        ensure!(self.access.exists((edit.id, WORKSPACE))?, "there is no access");
        ensure!(!self.find.exists((WORKSPACE, ISSUER, SUBJECT, TOOL, &*id))?, "there is a receipt");
        let result = update(&mut self.update, edit)?;
        let fingerprint = [7u8; 32].as_slice();
        let row = (WORKSPACE, ISSUER, SUBJECT, TOOL, &*id, AT, REVISION, fingerprint, INTENT, result);
        self.insert.execute(row)?;
        Ok(())
    }
}
