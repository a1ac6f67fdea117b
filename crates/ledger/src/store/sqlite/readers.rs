//! A small pool of connections that cannot write. A reader goes back only when nothing of its last use is left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, ffi};

use super::connection::{Handle, Source, execute};

// Marked, so that no handler's text finds them in the cache of prepared statements, past the authorizer.
const BEGIN: &str = "BEGIN -- counterfoil";
const END: &str = "ROLLBACK -- counterfoil, of a read";

/// One read transaction of a lent reader. A reader that cannot end it is not kept.
pub(super) struct Snapshot<'c>(&'c Connection);

impl<'c> Snapshot<'c> {
    pub(super) fn begin(connection: &'c Connection) -> Result<Self, rusqlite::Error> {
        execute(connection, BEGIN).map(|()| Self(connection))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let _closed = execute(self.0, END);
    }
}

/// Readers kept open between uses; more may be open at once, one a thread that reads.
const KEPT: usize = 16;

pub(super) struct Readers {
    source: Source,
    idle: Mutex<Vec<(u64, Handle)>>,
    /// Raised when the database is reopened: readers of an earlier generation are closed, not kept.
    generation: AtomicU64,
    /// A commit is in doubt: what a reader would see may not be on disk, so that none is lent.
    doubt: AtomicBool,
}

impl Readers {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            idle: Mutex::new(Vec::new()),
            generation: AtomicU64::new(0),
            doubt: AtomicBool::new(false),
        }
    }

    /// Is a commit in doubt?
    pub(super) fn in_doubt(&self) -> bool {
        self.doubt.load(Ordering::SeqCst)
    }

    /// Says whether one is.
    pub(super) fn doubt(&self, doubt: bool) {
        self.doubt.store(doubt, Ordering::SeqCst);
    }

    /// Lends a reader, outside any transaction.
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Handle) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        if self.in_doubt() {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None));
        }
        let (generation, handle) = match self.idle().pop() {
            Some(reader) => reader,
            None => (self.generation.load(Ordering::SeqCst), self.source.reader()?),
        };
        let result = read(&handle);
        self.put_back(generation, handle);
        result
    }

    /// Closes every idle reader, and lets none that is out come back.
    pub(super) fn close(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.idle().clear();
    }

    /// A reader with an open statement or transaction would go on reading an old snapshot, and honour a revoked
    /// membership: it is closed instead.
    fn put_back(&self, generation: u64, handle: Handle) {
        let clean = handle.connection.is_autocommit() && !handle.connection.is_busy();
        let mut idle = self.idle();
        if clean && generation == self.generation.load(Ordering::SeqCst) && idle.len() < KEPT {
            idle.push((generation, handle));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Handle)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
