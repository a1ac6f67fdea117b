//! What the real database says of a statement: does it prepare, what does it bind, touch and return. Never writes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil::rusqlite::config::DbConfig;
use counterfoil::rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use counterfoil::rusqlite::{Connection, Error, OpenFlags};

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
    /// Names of the parameters, in SQLite's order.
    pub parameters: Vec<String>,
    /// The columns it returns.
    pub columns: Vec<ColumnFact>,
    /// It changes nothing.
    pub read_only: bool,
    /// What the statement itself changes.
    pub changes: BTreeSet<(Change, String)>,
    /// Columns it sets by UPDATE.
    pub sets: BTreeSet<(String, String)>,
    /// Columns it reads.
    pub reads: BTreeSet<(String, String)>,
    /// Every table that is changed, by triggers too.
    pub written: BTreeSet<String>,
}

/// A column of a result.
#[derive(Debug, Clone)]
pub(super) struct ColumnFact {
    pub name: String,
    /// The declared type of the table column it comes from, if that table is STRICT and thereby keeps to it.
    pub strict_type: Option<String>,
}

/// Why a statement cannot be served.
#[derive(Debug)]
pub(super) struct Unfit {
    pub message: String,
    /// Byte of the statement, where SQLite tells.
    pub at: Option<usize>,
}

/// A connection on which statements are only prepared.
pub(super) struct Probe {
    /// Prepares, under the authorizer.
    connection: Connection,
    /// Asks about the schema.
    schema: Connection,
    seen: Arc<Mutex<Seen>>,
}

/// What the authorizer was asked while one statement was prepared.
#[derive(Debug, Default)]
struct Seen {
    facts: Facts,
    denied: Option<String>,
}

impl Probe {
    /// On the database itself.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::over(Connection::open_with_flags(path, flags)?, Connection::open_with_flags(path, flags)?)
    }

    /// On a database that does not exist yet, as `schema` will make it.
    pub(super) fn imagine(schema: &str) -> Result<Self, Error> {
        let (connection, other) = (Connection::open_in_memory()?, Connection::open_in_memory()?);
        connection.execute_batch(schema)?;
        other.execute_batch(schema)?;
        Self::over(connection, other)
    }

    fn over(mut connection: Connection, schema: Connection) -> Result<Self, Error> {
        // Reading the schema now tells a file that is no database.
        schema.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let asked = Arc::clone(&seen);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            asked.lock().unwrap_or_else(PoisonError::into_inner).judge(&context)
        }))?;
        Ok(Self { connection, schema, seen })
    }

    /// Prepares `sql` and tells what it is.
    pub(super) fn prepare(&self, sql: &str) -> Result<Facts, Unfit> {
        *self.seen() = Seen::default();
        let prepared = self.connection.prepare(sql);
        let seen = std::mem::take(&mut *self.seen());
        let statement = prepared.map_err(|error| unfit(&error, seen.denied))?;
        let parameters = (1..=statement.parameter_count())
            .map(|at| statement.parameter_name(at).unwrap_or("?").to_owned());
        let columns = statement.columns().zip(statement.columns_with_metadata());
        let columns = columns.map(|(column, origin)| ColumnFact {
            name: column.name().to_owned(),
            strict_type: column
                .decl_type()
                .filter(|_| origin.table_name().is_some_and(|t| self.strict(t)))
                .map(str::to_uppercase),
        });
        Ok(Facts {
            parameters: parameters.collect(),
            columns: columns.collect(),
            read_only: statement.readonly(),
            ..seen.facts
        })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T: counterfoil::rusqlite::types::FromSql>(&self, sql: &str, name: &str) -> Option<T> {
        self.schema.query_row(sql, [name], |row| row.get(0)).ok()
    }

    fn strict(&self, table: &str) -> bool {
        self.ask("SELECT strict FROM pragma_table_list WHERE name = ?1 AND schema = 'main'", table)
            .unwrap_or(false)
    }

    /// The statement that made `table`.
    pub(super) fn table_sql(&self, table: &str) -> String {
        self.ask("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", table)
            .unwrap_or_default()
    }

    /// The column that names rows of `table` and may name another row after a deletion, if there is one.
    pub(super) fn reusable_id(&self, table: &str) -> Option<String> {
        let sql = "SELECT name FROM pragma_table_info(?1) WHERE pk = 1 AND upper(type) = 'INTEGER' \
                   AND (SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0) = 1";
        let column: String = self.ask(sql, table)?;
        let made = self.table_sql(table).to_uppercase();
        (!made.contains("AUTOINCREMENT") && !made.contains("WITHOUT ROWID")).then_some(column)
    }

    /// Does a trigger on `table` watch over `column`?
    pub(super) fn guarded(&self, table: &str, column: &str) -> bool {
        let sql =
            "SELECT group_concat(sql, char(10)) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1";
        let triggers: String = self.ask(sql, table).unwrap_or_default();
        let lower = triggers.to_lowercase();
        lower.contains("raise") && lower.contains(&format!("old.{}", column.to_lowercase()))
    }

    /// Can changing `table` break a constraint that is only looked at on COMMIT?
    pub(super) fn deferrable(&self, table: &str) -> bool {
        let sql = "SELECT count(*) FROM sqlite_schema AS s WHERE s.type = 'table' AND upper(s.sql) LIKE '%DEFERRABLE%' \
                   AND (s.name = ?1 OR EXISTS (SELECT 1 FROM pragma_foreign_key_list(s.name) AS f WHERE f.\"table\" = ?1))";
        self.ask::<i64>(sql, table).unwrap_or(0) > 0
    }

    /// The contracts recorded so far: (tool, revision, contract).
    pub(super) fn contracts(&self) -> Vec<(String, String, String)> {
        let read = || -> Result<Vec<_>, Error> {
            let mut statement =
                self.schema.prepare("SELECT tool, revision, contract FROM counterfoil_contracts")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        };
        // No such table: nothing was ever served from here.
        read().unwrap_or_default()
    }
}

