//! What PostgreSQL says of a statement: its prepare tells types, its generic plan tells what is touched. Everything
//! happens in transactions that cannot write and are rolled back.

mod explained;
pub(in crate::plan) mod words;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil::OpenError;
use counterfoil::postgres::{Receipts, connect};
use counterfoil::tokio_postgres::error::{DbError, ErrorPosition, SqlState};
use counterfoil::tokio_postgres::{Client, Error, Row, SimpleQueryMessage, Statement};
use tokio::runtime::{Builder, Runtime};

use super::super::Server;
use super::super::sql::{Numbered, Parameter, Scanned};
use super::{Again, Casts, Change, ColumnFact, Facts, Recorded, Unfit};
use crate::config::nearest;
use explained::Explained;

/// A connection on which statements are only prepared, driven by a runtime of its own: a check may be asked for
/// from anywhere.
pub(in crate::plan) struct Probe {
    client: Client,
    /// Begins a transaction in which statements are planned.
    begin: String,
    runtime: Option<Runtime>,
}

/// A runtime may not end where one runs: it is left to end by itself.
impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Generic plans, which an index serves if one can.
const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; \
                     SET LOCAL statement_timeout = '10s'";

impl Probe {
    /// Connects; as long as what is in the way may pass by itself, `again` says whether to try once more. `session` is
    /// what a call's transaction would be given: a policy that asks for it is asked when its table is planned for.
    pub(in crate::plan) fn open(
        server: &Server,
        session: &[(String, String)],
        again: &mut Again<'_>,
    ) -> Result<Self, OpenError> {
        let settings = session
            .iter()
            .map(|(name, value)| format!("; SELECT set_config({}, {}, true)", literal(name), literal(value)));
        let begin = std::iter::once(BEGIN.to_owned()).chain(settings).collect::<String>();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        loop {
            match wait(&runtime, reach(server)) {
                Ok(client) => return Ok(Self { client, begin, runtime: Some(runtime) }),
                Err(error) if error.passing() && again(&error) => {
                    wait(&runtime, async { tokio::time::sleep(PAUSE.min(server.start_wait)).await });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for an answer. Without a runtime there is none, and nobody asks: it ends with the probe.
    fn wait<T: Send>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        self.runtime.as_ref().map(|runtime| wait(runtime, future))
    }

    pub(in crate::plan) fn prepare(&self, scanned: &Scanned, casts: Casts<'_>) -> Result<Facts, Unfit> {
        words::fit(scanned)?;
        let together = scanned.numbered(false, casts);
        let apart = scanned.numbered(true, casts);
        let prepared = self.wait(async {
            self.client.batch_execute(&self.begin).await.map_err(|error| (error, together.clone()))?;
            let prepared = self.facts(scanned, together, apart).await;
            let _ended = self.client.batch_execute("ROLLBACK").await;
            prepared
        });
        match prepared {
            Some(Ok(facts)) => facts,
            Some(Err((error, numbered))) => Err(self.unfit(&error, &numbered)),
            None => Err(Unfit::default()),
        }
    }

    /// With one number for each parameter; where its places want different types, with a number for each place.
    async fn facts(
        &self,
        scanned: &Scanned,
        together: Numbered,
        apart: Numbered,
    ) -> Result<Result<Facts, Unfit>, (Error, Numbered)> {
        let (statement, numbered) = match self.client.prepare(&together.sql).await {
            Ok(statement) => (statement, together),
            Err(error) if error.code() == Some(&SqlState::AMBIGUOUS_PARAMETER) => {
                let again = format!("ROLLBACK; {}", self.begin);
                self.client.batch_execute(&again).await.map_err(|error| (error, together))?;
                match self.client.prepare(&apart.sql).await {
                    Ok(statement) => (statement, apart),
                    Err(error) => return Err((error, apart)),
                }
            }
            Err(error) => return Err((error, together)),
        };
        match self.explain(&numbered, statement.params().len()).await {
            Ok(explained) => Ok(self.told(scanned, &statement, &numbered, &explained).await),
            Err(error) => Err((error, numbered)),
        }
    }

    /// The generic plan. EXPLAIN runs nothing.
    async fn explain(&self, numbered: &Numbered, parameters: usize) -> Result<Explained, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("counterfoil_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let prepare = format!("PREPARE {name} AS {}\n", numbered.sql);
        let nulls = vec!["NULL"; parameters].join(", ");
        let values = if parameters == 0 { String::new() } else { format!("({nulls})") };
        let explain = format!("EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE {name}{values}");
        self.client.simple_query(&prepare).await?;
        let answer = self.client.simple_query(&explain).await;
        // A rollback does not forget a prepared statement, and a failed transaction takes no other command.
        if answer.is_err() {
            self.client.batch_execute("ROLLBACK; BEGIN READ ONLY").await?;
        }
        let _forgotten = self.client.batch_execute(&format!("DEALLOCATE {name}")).await;
        let mut text = String::new();
        for message in answer? {
            if let SimpleQueryMessage::Row(row) = message {
                text.push_str(row.get(0).unwrap_or_default());
            }
        }
        Ok(Explained::read(&text))
    }

    async fn told(
        &self,
        scanned: &Scanned,
        statement: &Statement,
        numbered: &Numbered,
        explained: &Explained,
    ) -> Result<Facts, Unfit> {
        explained.fit()?;
        let own_reads = words::names(scanned);
        let mut facts = Facts {
            sql: numbered.sql.trim_end().to_owned(),
            unlocked: words::unlocked(scanned, &numbered.sql),
            parameters: numbered.parameters.iter().map(Parameter::bound_name).collect(),
            kinds: statement.params().to_vec(),
            slots: numbered.slots.clone(),
            read_only: explained.changes.is_empty(),
            touched: explained.changes.clone(),
            changes: explained.changes.clone(),
            unindexed: explained.whole.clone(),
            ..Facts::default()
        };
        let columns = statement.columns().iter();
        facts.columns = columns
            .map(|column| ColumnFact {
                name: column.name().to_owned(),
                strict_type: None,
                kind: Some(column.type_().clone()),
            })
            .collect();
        for table in &explained.tables {
            let used = self.columns(table).await.into_iter().filter(|column| own_reads.contains(column));
            facts.reads.extend(used.map(|column| (table.clone(), column)));
        }
        let sets = words::sets(scanned);
        for (_, table) in facts.changes.iter().filter(|(change, _)| *change == Change::Update) {
            facts.sets.extend(sets.iter().map(|column| (table.clone(), column.clone())));
        }
        facts.own_reads = own_reads;
        Ok(facts)
    }

    /// The columns of a table. They are for warnings: where they cannot be had, there are none.
    async fn columns(&self, table: &str) -> Vec<String> {
        let sql = "SELECT DISTINCT attname::text FROM pg_attribute \
                   WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
        let rows = self.client.query(sql, &[&quoted(table)]).await.unwrap_or_default();
        rows.iter().filter_map(|row| row.try_get(0).ok()).collect()
    }

    /// Asks the catalogue, in one transaction: a pooler may lend another session for the next. What cannot be had is
    /// not needed.
    async fn ask(&self, sql: &str, table: Option<String>) -> Vec<Row> {
        let _begun = self.client.batch_execute("BEGIN READ ONLY").await;
        let rows = match &table {
            Some(table) => self.client.query(sql, &[table]).await,
            None => self.client.query(sql, &[]).await,
        };
        let _ended = self.client.batch_execute("ROLLBACK").await;
        rows.unwrap_or_default()
    }

    /// An integer primary key that no sequence gives: whoever computes it may give it again. A sequence never goes back.
    pub(in crate::plan) fn reusable_id(&self, table: &str) -> Option<String> {
        let sql = "SELECT a.attname::text FROM pg_index AS i \
                   JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
                   WHERE i.indrelid = to_regclass($1) AND i.indisprimary AND i.indnkeyatts = 1 \
                     AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) \
                     AND a.attidentity = '' AND NOT a.atthasdef";
        let rows = self.wait(self.ask(sql, Some(quoted(table)))).unwrap_or_default();
        rows.first()?.try_get(0).ok()
    }

    /// The columns that name a row of `table`.
    pub(in crate::plan) fn key(&self, table: &str) -> Vec<String> {
        let sql = "SELECT quote_ident(a.attname) FROM pg_index AS i \
                   JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) \
                   WHERE i.indrelid = to_regclass($1) AND i.indisprimary ORDER BY a.attnum";
        let rows = self.wait(self.ask(sql, Some(quoted(table)))).unwrap_or_default();
        rows.iter().filter_map(|row| row.try_get(0).ok()).collect()
    }

    /// Does a trigger on `table` watch over `column`? A view has nothing to watch over but its table.
    pub(in crate::plan) fn guarded(&self, table: &str, column: &str) -> bool {
        let sql = "SELECT c.relkind::text, coalesce(string_agg(lower(p.prosrc), ' '), '') \
                   FROM pg_class AS c LEFT JOIN pg_trigger AS t ON t.tgrelid = c.oid AND NOT t.tgisinternal \
                   LEFT JOIN pg_proc AS p ON p.oid = t.tgfoid WHERE c.oid = to_regclass($1) GROUP BY c.relkind";
        let rows = self.wait(self.ask(sql, Some(quoted(table)))).unwrap_or_default();
        let Some(row) = rows.first() else { return true };
        let kind: String = row.try_get(0).unwrap_or_default();
        let sources: String = row.try_get(1).unwrap_or_default();
        let watches = format!("old.{}", column.to_lowercase());
        kind == "v" || sources.contains("raise") && sources.replace('"', "").contains(&watches)
    }

    /// The contracts recorded so far; none where nothing was ever served from.
    pub(in crate::plan) fn contracts(&self) -> Result<Vec<Recorded>, OpenError> {
        let read = async {
            match Receipts::open(&self.client).await {
                Ok(_) => {}
                // `serve` makes the tables.
                Err(OpenError::NotMigrated { found: 0, .. }) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
            let rows =
                self.client.query("SELECT tool, revision, contract FROM counterfoil_contracts", &[]).await?;
            let recorded = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
            recorded.collect::<Result<_, Error>>().map_err(OpenError::from)
        };
        let read = async {
            self.client.batch_execute("BEGIN READ ONLY").await?;
            let read = read.await;
            let _ended = self.client.batch_execute("ROLLBACK").await;
            read
        };
        self.wait(read).unwrap_or_else(|| Ok(Vec::new()))
    }

    fn unfit(&self, error: &Error, numbered: &Numbered) -> Unfit {
        let Some(db) = error.as_db_error() else {
            return Unfit { message: format!("PostgreSQL was lost: {error}"), ..Unfit::default() };
        };
        let at = match db.position() {
            Some(ErrorPosition::Original(at)) => Some(numbered.written(byte(&numbered.sql, *at))),
            Some(ErrorPosition::Internal { .. }) | None => None,
        };
        let (said, word) = named(db.message(), numbered);
        let message = format!("PostgreSQL cannot prepare this: {said}");
        let at = at.or(word);
        Unfit { message, at, help: self.help(db), ..Unfit::default() }
    }

    fn help(&self, db: &DbError) -> Option<String> {
        if *db.code() == SqlState::INDETERMINATE_DATATYPE {
            return Some("say its type: `:name::text`".to_owned());
        }
        if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE {
            let help = "grant it to the role that serves: `GRANT SELECT, INSERT, UPDATE, DELETE ON … TO …`";
            return Some(help.to_owned());
        }
        if *db.code() == SqlState::UNDEFINED_OBJECT && db.message().contains("configuration parameter") {
            let name = db.message().split('"').nth(1)?;
            return Some(format!(
                "a policy or function asks for it: say `session = {{ \"{name}\" = \":workspace\" }}` in `[database]`"
            ));
        }
        let sql = match *db.code() {
            SqlState::UNDEFINED_TABLE => {
                "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'v', 'p', 'm') AND pg_table_is_visible(oid) \
                 AND relnamespace <> 'pg_catalog'::regnamespace AND relname NOT LIKE 'counterfoil\\_%'"
            }
            SqlState::UNDEFINED_COLUMN => {
                "SELECT DISTINCT attname::text FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid \
                 WHERE attnum > 0 AND relkind IN ('r', 'v', 'p', 'm') AND pg_table_is_visible(c.oid) \
                 AND relnamespace <> 'pg_catalog'::regnamespace AND relname NOT LIKE 'counterfoil\\_%'"
            }
            _ => return db.hint().map(str::to_owned),
        };
        let word = db.message().split('"').nth(1)?.to_owned();
        let rows = self.wait(self.ask(sql, None))?;
        let known: Vec<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        nearest(&word, &known).map(|near| format!("did you mean `{near}`?"))
    }
}

/// Between two tries to reach a database.
const PAUSE: Duration = Duration::from_millis(500);

async fn reach(server: &Server) -> Result<Client, OpenError> {
    // No setting of a session: behind a pooler it would be left to somebody else.
    let mut config = server.connect.clone();
    config.application_name("counterfoil check");
    connect(config, &server.tls).await
}

/// A string constant, whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name that `schema.table` means.
fn quoted(table: &str) -> String {
    let parts = table.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

/// A message with the name of a parameter instead of its number, and where that stands as written.
fn named(message: &str, numbered: &Numbered) -> (String, Option<usize>) {
    let plain = || (message.to_owned(), None);
    let Some((before, rest)) = message.split_once('$') else { return plain() };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let number: usize = digits.parse().unwrap_or(0);
    let Some(parameter) = number.checked_sub(1).and_then(|at| numbered.parameters.get(at)) else {
        return plain();
    };
    let place = numbered.sql.find(&format!("${number} ")).map(|at| numbered.written(at.saturating_sub(1)));
    let name = parameter.bound_name().replace('$', ".");
    (format!("{before}{name}{}", &rest[digits.len()..]), place)
}

/// The byte at which the `at`-th character stands, counted from 1.
fn byte(sql: &str, at: u32) -> usize {
    let at = usize::try_from(at).unwrap_or(usize::MAX).saturating_sub(1);
    sql.char_indices().nth(at).map_or(sql.len(), |(byte, _)| byte)
}

/// On a thread of its own, since the caller's may belong to another runtime.
fn wait<T: Send>(runtime: &Runtime, future: impl Future<Output = T> + Send) -> T {
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(future)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Tables as `name`, or `schema.name` where the schema is not `public`.
pub(super) type Tables = BTreeSet<String>;
