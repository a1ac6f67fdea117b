//! `set_interval` for the library on PostgreSQL: the handler, and its steps as functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil::Fault;
use counterfoil::postgres::{
    Column, Declaration, Declared, Handler, Part, Query, Returns, Rule, Step, Tx, Values,
};
use counterfoil_core::{Call, Reading, Refusal};
use tokio::sync::oneshot;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::Gate;
use crate::library::{Automation, integer};

/// Step 7: is the automation in the caller's workspace now?
///
/// # Errors
/// The database's.
pub async fn access(client: &impl GenericClient, call: &Call) -> Result<bool, Fault> {
    let Some(reading) = call.live() else { return Ok(false) };
    let sql = "SELECT 1 FROM automations WHERE id = $1 AND workspace_id = $2";
    let (id, workspace) = (integer(&reading.intent, "id"), call.principal.workspace.as_str());
    Ok(client.query_opt(sql, &[&id, &workspace]).await?.is_some())
}

/// Step 10: the version-guarded write.
///
/// # Errors
/// `version_conflict`, or the database's.
pub async fn write(client: &impl GenericClient, call: &Call) -> Result<Automation, Fault> {
    let intent = &call.live().unwrap().intent;
    let sql = "UPDATE automations SET interval_minutes = $4, version = version + 1 \
               WHERE id = $1 AND workspace_id = $2 AND version = $3 \
               RETURNING id, interval_minutes, version";
    let workspace = call.principal.workspace.as_str();
    let [id, version, interval] =
        ["id", "expected_version", "interval_minutes"].map(|name| integer(intent, name));
    let written = client.query_opt(sql, &[&id, &workspace, &version, &interval]).await?;
    let row = written.ok_or_else(|| Refusal::version_conflict(None))?;
    Ok(Automation { id: row.get(0), interval_minutes: row.get(1), version: row.get(2) })
}

/// Integers of these names.
#[must_use]
pub fn integers(names: &[&str]) -> Vec<Column> {
    let column = |name: &&str| Column { name: (*name).to_owned(), json: "({})::text".to_owned() };
    names.iter().map(column).collect()
}

/// `set_interval` as a declaration. Its values: id, workspace, expected version, interval.
#[must_use]
pub fn declaration() -> Declaration {
    let mine = |sql: &str| {
        let sql = Part::from(sql).text(" WHERE id = ").slot(0, Type::INT8);
        sql.text(" AND workspace_id = ").slot(1, Type::TEXT)
    };
    let update = Part::from("UPDATE automations SET version = version + 1, interval_minutes = ");
    let update = update.slot(3, Type::INT8).text(" WHERE id = ").slot(0, Type::INT8);
    let update = update.text(" AND workspace_id = ").slot(1, Type::TEXT).text(" AND version = ");
    let update = update.slot(2, Type::INT8).text(" RETURNING id, interval_minutes, version");
    Declaration {
        membership: None,
        access: Some(mine("SELECT 1 FROM automations")),
        replay_access: None,
        write: Query { sql: update, columns: integers(&["id", "interval_minutes", "version"]) },
        returns: Returns::Row,
        may_change_nothing: false,
        current: None,
        session: Vec::new(),
    }
}

/// The values of `call` for [`declaration`].
#[derive(Debug)]
struct Slots(i64, String, i64, i64);

impl Slots {
    fn of(call: &Call) -> Self {
        let intent = &call.live().unwrap().intent;
        let [id, version, interval] =
            ["id", "expected_version", "interval_minutes"].map(|name| integer(intent, name));
        Self(id, call.principal.workspace.as_str().to_owned(), version, interval)
    }
}

/// `set_interval` as a [`Handler`] whose write is declared.
#[derive(Debug)]
pub struct Single {
    /// The same, step by step.
    pub steps: SetInterval,
    declared: Arc<Declared>,
    slots: Slots,
}

impl Single {
    /// For `call`, with what [`declaration`] was composed to.
    #[must_use]
    pub fn new(call: Call, declared: &Arc<Declared>) -> Self {
        let slots = Slots::of(&call);
        Self { steps: SetInterval::new(call), declared: Arc::clone(declared), slots }
    }

    /// What resolves when the call has ended, whoever waits for it.
    #[must_use]
    pub fn telling_its_end(self) -> (Self, oneshot::Receiver<()>) {
        let (steps, end) = self.steps.telling_its_end();
        (Self { steps, ..self }, end)
    }
}

impl Handler for Single {
    fn access<'a>(&'a mut self, tx: &'a Tx, rule: Rule<'a>) -> Step<'a, bool> {
        self.steps.access(tx, rule)
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, reading: &'a Reading) -> Step<'a, Box<str>> {
        self.steps.write(tx, reading)
    }

    fn declared(&mut self) -> Option<Values<'_>> {
        let Slots(id, workspace, version, interval) = &self.slots;
        Some(Values { declared: &self.declared, values: vec![id, workspace, version, interval] })
    }
}

/// `set_interval` as a [`Handler`].
#[derive(Debug)]
pub struct SetInterval {
    /// The call.
    pub call: Arc<Call>,
    /// Where the write waits before it begins.
    pub gate: Option<Gate>,
    /// How often the write began.
    pub writes: Arc<AtomicUsize>,
    /// Dropped with the handler, when the call has ended.
    pub ended: Option<oneshot::Sender<()>>,
}

impl SetInterval {
    /// For `call`.
    #[must_use]
    pub fn new(call: Call) -> Self {
        Self { call: Arc::new(call), gate: None, writes: Arc::default(), ended: None }
    }

    /// Waits at `gate` when it is about to write.
    #[must_use]
    pub fn waiting_at(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// What resolves when the call has ended, whoever waits for it.
    #[must_use]
    pub fn telling_its_end(self) -> (Self, oneshot::Receiver<()>) {
        let (ended, end) = oneshot::channel();
        (Self { ended: Some(ended), ..self }, end)
    }
}

impl Handler for SetInterval {
    fn access<'a>(&'a mut self, tx: &'a Tx, _rule: Rule<'a>) -> Step<'a, bool> {
        Box::pin(access(&**tx, &self.call))
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, _reading: &'a Reading) -> Step<'a, Box<str>> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if let Some(gate) = self.gate.clone() {
                tokio::task::spawn_blocking(move || gate.pass()).await.unwrap();
            }
            Ok(serde_json::to_string(&write(&**tx, &self.call).await?).unwrap().into())
        })
    }
}
