//! What can go wrong, in the three answers a caller needs: not done, unknown, and never opened.

use counterfoil_core::Refusal;
use uuid::Uuid;

/// Why a step of a call did not succeed. Whatever it is, the call is rolled back.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A decided answer.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database said no.
    #[error("the database refused a statement")]
    Database(#[from] rusqlite::Error),
    /// PostgreSQL said no, or is gone.
    #[error("the database refused a statement, or is gone")]
    Postgres(#[from] tokio_postgres::Error),
    /// The program broke a rule of this library.
    #[error("{0}")]
    Misuse(&'static str),
    /// An invariant does not hold; the text is for the log and holds nothing of the call.
    #[error("{0}")]
    Broken(String),
}

impl Fault {
    /// The answer for the caller. What it does not say is logged under a correlation id.
    #[must_use]
    pub fn into_refusal(self) -> Refusal {
        match self {
            Fault::Refused(refusal) => refusal,
            Fault::Database(error) => crate::store::sqlite::refusal_of(&error),
            Fault::Postgres(error) => crate::store::postgres::refusal_of(&error),
            Fault::Misuse(problem) => internal(problem),
            Fault::Broken(problem) => internal(&problem),
        }
    }
}

/// Logs `problem`, which must hold nothing secret, and answers with the id to find it by.
pub(crate) fn internal(problem: &str) -> Refusal {
    let correlation_id = Uuid::new_v4().simple().to_string();
    tracing::error!(correlation_id, problem, "a call failed inside");
    Refusal::internal(correlation_id)
}

impl OpenError {
    /// May it pass by itself, without anybody changing the config? A database that starts, a failover, a network.
    #[must_use]
    pub fn passing(&self) -> bool {
        match self {
            OpenError::Postgres(error) => crate::store::postgres::may_pass(error),
            OpenError::Late(_) | OpenError::Standby => true,
            OpenError::Database(_)
            | OpenError::Authorities { .. }
            | OpenError::NotMigrated { .. }
            | OpenError::Encoding(_)
            | OpenError::TooOld { .. }
            | OpenError::TooNew { .. }
            | OpenError::Damaged(_)
            | OpenError::NoWal(_)
            | OpenError::Thread(_) => false,
        }
    }
}

/// Why a ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database could not be opened or read.
    #[error("the database cannot be opened")]
    Database(#[from] rusqlite::Error),
    /// PostgreSQL could not be reached, or refused a statement.
    #[error("{}", crate::store::postgres::what_to_do(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// Nothing answered in time.
    #[error(
        "PostgreSQL has not answered within {0:?}: is the host right, and does a firewall let this program through?"
    )]
    Late(std::time::Duration),
    /// The file of certificate authorities is of no use.
    #[error("the certificate authorities in {} cannot be used: {problem}", path.display())]
    Authorities {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The tables are missing or old, and this program was told not to change them.
    #[error(
        "the database has schema version {found} of Counterfoil and this program needs {known}: migrate it first, as the role that owns its tables"
    )]
    NotMigrated {
        /// In the database; 0 without tables.
        found: i64,
        /// What this program needs.
        known: i64,
    },
    /// Names could not be stored byte for byte.
    #[error("the database's encoding is {0}: create it with ENCODING 'UTF8'")]
    Encoding(String),
    /// A standby cannot write.
    #[error(
        "the server is a read-only standby: name the primary, or all hosts with target_session_attrs=read-write"
    )]
    Standby,
    /// The server is older than what this program is made for.
    #[error("the server is PostgreSQL {major} and {needed} or newer is needed")]
    TooOld {
        /// What answered.
        major: i32,
        /// What is needed.
        needed: i32,
    },
    /// The database was written by a newer program.
    #[error(
        "the database has schema version {found} of Counterfoil and this program knows {known}: start the newer program, or restore a backup from before its migration"
    )]
    TooNew {
        /// In the database.
        found: i64,
        /// The newest this program knows.
        known: i64,
    },
    /// The ledger's own tables are not as they were written.
    #[error("the ledger's tables are damaged: {0}")]
    Damaged(&'static str),
    /// The database does not take write-ahead logging (an in-memory database, or a file system without shared memory).
    #[error("the database is in journal mode {0} and cannot be put in WAL mode")]
    NoWal(String),
    /// The writer's thread could not be started.
    #[error("the writer's thread cannot be started")]
    Thread(#[from] std::io::Error),
}
