//! What SQLite says of a statement: its prepare and its authorizer.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil::OpenError;
use counterfoil::rusqlite::config::DbConfig;
use counterfoil::rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use counterfoil::rusqlite::{Connection, Error};
use counterfoil::sqlite::{look, servable};

use super::super::sql::Scanned;
use super::{Change, ColumnFact, Facts, Recorded, Unfit};
use crate::config::nearest;

/// A connection on which statements are only prepared.
pub(in crate::plan) struct Probe {
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
    denied: Option<Unfit>,
}

impl Probe {
    /// On the database itself.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Self::over(look(path)?, look(path)?)
    }

    /// On a database that does not exist yet, as `schema` will make it.
    pub(super) fn imagine(schema: &str) -> Result<Self, Error> {
        Self::over(imagined(schema)?, imagined(schema)?)
    }

    fn over(mut connection: Connection, schema: Connection) -> Result<Self, Error> {
        // Reading the schema now tells a file that is no database.
        schema.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connect_modules(&connection, &schema)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let asked = Arc::clone(&seen);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            asked.lock().unwrap_or_else(PoisonError::into_inner).judge(&context)
        }))?;
        Ok(Self { connection, schema, seen })
    }

    /// Prepares `sql` and tells what it is.
    pub(super) fn prepare(&self, scanned: &Scanned) -> Result<Facts, Unfit> {
        let mut facts = self.facts(&scanned.sql)?;
        let all = scanned.replaces();
        facts.replaces(|table| all || self.replaces(table));
        Ok(facts)
    }

    fn facts(&self, sql: &str) -> Result<Facts, Unfit> {
        *self.seen() = Seen::default();
        let prepared = self.connection.prepare(sql);
        let seen = std::mem::take(&mut *self.seen());
        let statement = prepared.map_err(|error| seen.denied.unwrap_or_else(|| self.unfit(&error)))?;
        let parameters = (1..=statement.parameter_count())
            .map(|at| statement.parameter_name(at).unwrap_or("?").to_owned());
        let columns = statement.columns().zip(statement.columns_with_metadata());
        let columns = columns.map(|(column, origin)| ColumnFact {
            name: column.name().to_owned(),
            kind: None,
            strict_type: column
                .decl_type()
                .filter(|_| origin.table_name().is_some_and(|t| self.strict(t)))
                .map(str::to_uppercase),
        });
        Ok(Facts {
            sql: sql.to_owned(),
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

    /// Does `table` itself say that a row in the way of a new one is deleted?
    fn replaces(&self, table: &str) -> bool {
        let made = self.table_sql(table).to_uppercase();
        made.split_whitespace().collect::<Vec<_>>().join(" ").contains("ON CONFLICT REPLACE")
    }

    /// The statement that made `table`.
    fn table_sql(&self, table: &str) -> String {
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

    /// The columns that name a row of `table`.
    pub(super) fn key(&self, table: &str) -> Vec<String> {
        let sql = "SELECT group_concat(name, char(10)) \
                   FROM (SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk)";
        let names: Option<String> = self.ask(sql, table);
        names.unwrap_or_default().lines().map(identifier).collect()
    }

    /// Does a trigger on `table` watch over `column`? A view has nothing to watch over but its table.
    pub(super) fn guarded(&self, table: &str, column: &str) -> bool {
        if self.table_sql(table).is_empty() {
            return true;
        }
        let sql = "SELECT group_concat(sql, char(10)) FROM sqlite_schema \
                   WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)";
        let triggers: String = self.ask(sql, table).unwrap_or_default();
        let lower = triggers.to_lowercase().replace(['"', '`', '[', ']'], "");
        lower.contains("raise") && lower.contains(&format!("old.{}", column.to_lowercase()))
    }

    /// Can changing `table` break a constraint that is only looked at on COMMIT?
    pub(super) fn deferrable(&self, table: &str) -> bool {
        let sql = "SELECT count(*) FROM sqlite_schema AS s WHERE s.type = 'table' AND upper(s.sql) LIKE '%DEFERRABLE%' \
                   AND (s.name = ?1 OR EXISTS (SELECT 1 FROM pragma_foreign_key_list(s.name) AS f \
                   WHERE lower(f.\"table\") = lower(?1)))";
        self.ask::<i64>(sql, table).unwrap_or(0) > 0
    }

    /// The contracts recorded so far: (tool, revision, contract).
    pub(super) fn contracts(&self) -> Result<Vec<Recorded>, OpenError> {
        servable(&self.schema)?;
        // No such table: nothing was ever served from here.
        if !self.schema.table_exists(None::<&str>, "counterfoil_contracts")? {
            return Ok(Vec::new());
        }
        let mut statement =
            self.schema.prepare("SELECT tool, revision, contract FROM counterfoil_contracts")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "any other error speaks for itself")]
    fn unfit(&self, error: &Error) -> Unfit {
        let (message, at) = match error {
            Error::SqlInputError { msg, offset, .. } => (msg.clone(), usize::try_from(*offset).ok()),
            Error::SqliteFailure(_, Some(message)) => (message.clone(), None),
            _ => (error.to_string(), None),
        };
        let missing =
            |what: &str| message.strip_prefix(what).map(|name| name.rsplit('.').next().unwrap_or(name));
        let (word, known) = match (missing("no such table: "), missing("no such column: ")) {
            (Some(table), _) => {
                (table, self.names("SELECT name FROM pragma_table_list WHERE schema = 'main'"))
            }
            (None, Some(column)) => (column, self.names(COLUMNS)),
            (None, None) => return Unfit { message: prepared(&message), at, ..Unfit::default() },
        };
        let foreign = |name: &&str| !is_internal(name) && !is_ours(name);
        let known: Vec<&str> = known.iter().map(String::as_str).filter(foreign).collect();
        let help = nearest(word, &known).map(|near| format!("did you mean `{near}`?"));
        Unfit { at, help, ..about(prepared(&message), word) }
    }

    fn names(&self, sql: &str) -> Vec<String> {
        let read = || -> Result<Vec<String>, Error> {
            self.schema.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        // They are for a suggestion; there is none then.
        read().unwrap_or_default()
    }
}

/// Every column of every table.
const COLUMNS: &str = "SELECT DISTINCT c.name FROM pragma_table_list AS t, pragma_table_info(t.name) AS c \
                       WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!' \
                       AND t.name NOT LIKE 'counterfoil!_%' ESCAPE '!'";

/// Unfit for what it does with `word`.
fn about(message: String, word: &str) -> Unfit {
    let mut words = vec![word.to_owned()];
    if word.eq_ignore_ascii_case("sqlite_master") {
        words.push("sqlite_schema".into());
    }
    Unfit { message, words, ..Unfit::default() }
}

fn prepared(message: &str) -> String {
    format!("SQLite cannot prepare this: {message}")
}

/// What `schema` makes, in memory. A schema that would reach another file is refused before it does: nothing is
/// written when a config is checked.
fn imagined(schema: &str) -> Result<Connection, Error> {
    let mut connection = Connection::open_in_memory()?;
    connection.authorizer(Some(|context: AuthContext<'_>| {
        // VACUUM INTO attaches the file it writes.
        let elsewhere = matches!(context.action, AuthAction::Attach { .. });
        if elsewhere { Authorization::Deny } else { Authorization::Allow }
    }))?;
    connection.execute_batch(schema)?;
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    Ok(connection)
}

/// Virtual tables declare themselves when they are first used, which looks to the authorizer like writing the
/// schema: they are used once before it watches.
fn connect_modules(connection: &Connection, schema: &Connection) -> Result<(), Error> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'";
    let own: Vec<String> = schema.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in own.iter().map(String::as_str).chain(["json_each", "json_tree"]) {
        let quoted = table.replace('"', "\"\"");
        // One whose module is not here fails again, with its message, in the statement that uses it.
        let _connected = connection.prepare(&format!("SELECT 1 FROM \"{quoted}\""));
    }
    Ok(())
}

/// Functions whose answer belongs to a connection and not to a call.
const OF_A_CONNECTION: [&str; 3] = ["last_insert_rowid", "changes", "total_changes"];
/// Functions that reach out of the database, here or in a build that has them.
const OUTSIDE: [&str; 5] = ["load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"];
/// Tables that tell of the database file or of the running program.
const INTERNAL: [&str; 4] = ["dbstat", "bytecode", "tables_used", "fts3tokenize"];

impl Seen {
    fn judge(&mut self, context: &AuthContext<'_>) -> Authorization {
        match self.allow(context) {
            Ok(()) => Authorization::Allow,
            Err(reason) => {
                let through = context.accessor.map(str::to_owned);
                self.denied.get_or_insert(Unfit { through, ..reason });
                Authorization::Deny
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever is not named is not allowed")]
    fn allow(&mut self, context: &AuthContext<'_>) -> Result<(), Unfit> {
        let own = context.accessor.is_none();
        match context.action {
            AuthAction::Select | AuthAction::Recursive => Ok(()),
            AuthAction::Read { table_name, column_name } => {
                of_the_application(table_name)?;
                self.facts.reads.insert((table_name.to_owned(), column_name.to_owned()));
                if own {
                    self.facts.own_reads.insert(column_name.to_ascii_lowercase());
                }
                Ok(())
            }
            AuthAction::Function { function_name } => function(function_name, own),
            AuthAction::Insert { table_name } => self.change(Change::Insert, table_name, own),
            AuthAction::Delete { table_name } => self.change(Change::Delete, table_name, own),
            AuthAction::Update { table_name, column_name } => {
                self.facts.sets.insert((table_name.to_owned(), column_name.to_owned()));
                self.change(Change::Update, table_name, own)
            }
            _ => Err(Unfit {
                message: "a statement may only read and change tables".into(),
                ..Unfit::default()
            }),
        }
    }

    fn change(&mut self, change: Change, table: &str, own: bool) -> Result<(), Unfit> {
        of_the_application(table)?;
        self.facts.touched.insert((change, table.to_owned()));
        if own {
            self.facts.changes.insert((change, table.to_owned()));
        }
        Ok(())
    }
}

fn function(name: &str, own: bool) -> Result<(), Unfit> {
    let is = |known: &&str| name.eq_ignore_ascii_case(known);
    if OUTSIDE.iter().any(is) {
        return Err(about(format!("`{name}()` reaches out of the database"), name));
    }
    // A trigger's own inserts and changes are a world of their own, where these functions are well defined.
    if own && OF_A_CONNECTION.iter().any(is) {
        let help = "use RETURNING; a later statement of a list binds `:NAME.column` of an earlier one";
        let message = format!("`{name}()` tells of a connection and not of a call");
        return Err(Unfit { help: Some(help.into()), ..about(message, name) });
    }
    Ok(())
}

fn of_the_application(table: &str) -> Result<(), Unfit> {
    if is_ours(table) {
        return Err(about(format!("`{table}` is the ledger's own: no tool may touch it"), table));
    }
    if is_internal(table) {
        let called = if table.eq_ignore_ascii_case("sqlite_master") { "sqlite_schema" } else { table };
        let message =
            format!("`{called}` is SQLite's own: a tool reads and changes the application's tables");
        return Err(about(message, table));
    }
    Ok(())
}

fn is_ours(table: &str) -> bool {
    table.to_ascii_lowercase().starts_with("counterfoil_")
}

fn is_internal(table: &str) -> bool {
    let name = table.to_ascii_lowercase();
    name.starts_with("sqlite_") || name.starts_with("pragma_") || INTERNAL.contains(&name.as_str())
}

/// A name as SQL writes it, quoted where it must be.
fn identifier(name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
