//! What a handler works in: a connection inside a transaction, one instant, and a deadline for each statement.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use counterfoil_core::Timestamp;
use rusqlite::Connection;

/// A transaction that the ledger owns: it begins it, commits it and rolls it back.
///
/// Derefs to the connection, for statements; `BEGIN`, `COMMIT` and `ROLLBACK` are not the handler's to say.
#[derive(Debug)]
pub struct Tx<'c> {
    connection: &'c Connection,
    now: Timestamp,
    limit: Option<(&'c Deadline, Duration)>,
}

impl<'c> Tx<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        now: Timestamp,
        limit: Option<(&'c Deadline, Duration)>,
    ) -> Self {
        let tx = Self { connection, now, limit };
        tx.statement();
        tx
    }

    /// Over a connection that only looks, at the instant `now`; statements have no time limit.
    #[must_use]
    pub fn looking(connection: &'c Connection, now: Timestamp) -> Self {
        Self::new(connection, now, None)
    }

    /// The instant of this attempt, the same for all its statements and its receipt.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Says that a statement begins: its time limit starts anew.
    pub fn statement(&self) {
        if let Some((deadline, limit)) = self.limit {
            deadline.set(Some(limit));
        }
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if let Some((deadline, _)) = self.limit {
            deadline.set(None);
        }
    }
}

impl Deref for Tx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// When the running statement must stop; shared with the connection's progress handler.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    start: Instant,
    /// Microseconds since `start`; `u64::MAX` is never.
    at: Arc<AtomicU64>,
}

impl Default for Deadline {
    fn default() -> Self {
        Self { start: Instant::now(), at: Arc::new(AtomicU64::new(u64::MAX)) }
    }
}

impl Deadline {
    fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn set(&self, limit: Option<Duration>) {
        let micros = |limit: Duration| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let within = |limit| self.elapsed().saturating_add(micros(limit)).min(u64::MAX - 1);
        let at = limit.map_or(u64::MAX, within);
        self.at.store(at, Ordering::Relaxed);
    }

    /// Is a handler at work on the connection?
    pub(super) fn running(&self) -> bool {
        self.at.load(Ordering::Relaxed) != u64::MAX
    }

    pub(super) fn passed(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != u64::MAX && self.elapsed() > at
    }
}
