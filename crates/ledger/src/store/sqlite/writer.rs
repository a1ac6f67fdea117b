//! The one writer: what waits together is committed together, one savepoint a call, one fsync for all.
//!
//! Nothing is answered before COMMIT, refusals and replays included: each may have seen a neighbour's row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_core::{Epoch, Refusal};
use tokio::sync::oneshot;

use super::attempt::guarded;
use super::connection::{Handle, Source, execute, locked, patiently};
use super::error::{describe, refusal_of, refused_commit};
use super::migrate::{epoch, fence};
use super::readers::Readers;
use super::tx::Tx;
use crate::clock::Clock;
use crate::fault::{Fault, OpenError, internal};

/// How long a caller is asked to wait before it asks again what a commit in doubt became.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// One caller's work, and the way back to that caller.
pub(super) trait Work: Send {
    /// Has the caller gone away? Then work that has not begun never does.
    fn abandoned(&self) -> bool;
    /// Has it waited longer than it may?
    fn late(&self) -> bool;
    /// Must it have a transaction of its own?
    fn alone(&self) -> bool;
    /// Does it, anew each time, and keeps the verdict. True if what it wrote is to stay.
    fn run(&mut self, tx: &Tx<'_>) -> bool;
    /// Answers the caller.
    fn settle(self: Box<Self>, fate: Fate);
}

/// What became of the transaction in which a verdict was reached.
pub(super) enum Fate {
    /// It ended as the verdict says.
    Judged,
    /// It did not: this is the answer instead.
    Lost(Refusal),
}

/// Work that is a closure.
pub(super) struct Task<T, F> {
    /// When it must have begun.
    pub until: Instant,
    pub alone: bool,
    pub work: F,
    pub verdict: Option<Result<T, Refusal>>,
    pub answer: oneshot::Sender<Result<T, Refusal>>,
}

impl<T, F> Work for Task<T, F>
where
    T: Send,
    F: FnMut(&Tx<'_>) -> Result<T, Fault> + Send,
{
    fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn late(&self) -> bool {
        Instant::now() > self.until
    }

    fn alone(&self) -> bool {
        self.alone
    }

    fn run(&mut self, tx: &Tx<'_>) -> bool {
        let verdict = guarded(|| (self.work)(tx)).map_err(Fault::into_refusal);
        self.verdict.insert(verdict).is_ok()
    }

    fn settle(self: Box<Self>, fate: Fate) {
        if self.abandoned() {
            return;
        }
        let answer = match (fate, self.verdict) {
            (Fate::Lost(refusal), _) => Err(refusal),
            (Fate::Judged, Some(verdict)) => verdict,
            (Fate::Judged, None) => Err(internal("work was settled before it was done")),
        };
        // A caller who has gone away finds the outcome under its request id.
        let _gone = self.answer.send(answer);
    }
}

/// The writer's side of the database.
pub(super) struct Writer {
    pub source: Source,
    pub readers: Arc<Readers>,
    pub clock: Arc<dyn Clock>,
    pub statement_time: Duration,
    /// Of the history that was opened, and must be found again.
    pub epoch: Epoch,
    /// `None` after a commit in doubt, until the database is open again.
    pub handle: Option<Handle>,
}

// Marked, so that no handler's text finds them in the cache of prepared statements, past the authorizer.
const BEGIN: &str = "BEGIN IMMEDIATE -- counterfoil";
const COMMIT: &str = "COMMIT -- counterfoil";
const ROLLBACK: &str = "ROLLBACK -- counterfoil";
const OPEN: &str = "SAVEPOINT counterfoil -- open";
const UNDO: &str = "ROLLBACK TO counterfoil -- undo";
const CLOSE: &str = "RELEASE counterfoil -- close";

type Group = Vec<Box<dyn Work>>;

impl Writer {
    /// Runs and settles one group. Whatever panics here (the drop of a caller's closure, a clock), the writer goes on:
    /// the group's unanswered callers are told that the outcome is unknown.
    pub(super) fn commit(&mut self, group: Group) {
        if catch_unwind(AssertUnwindSafe(|| self.settle(group))).is_err() {
            tracing::error!("the writer panicked: the database is opened anew");
            self.close();
        }
    }

    fn settle(&mut self, group: Group) {
        if self.handle.is_none()
            && let Err(refusal) = self.reopen()
        {
            tracing::warn!(code = refusal.code().as_str(), "the database cannot be opened again yet");
        }
        let begun = group.into_iter().filter(|work| !work.abandoned());
        let (late, begun): (Group, Group) = begun.partition(|work| work.late());
        settle(late, &Refusal::busy(RETRY_AFTER));
        let (alone, together): (Group, Group) = begun.into_iter().partition(|work| work.alone());
        self.together(together);
        alone.into_iter().filter(|work| !work.abandoned()).for_each(|work| self.single(work));
    }

    fn together(&mut self, mut group: Group) {
        if group.len() < 2 {
            return group.into_iter().for_each(|work| self.single(work));
        }
        if let Err(refusal) = self.begin() {
            return settle(group, &refusal);
        }
        if !group.iter_mut().all(|work| self.in_savepoint(work.as_mut())) {
            return self.one_by_one(group);
        }
        match self.end() {
            End::Committed => group.into_iter().for_each(|work| work.settle(Fate::Judged)),
            End::Refused(_) => self.one_by_one(group),
            End::InDoubt(refusal) => settle(group, &refusal),
        }
    }

    /// Some call ended the whole transaction, or made it impossible to commit: nobody knows which until each has
    /// a transaction of its own. All verdicts so far are forgotten.
    fn one_by_one(&mut self, group: Group) {
        self.roll_back();
        group.into_iter().for_each(|work| self.single(work));
    }

    fn single(&mut self, mut work: Box<dyn Work>) {
        if work.late() {
            return work.settle(Fate::Lost(Refusal::busy(RETRY_AFTER)));
        }
        if let Err(refusal) = self.begin() {
            return work.settle(Fate::Lost(refusal));
        }
        if work.abandoned() {
            return self.roll_back();
        }
        let keep = self.run(work.as_mut());
        let fate = match (keep, self.in_transaction()) {
            (true, true) => match self.end() {
                End::Committed => Fate::Judged,
                End::Refused(refusal) | End::InDoubt(refusal) => Fate::Lost(refusal),
            },
            (true, false) => Fate::Lost(internal("a handler ended the ledger's transaction")),
            (false, _) => Fate::Judged,
        };
        self.roll_back();
        work.settle(fate);
    }

    /// False if the transaction is no longer there: an error inside it may have ended it
    /// (`ON CONFLICT ROLLBACK`, `RAISE(ROLLBACK)`, an interrupt), and a savepoint now would commit by itself.
    fn in_savepoint(&self, work: &mut dyn Work) -> bool {
        // Its caller may have gone while the group waited or ran: it has not begun yet.
        if work.abandoned() {
            return true;
        }
        if self.say(OPEN).is_err() {
            return false;
        }
        let keep = self.run(work);
        if !self.in_transaction() {
            return false;
        }
        let undone = keep || self.say(UNDO).is_ok();
        undone && self.say(CLOSE).is_ok()
    }

    fn run(&self, work: &mut dyn Work) -> bool {
        let Some(handle) = &self.handle else { return false };
        let limit = Some((&handle.deadline, self.statement_time));
        work.run(&Tx::new(&handle.connection, self.clock.now(), limit))
    }

    /// Begins a write transaction, on a database opened anew if it must be.
    fn begin(&mut self) -> Result<(), Refusal> {
        // A file that was removed or replaced still takes writes, which nobody would find again.
        if self.handle.as_ref().is_some_and(|handle| handle.file != self.source.file()) {
            tracing::error!("another file stands where the database was: it is opened anew");
            self.close();
        }
        if self.handle.is_none() {
            self.reopen()?;
        }
        let begun = patiently(self.source.lock_wait, locked, || self.say(BEGIN));
        begun.map_err(|error| {
            let refusal = refusal_of(&error);
            if !refused_commit(&error) {
                self.handle = None;
            }
            refusal
        })
    }

    fn end(&mut self) -> End {
        match self.say(COMMIT) {
            Ok(()) => End::Committed,
            Err(error) if refused_commit(&error) => {
                self.roll_back();
                End::Refused(refusal_of(&error))
            }
            Err(error) => {
                tracing::error!(
                    problem = describe(&error),
                    "a commit is in doubt: the database is opened anew"
                );
                self.close();
                End::InDoubt(Refusal::outcome_unknown(RETRY_AFTER))
            }
        }
    }

    fn roll_back(&mut self) {
        if self.in_transaction() && self.say(ROLLBACK).is_err() {
            self.handle = None;
        }
    }

    fn in_transaction(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| !handle.connection.is_autocommit())
    }

    fn say(&self, sql: &str) -> Result<(), rusqlite::Error> {
        match &self.handle {
            Some(handle) => execute(&handle.connection, sql),
            None => Err(rusqlite::Error::InvalidQuery),
        }
    }

    /// Forgets every connection: what they hold of the log may not be what is on disk.
    fn close(&mut self) {
        self.readers.doubt(true);
        self.handle = None;
        self.readers.close();
    }

    fn reopen(&mut self) -> Result<(), Refusal> {
        // What was there must still be there: a new, empty file would have no receipts.
        self.source.create = false;
        let opened = self.source.writer().map_err(unopened)?;
        if epoch(&opened.connection).map_err(unopened)? != self.epoch {
            return Err(internal("the database was replaced by another history: start anew"));
        }
        let fenced = patiently(self.source.lock_wait, locked, || fence(&opened.connection));
        fenced.map_err(|error| refusal_of(&error))?;
        self.readers.doubt(false);
        tracing::info!("the database is open again");
        self.handle = Some(opened);
        Ok(())
    }
}

fn unopened(error: OpenError) -> Refusal {
    match error {
        OpenError::Database(error) => refusal_of(&error),
        OpenError::TooNew { .. }
        | OpenError::NotMigrated { .. }
        | OpenError::Postgres(_)
        | OpenError::Encoding(_)
        | OpenError::Standby
        | OpenError::Late(_)
        | OpenError::Authorities { .. }
        | OpenError::TooOld { .. }
        | OpenError::Damaged(_)
        | OpenError::NoWal(_)
        | OpenError::Thread(_) => internal(&error.to_string()),
    }
}

enum End {
    Committed,
    Refused(Refusal),
    InDoubt(Refusal),
}

fn settle(group: Group, refusal: &Refusal) {
    group.into_iter().for_each(|work| work.settle(Fate::Lost(refusal.clone())));
}