fn unfit(error: &Error, denied: Option<String>) -> Unfit {
    match (denied, error) {
        (Some(message), _) => Unfit { message, at: None },
        (None, Error::SqlInputError { msg, offset, .. }) => {
            Unfit { message: format!("SQLite cannot prepare this: {msg}"), at: usize::try_from(*offset).ok() }
        }
        (None, Error::SqliteFailure(_, Some(message))) => {
            Unfit { message: format!("SQLite cannot prepare this: {message}"), at: None }
        }
        (None, _) => Unfit { message: "SQLite cannot prepare this".into(), at: None },
    }
}

/// Functions whose answer belongs to a connection and not to a call.
const FUNCTIONS: [&str; 4] = ["last_insert_rowid", "changes", "total_changes", "load_extension"];

impl Seen {
    fn judge(&mut self, context: &AuthContext<'_>) -> Authorization {
        match self.allow(context) {
            Ok(()) => Authorization::Allow,
            Err(reason) => {
                self.denied.get_or_insert(reason);
                Authorization::Deny
            }
        }
    }

    fn allow(&mut self, context: &AuthContext<'_>) -> Result<(), String> {
        let own = context.accessor.is_none();
        match context.action {
            AuthAction::Select | AuthAction::Recursive => Ok(()),
            AuthAction::Read { table_name, column_name } => {
                not_ours(table_name)?;
                self.facts.reads.insert((table_name.to_owned(), column_name.to_owned()));
                Ok(())
            }
            AuthAction::Function { function_name } => {
                let name = function_name.to_lowercase();
                if FUNCTIONS.contains(&name.as_str()) {
                    return Err(format!("`{name}()` tells of a connection and not of a call"));
                }
                Ok(())
            }
            AuthAction::Insert { table_name } => self.change(Change::Insert, table_name, own),
            AuthAction::Delete { table_name } => self.change(Change::Delete, table_name, own),
            AuthAction::Update { table_name, column_name } => {
                if own {
                    self.facts.sets.insert((table_name.to_owned(), column_name.to_owned()));
                }
                self.change(Change::Update, table_name, own)
            }
            _ => Err("a tool's statement may only read and change tables".into()),
        }
    }

    fn change(&mut self, change: Change, table: &str, own: bool) -> Result<(), String> {
        not_ours(table)?;
        if table.to_lowercase().starts_with("sqlite_") {
            return Err(format!("`{table}` is SQLite's own"));
        }
        self.facts.written.insert(table.to_owned());
        if own {
            self.facts.changes.insert((change, table.to_owned()));
        }
        Ok(())
    }
}

fn not_ours(table: &str) -> Result<(), String> {
    if table.to_lowercase().starts_with("counterfoil_") {
        return Err(format!("`{table}` is the ledger's own: no tool may touch it"));
    }
    Ok(())
}
