//! What can go wrong with the journal. Wherever it does before a send, nothing is sent.

use std::io;
use std::path::{Path, PathBuf};

use counterfoil_core::RequestId;
use rusqlite::ErrorCode;

use crate::state::Impossible;

/// The journal could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct JournalError {
    problem: Problem,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of trouble.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file or its folder cannot be made or opened.
    #[error("the journal {} cannot be opened", .0.display())]
    Place(PathBuf),
    /// Written by a newer version of this program.
    #[error(
        "the journal is of format {found}, and this program knows formats up to {known}: use a newer one"
    )]
    TooNew {
        /// The format found.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// A file of something else.
    #[error("the file is not a journal of this program")]
    NotAJournal,
    /// It cannot be written to.
    #[error("the journal cannot be written to: it, or the file system it is on, is read-only")]
    ReadOnly,
    /// No room.
    #[error("the journal cannot be written to: there is no space left")]
    Full,
    /// Other processes held it for longer than [`crate::limits::JOURNAL_WAIT`].
    #[error("the journal is in use by other processes")]
    Busy,
    /// Part of it cannot be read.
    #[error("the journal is damaged: list it to see what can still be read, then move it away")]
    Damaged,
    /// The id is in the journal, with other arguments.
    #[error("the id {0} is in the journal for another operation: a new operation needs a new id")]
    IdTaken(RequestId),
    /// The id is in the journal, unfinished, by another caller.
    #[error(
        "the operation {0} was begun by another caller and has not ended: call as that caller, or void it"
    )]
    OtherCaller(RequestId),
    /// The operation is not there (any more).
    #[error("there is no such operation in the journal")]
    NoSuch,
    /// What was to be written cannot have happened.
    #[error("{0}")]
    Impossible(Impossible),
    /// The file system failed.
    #[error("the journal could not be read or written")]
    Failed,
}

impl JournalError {
    /// What kind of trouble it is.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    pub(super) fn place(path: &Path, source: io::Error) -> Self {
        let of_its_own = [
            (io::ErrorKind::StorageFull, Problem::Full),
            (io::ErrorKind::ReadOnlyFilesystem, Problem::ReadOnly),
        ];
        let known = of_its_own.into_iter().find(|(kind, _)| *kind == source.kind());
        let problem = known.map_or_else(|| Problem::Place(path.to_owned()), |(_, problem)| problem);
        Self { problem, source: Some(source.into()) }
    }
}

impl From<Problem> for JournalError {
    fn from(problem: Problem) -> Self {
        Self { problem, source: None }
    }
}

impl From<Impossible> for JournalError {
    fn from(impossible: Impossible) -> Self {
        Problem::Impossible(impossible).into()
    }
}

impl From<rusqlite::Error> for JournalError {
    fn from(error: rusqlite::Error) -> Self {
        Self { problem: kind(&error), source: Some(error.into()) }
    }
}

fn kind(error: &rusqlite::Error) -> Problem {
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Problem::ReadOnly,
        Some(ErrorCode::DiskFull) => Problem::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Problem::Busy,
        Some(ErrorCode::DatabaseCorrupt) => Problem::Damaged,
        Some(ErrorCode::NotADatabase) => Problem::NotAJournal,
        _ => Problem::Failed,
    }
}
