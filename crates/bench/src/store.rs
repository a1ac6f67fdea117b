//! The reference application: its table, its one write as a library's handler, and its databases.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil::Fault;
use counterfoil::sqlite::{Handler, Ledger, Options, Rule, Tx};
use counterfoil_core::{
    Call, Intent, Issuer, Principal, Reading, Refusal, RequestId, Revision, Scope, Subject, ToolName,
    Workspace,
};
use rusqlite::{Connection, OptionalExtension as _, Statement};
use serde::Serialize;
use uuid::Uuid;

/// As `examples/automations` has it.
pub(crate) const SCHEMA: &str = "CREATE TABLE automations (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace_id     TEXT NOT NULL,
  interval_minutes INTEGER NOT NULL CHECK (interval_minutes BETWEEN 5 AND 1440),
  version          INTEGER NOT NULL
) STRICT;
";

pub(crate) const ACCESS: &str = "SELECT 1 FROM automations WHERE id = ?1 AND workspace_id = ?2";

pub(crate) const UPDATE: &str = "UPDATE automations SET interval_minutes = ?4, version = version + 1 \
     WHERE id = ?1 AND workspace_id = ?2 AND version = ?3 RETURNING id, interval_minutes, version";

pub(crate) const WORKSPACE: &str = "team-a";
pub(crate) const ISSUER: &str = "local";
pub(crate) const SUBJECT: &str = "alice";
pub(crate) const TOOL: &str = "set_interval";
pub(crate) const REVISION: &str = "v1";
pub(crate) const SCOPE: &str = "automation:write";

/// A new database with `rows` automations, ids from 1, at version 1.
pub(crate) fn create(directory: &Path, name: &str, rows: i64) -> anyhow::Result<PathBuf> {
    let path = directory.join(name);
    let mut connection = Connection::open(&path)?;
    connection.execute_batch(SCHEMA)?;
    let tx = connection.transaction()?;
    for _ in 0..rows {
        let sql = "INSERT INTO automations (workspace_id, interval_minutes, version) VALUES (?1, 15, 1)";
        tx.execute(sql, [WORKSPACE])?;
    }
    tx.commit()?;
    Ok(path)
}

/// A connection with the ledger's durability and its cache of statements.
pub(crate) fn connect(path: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

pub(crate) fn open(path: &Path) -> anyhow::Result<Ledger> {
    Ok(Ledger::open(path, Options::default())?)
}

/// What the application knows of one automation, and changes by one step at a time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Edit {
    pub id: i64,
    pub expected_version: i64,
    pub interval_minutes: i64,
}

impl Edit {
    pub(crate) fn first(id: i64) -> Self {
        Self { id, expected_version: 1, interval_minutes: 15 }
    }

    /// The edit that follows upon this one.
    pub(crate) fn next(self) -> Self {
        Self { expected_version: self.expected_version + 1, ..self }
    }

    pub(crate) fn parameters(&self) -> (i64, &'static str, i64, i64) {
        (self.id, WORKSPACE, self.expected_version, self.interval_minutes)
    }
}

/// The bare write, as an application without receipts has it.
pub(crate) fn update(statement: &mut Statement<'_>, edit: &Edit) -> rusqlite::Result<Option<Box<str>>> {
    let result = |row: &rusqlite::Row<'_>| {
        let (id, interval, version): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("{{\"id\":{id},\"interval_minutes\":{interval},\"version\":{version}}}").into())
    };
    statement.query_row(edit.parameters(), result).optional()
}

pub(crate) fn request_id() -> String {
    Uuid::now_v7().to_string()
}

/// What a service holds for the time of its life.
#[derive(Clone)]
pub(crate) struct Service {
    ledger: Ledger,
    principal: Arc<Principal>,
    tool: ToolName,
    revision: Revision,
}

impl Service {
    pub(crate) fn new(ledger: Ledger) -> anyhow::Result<Self> {
        let principal = Principal {
            issuer: Issuer::parse(ISSUER)?,
            subject: Subject::parse(SUBJECT)?,
            workspace: Workspace::parse(WORKSPACE)?,
            scopes: [Scope::parse(SCOPE)?].into(),
        };
        let (tool, revision) = (ToolName::parse(TOOL)?, Revision::parse(REVISION)?);
        Ok(Self { ledger, principal: Arc::new(principal), tool, revision })
    }

    /// One receipted call, everything in it that a service pays for: canonical intent, fingerprint, the ledger.
    pub(crate) async fn call(&self, id: &str, edit: Edit) -> anyhow::Result<bool> {
        let intent = Intent::of(&edit).map_err(anyhow::Error::msg)?;
        let (principal, id) = (Arc::clone(&self.principal), RequestId::parse(id)?);
        let call = Call::new(principal, self.tool.clone(), self.revision.clone(), id, intent);
        Ok(self.ledger.perform(Arc::new(call), SetInterval { edit }).await?.replayed)
    }
}

struct SetInterval {
    edit: Edit,
}

impl Handler for SetInterval {
    fn access(&mut self, tx: &Tx<'_>, _rule: Rule<'_>) -> Result<bool, Fault> {
        let mut rule = tx.prepare_cached(ACCESS)?;
        Ok(rule.exists((self.edit.id, WORKSPACE))?)
    }

    fn write(&mut self, tx: &Tx<'_>, _reading: &Reading) -> Result<Box<str>, Fault> {
        let written = update(&mut *tx.prepare_cached(UPDATE)?, &self.edit)?;
        written.ok_or_else(|| Refusal::version_conflict(None).into())
    }
}

/// A runtime for callers that are few: everything on the thread that asks.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
