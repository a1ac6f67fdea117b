//! Which operation a caller's call is: a new one, or one whose outcome its caller has not been told yet.

use counterfoil_core::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, named_params};

use super::{Begun, Entry, Journal, JournalError, Problem, Recorded, attempt, get, recorded, rivals};
use crate::operation::Operation;
use crate::state::Event;

/// A call as it came from a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The operation it is, if it is a new one.
    pub operation: Operation,
    /// Its id was chosen by a runtime, and decides: another id is another operation.
    pub decided: bool,
    /// What another call must equal to be the same: a hash of server, caller, tool and canonical arguments.
    pub same: String,
    /// What the caller's transport calls this call, if it sends such a thing: sent again, it is the same.
    pub source: Option<String>,
}

/// What a call turned out to be.
#[derive(Debug)]
pub enum Claim {
    /// A new operation, on disk, and its first try.
    New(Begun),
    /// An operation that is in the journal.
    Known(Entry),
}

impl Journal {
    /// Finds the operation that a call is, or records a new one with its first try: one write, one fsync.
    ///
    /// # Errors
    /// [`super::Problem::IdTaken`], [`super::Problem::OtherCaller`], or the file fails. Nothing may be sent.
    pub fn claim(&self, now: Timestamp, wanted: &Wanted) -> Result<Claim, JournalError> {
        self.write(Event::Sent, |tx| {
            if let Some(known) = known(tx, wanted)? {
                return Ok(Claim::Known(known));
            }
            let entry = recorded(tx, now, &wanted.operation)?;
            let mut called = tx.prepare_cached(include_str!("sql/called.sql"))?;
            called.execute(named_params! {
                ":seq": entry.seq,
                ":same": wanted.same,
                ":source": wanted.source,
            })?;
            attempt(tx, now, entry).map(Claim::New)
        })
    }

    /// Writes that an operation's outcome was delivered: the same call is a new intention from now on.
    ///
    /// # Errors
    /// The file fails; the same call gets the same outcome once more, marked as replayed.
    pub fn delivered(&self, now: Timestamp, operation: &Recorded) -> Result<(), JournalError> {
        self.write_at("NORMAL", "delivered", |tx| {
            let mut delivered = tx.prepare_cached(include_str!("sql/delivered.sql"))?;
            delivered.execute(named_params! { ":at": now.micros(), ":seq": operation.seq })?;
            Ok(())
        })
    }
}

fn known(tx: &Transaction<'_>, wanted: &Wanted) -> Result<Option<Entry>, JournalError> {
    if !wanted.decided {
        let mut same = tx.prepare_cached(include_str!("sql/same.sql"))?;
        let found = same
            .query_row(named_params! { ":same": wanted.same, ":source": wanted.source }, |row| row.get(0))
            .optional()?;
        if let Some(seq) = found {
            return get(tx, seq).map(Some);
        }
    }
    let mut mine = rivals(tx, &wanted.operation)?.into_iter();
    let Some(mine) = mine.find(|rival| rival.operation.caller == wanted.operation.caller) else {
        return Ok(None);
    };
    // The id is known: the same call goes on, however it is spelled now; any other needs an id of its own.
    let same: Option<String> = tx
        .query_row("SELECT same FROM calls WHERE operation = ?1", [mine.seq], |row| row.get(0))
        .optional()?;
    let spelled = same.is_none() && mine.operation == wanted.operation;
    if spelled || same.is_some_and(|same| same == wanted.same) {
        return Ok(Some(mine));
    }
    Err(Problem::IdTaken(wanted.operation.id.clone()).into())
}
