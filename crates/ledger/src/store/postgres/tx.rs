//! What a handler works in: a connection of ours inside a transaction, and one instant.

use std::ops::Deref;
use std::time::SystemTime;

use counterfoil_core::{Call, Reading, Receipt, Timestamp};
use deadpool::managed::Object;
use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt;
use futures_util::future::{join, join3, join4};
use tokio_postgres::{Client, Error, Statement};

use super::doubt::Doubt;
use super::error::lost;
use super::pool::{Connection, Manager, Planning};
use super::receipts::{find, insert, now, prepare_find, prepare_insert};
use super::retry::Setback;
use crate::fault::Fault;
use crate::key::Key;

/// For calls. READ COMMITTED whatever the database's default is: each look must see what was committed before it.
///
/// Our look-up is planned with sequential scans off and the next line puts them back, so that a plan kept from when
/// the table was empty never scans it, and the application's own statements are planned as ever.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL enable_seqscan = off";
const AS_EVER: &str = "SET LOCAL enable_seqscan TO DEFAULT";

/// For reads: one snapshot.
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// PostgreSQL answers the COMMIT of a failed transaction with a rollback and without an error. The statement before
/// it in the same message fails there, and then COMMIT is never reached. It also keeps our own time limit from
/// cutting short COMMIT's wait for a standby.
pub(super) const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";

const FENCE: &str = include_str!("sql/fence.sql");

