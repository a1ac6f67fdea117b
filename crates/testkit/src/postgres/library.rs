//! `set_interval` for the library on PostgreSQL: the handler, and its steps as functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil::Fault;
use counterfoil::postgres::{Handler, Rule, Step, Tx};
use counterfoil_core::{Call, Reading, Refusal};
use tokio::sync::oneshot;
use tokio_postgres::GenericClient;

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
