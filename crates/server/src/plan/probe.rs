//! What the real database says of a statement: does it prepare, what does it bind, touch and return. Never writes.

mod postgres;
mod sqlite;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use counterfoil::tokio_postgres::types::Type;
use counterfoil::{OpenError, rusqlite};

use super::Server;
use super::sql::{Parameter, Scanned};

pub(super) use postgres::words::locks;

/// How a statement changes a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    Insert,
    Update,
    Delete,
}

/// What a prepared statement is.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// What the database runs.
    pub sql: String,
    /// The same without the row locks at its end, if it has some: for transactions that only read.
    pub unlocked: Option<String>,
    /// Names of the parameters, in the database's order.
    pub parameters: Vec<String>,
    /// Their types, as PostgreSQL tells them.
    pub kinds: Vec<Type>,
    /// Where each stands in `sql`, and which of them it is.
    pub slots: Vec<(Range<usize>, usize)>,
    /// The columns it returns.
    pub columns: Vec<ColumnFact>,
    /// It changes nothing.
    pub read_only: bool,
    /// What the statement itself changes.
    pub changes: BTreeSet<(Change, String)>,
    /// What is changed in the end, by triggers too.
    pub touched: BTreeSet<(Change, String)>,
    /// Columns set by UPDATE, by triggers too.
    pub sets: BTreeSet<(String, String)>,
    /// Columns read, by triggers too.
    pub reads: BTreeSet<(String, String)>,
    /// Names of the columns that the statement itself reads.
    pub own_reads: BTreeSet<String>,
    /// Tables of which every row is looked at, for want of an index.
    pub unindexed: BTreeSet<String>,
}

impl Facts {
    /// Does it read or set `column` of `table`?
    pub(super) fn uses(&self, table: &str, column: &str) -> bool {
        let is = |(known, name): &(String, String)| known == table && name.eq_ignore_ascii_case(column);
        self.reads.iter().chain(&self.sets).any(is)
    }

    /// Every `change` of a table that replaces the row in the way also deletes.
    pub(super) fn replaces(&mut self, mut replaced: impl FnMut(&str) -> bool) {
        let deleted =
            |(_, table): &(Change, String)| replaced(table).then(|| (Change::Delete, table.clone()));
        let deleted: Vec<_> = self.changes.iter().filter_map(deleted).collect();
        self.changes.extend(deleted.iter().cloned());
        self.touched.extend(deleted);
    }
}

/// A column of a result.
#[derive(Debug, Clone)]
pub(super) struct ColumnFact {
    pub name: String,
    /// The declared type of the table column it comes from, if that table is STRICT and thereby keeps to it.
    pub strict_type: Option<String>,
    /// Its type, as PostgreSQL tells it.
    pub kind: Option<Type>,
}

/// Asked whether to try to connect once more, with what was in the way.
pub(super) type Again<'a> = dyn FnMut(&OpenError) -> bool + 'a;

/// What SQL type a parameter has that the database could not know by itself.
pub(super) type Casts<'a> = &'a (dyn Fn(&Parameter) -> Option<String> + Sync);

/// Why a statement cannot be served.
#[derive(Debug, Default)]
pub(super) struct Unfit {
    pub message: String,
    /// Byte of the statement, where SQLite tells.
    pub at: Option<usize>,
    /// The name it is about, and others for the same thing.
    pub words: Vec<String>,
    /// What to write instead.
    pub help: Option<String>,
    /// The view or trigger that does it.
    pub through: Option<String>,
}

/// A contract on record: tool, revision, contract.
pub(super) type Recorded = (String, String, String);

/// A database that statements are only prepared on, and asked about its tables.
pub(super) enum Probe {
    Sqlite(Box<sqlite::Probe>),
    Postgres(Box<postgres::Probe>),
}

impl Probe {
    /// On the SQLite database at `path`.
    pub(super) fn sqlite(path: &Path) -> Result<Self, rusqlite::Error> {
        sqlite::Probe::open(path).map(Box::new).map(Self::Sqlite)
    }

    /// On a SQLite database that does not exist yet, as `schema` will make it.
    pub(super) fn imagine(schema: &str) -> Result<Self, rusqlite::Error> {
        sqlite::Probe::imagine(schema).map(Box::new).map(Self::Sqlite)
    }

    /// On a database of PostgreSQL, with these settings in each transaction.
    pub(super) fn postgres(
        server: &Server,
        session: &[(String, String)],
        again: &mut Again<'_>,
    ) -> Result<Self, OpenError> {
        postgres::Probe::open(server, session, again).map(Box::new).map(Self::Postgres)
    }

    /// Prepares a statement and tells what it is.
    pub(super) fn prepare(&self, scanned: &Scanned, casts: Casts<'_>) -> Result<Facts, Unfit> {
        match self {
            Self::Sqlite(probe) => probe.prepare(scanned),
            Self::Postgres(probe) => probe.prepare(scanned, casts),
        }
    }

    /// The column that names rows of `table` and may name another row after a deletion, if there is one.
    pub(super) fn reusable_id(&self, table: &str) -> Option<String> {
        match self {
            Self::Sqlite(probe) => probe.reusable_id(table),
            Self::Postgres(probe) => probe.reusable_id(table),
        }
    }

    /// The columns that name a row of `table`.
    pub(super) fn key(&self, table: &str) -> Vec<String> {
        match self {
            Self::Sqlite(probe) => probe.key(table),
            Self::Postgres(probe) => probe.key(table),
        }
    }

    /// Why such a `column` may, and the declaration that prevents it.
    pub(super) fn identity(&self, column: &str) -> (&'static str, String) {
        match self {
            Self::Sqlite(_) => {
                ("it is not AUTOINCREMENT", format!("declare `{column} INTEGER PRIMARY KEY AUTOINCREMENT`"))
            }
            Self::Postgres(_) => (
                "no sequence gives it",
                format!("declare `{column} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY`"),
            ),
        }
    }

    /// Does a trigger on `table` watch over `column`? A view has nothing to watch over but its table.
    pub(super) fn guarded(&self, table: &str, column: &str) -> bool {
        match self {
            Self::Sqlite(probe) => probe.guarded(table, column),
            Self::Postgres(probe) => probe.guarded(table, column),
        }
    }

    /// Can changing `table` break a constraint that is only looked at on COMMIT?
    pub(super) fn deferrable(&self, table: &str) -> bool {
        match self {
            Self::Sqlite(probe) => probe.deferrable(table),
            // Every call has a transaction of its own.
            Self::Postgres(_) => false,
        }
    }

    /// The contracts recorded so far.
    pub(super) fn contracts(&self) -> Result<Vec<Recorded>, OpenError> {
        match self {
            Self::Sqlite(probe) => probe.contracts(),
            Self::Postgres(probe) => probe.contracts(),
        }
    }
}