/// A transaction that the ledger owns: it begins it, commits it and rolls it back.
///
/// Derefs to the connection, for statements; `BEGIN`, `COMMIT` and `ROLLBACK` are not the handler's to say.
pub struct Tx {
    connection: Object<Manager>,
    now: Timestamp,
    begun: SystemTime,
    open: bool,
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Tx {
    pub(super) fn new(connection: Object<Manager>) -> Self {
        let never = SystemTime::UNIX_EPOCH;
        Self { connection, now: Timestamp::from_micros(0), begun: never, open: false }
    }

    /// Begins, and looks `key` up, in one flush.
    pub(super) async fn begin(&mut self, key: Key<'_>) -> Result<Option<Receipt>, Fault> {
        self.open = true;
        self.connection.plan(Planning::AsEver);
        let (connection, wrapper) = (&*self.connection, &self.connection.wrapper);
        prepare_find(connection).await?;
        let begin = connection.beginning(BEGIN);
        let (begun, found, restored) =
            join3(wrapper.batch_execute(&begin), find(connection, key), wrapper.batch_execute(AS_EVER)).await;
        begun?;
        let found = found?;
        restored?;
        (self.now, self.begun) = (found.now, found.begun);
        Ok(found.receipt)
    }

    /// Begins, looks `key` up, and goes on with `more`, all in one flush: what `more` sends at once goes with it.
    pub(super) async fn begin_with<T>(
        &mut self,
        key: Key<'_>,
        more: impl AsyncFnOnce(&Connection) -> T,
    ) -> Result<(Option<Receipt>, T), Fault> {
        self.open = true;
        self.connection.plan(Planning::AsEver);
        let (connection, wrapper) = (&*self.connection, &self.connection.wrapper);
        prepare_find(connection).await?;
        let begin = connection.beginning(BEGIN);
        let (begun, found, restored, more) = join4(
            wrapper.batch_execute(&begin),
            find(connection, key),
            wrapper.batch_execute(AS_EVER),
            more(connection),
        )
        .await;
        begun?;
        let found = found?;
        restored?;
        (self.now, self.begun) = (found.now, found.begun);
        Ok((found.receipt, more))
    }

    /// Steps 11 and 12 in one flush. `doubt` is raised while they are on their way, and stays so if an answer is lost:
    /// that try may be anywhere.
    pub(super) async fn record(
        &mut self,
        call: &Call,
        reading: &Reading,
        result: &str,
        doubt: &Doubt,
    ) -> Result<Timestamp, Setback> {
        // Not in the flush: COMMIT would overtake what has to be prepared first.
        prepare_insert(&self.connection).await?;
        let before = doubt.begun();
        let connection = &*self.connection;
        let (inserted, committed) = join(
            insert(connection, Key::from(call), reading, call.stored(reading), result, self.begun),
            connection.wrapper.batch_execute(COMMIT),
        )
        .await;
        let gone = |fault: &Fault| matches!(fault, Fault::Postgres(error) if lost(error));
        if connection.unreplicated()
            || inserted.as_ref().is_err_and(gone)
            || committed.as_ref().is_err_and(lost)
        {
            return Err(Setback::Doubt);
        }
        if inserted.is_err() || committed.is_err() {
            doubt.back(before);
        }
        let inserted = inserted?;
        committed?;
        doubt.settled();
        self.open = false;
        self.connection.fence();
        Ok(inserted)
    }

    /// Begins a read of one snapshot.
    pub(super) async fn begin_read(&mut self) -> Result<(), Fault> {
        self.open = true;
        self.connection.plan(Planning::AsEver);
        let (connection, wrapper) = (&*self.connection, &self.connection.wrapper);
        let begin = connection.beginning(BEGIN_READ);
        let (begun, now) = join(wrapper.batch_execute(&begin), now(connection)).await;
        begun?;
        self.now = now?;
        Ok(())
    }

    /// Begins a write that has no receipt.
    pub(super) async fn begin_write(&mut self) -> Result<(), Fault> {
        self.open = true;
        self.connection.plan(Planning::AsEver);
        let begin = self.connection.beginning(BEGIN);
        Ok(self.wrapper().batch_execute(&begin).await?)
    }

    /// The database's clock when this attempt began; the receipt's own instant is that of its insertion, after
    /// whatever the write had to wait for.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Does the connection keep prepared statements? Where it does not ([`super::Options::prepare`]), a handler runs
    /// `query_typed` and its like.
    #[must_use]
    pub fn keeps_statements(&self) -> bool {
        self.connection.keeps()
    }

    /// Prepares `sql`, and keeps it for the next calls on the same connection. Only where it
    /// [keeps statements](Tx::keeps_statements).
    ///
    /// # Errors
    /// The database's own.
    pub async fn prepare_cached(&self, sql: &str) -> Result<Statement, Error> {
        self.wrapper().prepare_cached(sql).await
    }

    pub(super) fn begun(&self) -> SystemTime {
        self.begun
    }

    pub(super) fn wrapper(&self) -> &ClientWrapper {
        &self.connection.wrapper
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// From here to [`Tx::closed`] something is on its way: dropped between the two, the connection is severed.
    pub(super) fn opened(&mut self) {
        self.open = true;
    }

    /// Nothing is on its way any more, and no transaction is open.
    pub(super) fn closed(&mut self) {
        self.open = false;
    }

    pub(super) fn fenced(&self) -> bool {
        self.connection.fenced()
    }

    /// Ends it. ROLLBACK is sent and not waited for: whatever is sent next comes after it.
    pub(super) fn rollback(&mut self) {
        let sent = self.connection.wrapper.batch_execute("ROLLBACK").now_or_never();
        // An answer already can only be that the connection is closed.
        self.open = matches!(sent, Some(Err(_)));
    }

    /// Step 12. `doubt` is raised while COMMIT is on its way, and stays so if its answer is lost.
    pub(super) async fn commit(&mut self, doubt: &Doubt) -> Result<(), Setback> {
        doubt.committing();
        let answer = self.connection.wrapper.batch_execute(COMMIT).await;
        if self.connection.unreplicated() || answer.as_ref().is_err_and(lost) {
            return Err(Setback::Doubt);
        }
        // A definite answer, also about older tries: what was inserted here had waited for theirs.
        if let Err(error) = answer {
            doubt.waited();
            return Err(error.into());
        }
        doubt.settled();
        self.open = false;
        self.connection.fence();
        Ok(())
    }

    /// Makes sure that what was seen here is as durable as a commit, and ends.
    pub(super) async fn fence(&mut self, doubt: &Doubt) -> Result<(), Setback> {
        self.wrapper().batch_execute(FENCE).await?;
        let before = doubt.raised();
        let fenced = self.commit(doubt).await;
        if fenced.is_err() && before {
            doubt.committing();
        }
        fenced
    }
}

/// Left open, by a panic or a time limit: nobody can say what is still running on it.
impl Drop for Tx {
    fn drop(&mut self) {
        if self.open {
            self.connection.sever();
        }
    }
}

impl Deref for Tx {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.wrapper()
    }
}
