//! `set_interval` for the library: the contract, the handler, and the steps of a handler as functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil::Fault;
use counterfoil::sqlite::{Handler, Rule, Tx};
use counterfoil_core::json::{self, Bounds};
use counterfoil_core::{
    Argument, Call, Contract, IdForm, Intent, Reading, Refusal, Revision, Schema, Scope, Sources, ToolName,
    Windows,
};
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;

use crate::{Ask, Gate, Who, people};

const INPUT: &str = r#"{"type": "object", "required": ["id", "expected_version", "interval_minutes"], "properties": {
  "id": {"type": "integer", "minimum": 1},
  "expected_version": {"type": "integer", "minimum": 1},
  "interval_minutes": {"type": "integer", "minimum": 5, "maximum": 1440}}}"#;

/// What `set_interval` returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Automation {
    /// Which.
    pub id: i64,
    /// Minutes between runs.
    pub interval_minutes: i64,
    /// After the change.
    pub version: i64,
}

/// What `set_interval` promises and demands.
#[must_use]
pub fn contract() -> Contract {
    let input = json::parse(INPUT.as_bytes(), Bounds::default()).unwrap();
    Contract {
        ledger_name: ToolName::parse("set_interval").unwrap(),
        scope: Scope::parse(people::WRITE).unwrap(),
        revision: Revision::parse("v1").unwrap(),
        schema: Schema::compile(&input).unwrap(),
        retired: Vec::new(),
        ids: IdForm::Any,
        windows: Windows::default(),
        store_intent: true,
    }
}

/// Steps 2 to 5 of a call.
///
/// # Errors
/// The refusal of whichever step refuses.
pub fn admit(who: Who, ask: &Ask) -> Result<Call, Refusal> {
    assert_eq!(ask.tool, "set_interval", "the library's subject has one tool");
    let arguments = json::parse(ask.text().as_bytes(), Bounds::default()).unwrap();
    contract().admit(&who.principal(), None, &Sources::default(), arguments)
}

/// A call that is admitted, or a failed test.
#[must_use]
pub fn call(who: Who, ask: &Ask) -> Call {
    admit(who, ask).unwrap()
}

/// An integer among the arguments.
pub(crate) fn integer(intent: &Intent, name: &str) -> i64 {
    match intent.argument(name) {
        Some(Argument::Integer(value)) => *value,
        other => panic!("{name} is {other:?}"),
    }
}

/// Step 7: is the automation in the caller's workspace now?
///
/// # Errors
/// The database's.
pub fn access(connection: &Connection, call: &Call) -> Result<bool, Fault> {
    let Some(reading) = call.live() else { return Ok(false) };
    let sql = "SELECT 1 FROM automations WHERE id = ?1 AND workspace_id = ?2";
    let parameters = (integer(&reading.intent, "id"), call.principal.workspace.as_str());
    Ok(connection.query_row(sql, parameters, |_| Ok(())).optional()?.is_some())
}

/// Step 10: the version-guarded write.
///
/// # Errors
/// `version_conflict`, or the database's.
pub fn write(connection: &Connection, call: &Call) -> Result<Automation, Fault> {
    let intent = &call.live().unwrap().intent;
    let sql = "UPDATE automations SET interval_minutes = ?4, version = version + 1 \
               WHERE id = ?1 AND workspace_id = ?2 AND version = ?3 \
               RETURNING id, interval_minutes, version";
    let parameters = (
        integer(intent, "id"),
        call.principal.workspace.as_str(),
        integer(intent, "expected_version"),
        integer(intent, "interval_minutes"),
    );
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Automation { id: row.get(0)?, interval_minutes: row.get(1)?, version: row.get(2)? })
    };
    let written = connection.prepare_cached(sql)?.query_row(parameters, read).optional()?;
    written.ok_or_else(|| Refusal::version_conflict(None).into())
}

/// `set_interval` as a [`Handler`].
#[derive(Debug, Clone)]
pub struct SetInterval {
    /// The call.
    pub call: Arc<Call>,
    /// Where the write waits before it begins.
    pub gate: Option<Gate>,
    /// How often the write began.
    pub writes: Arc<AtomicUsize>,
}

impl SetInterval {
    /// For `call`.
    #[must_use]
    pub fn new(call: Call) -> Self {
        Self { call: Arc::new(call), gate: None, writes: Arc::default() }
    }

    /// Waits at `gate` when it is about to write.
    #[must_use]
    pub fn waiting_at(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }
}

impl Handler for SetInterval {
    fn access(&mut self, tx: &Tx<'_>, _rule: Rule<'_>) -> Result<bool, Fault> {
        access(tx, &self.call)
    }

    fn write(&mut self, tx: &Tx<'_>, _reading: &Reading) -> Result<Box<str>, Fault> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        Ok(serde_json::to_string(&write(tx, &self.call)?).unwrap().into())
    }
}
