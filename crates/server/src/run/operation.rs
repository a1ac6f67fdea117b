//! The built-in tools: what became of an operation, and recording that it never will.

use std::sync::Arc;

use counterfoil::Key;
use counterfoil::sqlite::{Record, Void};
use counterfoil_core::json::{self, Value, write_string};
use counterfoil_core::schema::Schema;
use counterfoil_core::{
    Committed, FieldError, Principal, Reading, Receipt, Refusal, RequestId, Timestamp, decide, wire,
};

use super::context::Context;
use super::writing::replay_rule;
use crate::config::show_duration;
use crate::plan::{Kind, Plan, Statement, Tool, Write};

/// Whose operation, of which tool.
pub(super) struct Question {
    pub plan: Arc<Plan>,
    pub principal: Arc<Principal>,
    pub tool: Arc<Tool>,
    pub operation: RequestId,
}

impl Question {
    /// Reads `{tool, operation}`, and asks for the tool's scope.
    pub(super) fn read(
        plan: &Arc<Plan>,
        principal: &Arc<Principal>,
        mut arguments: Value,
    ) -> Result<Self, Refusal> {
        let _ignored = arguments.remove(wire::REQUEST_ID_ARGUMENT);
        let name = text(&arguments, "tool")?;
        let operation = text(&arguments, "operation")?;
        only(&arguments)?;
        let fault = |pointer: &str, message: &str| {
            Refusal::invalid_arguments(vec![FieldError::new(pointer, message)])
        };
        // A pinned name names the same tool.
        let bare = name.split_once('.').map_or(name, |(bare, _)| bare);
        let tool = plan.names.get(bare).and_then(|at| plan.tools.get(*at)).map(Arc::clone);
        let tool = tool.filter(|tool| matches!(tool.kind, Kind::Write(_)));
        let tool = tool.ok_or_else(|| fault("/tool", "is not a tool that takes request ids"))?;
        let operation = RequestId::parse(operation)
            .map_err(|_| fault("/operation", "must be a request id: 1 to 64 of A-Z a-z 0-9 _ -"))?;
        let question = Self { plan: Arc::clone(plan), principal: Arc::clone(principal), tool, operation };
        question.write()?.contract.authorise(principal)?;
        Ok(question)
    }

    pub(super) fn write(&self) -> Result<&Write, Refusal> {
        match &self.tool.kind {
            Kind::Write(write) => Ok(write),
            Kind::Read(_) => Err(Refusal::resource_unavailable()),
        }
    }

    pub(super) fn key<'a>(&'a self, write: &'a Write) -> Key<'a> {
        Key { principal: &self.principal, tool: &write.contract.ledger_name, request_id: &self.operation }
    }

    /// What is known of an operation whose record is `record`.
    pub(super) fn state(&self, record: Option<&Record>, now: Timestamp) -> Result<&'static str, Refusal> {
        let remember = self.write()?.contract.windows.remember;
        Ok(match record {
            Some(Record { receipt: Receipt::Voided, .. }) => "voided",
            Some(Record { receipt: Receipt::Committed(_), .. }) => "committed",
            // Where its fact may be gone, absence says nothing.
            None if decide::dated(&self.operation, remember, now).is_some() => "unknown",
            None => "not_committed_so_far",
        })
    }

    /// The result, if it is kept, with the recorded intent, for which the rule that guards it must pass now.
    pub(super) fn kept<'r>(&self, record: Option<&'r Record>, now: Timestamp) -> Option<(Reading, &'r str)> {
        let Some(Record { receipt: Receipt::Committed(committed), intent: Some(intent), .. }) = record else {
            return None;
        };
        let write = self.write().ok()?;
        let result = kept(committed, write, now)?;
        Some((recorded(write, committed, intent)?, result))
    }

    /// The rule that guards the result of the operation read as `reading`.
    pub(super) fn rule(&self, reading: &Reading) -> Option<&Statement> {
        self.write().ok().and_then(|write| replay_rule(&self.tool, write, reading))
    }

    /// What the rule binds.
    pub(super) fn context<'a, V>(&'a self, reading: &'a Reading) -> Context<'a, V> {
        let principal = Context::of(&self.principal);
        Context { request_id: Some(&self.operation), intent: Some(&reading.intent), ..principal }
    }

    /// The structured content of the answer.
    pub(super) fn body(
        &self,
        state: &str,
        record: Option<&Record>,
        result: Option<&str>,
        epoch: &str,
    ) -> Result<String, Refusal> {
        let windows = &self.write()?.contract.windows;
        let mut out = String::from("{");
        member(&mut out, "tool", self.tool.name.as_str());
        member(&mut out, "request_id", self.operation.as_str());
        member(&mut out, "state", state);
        if let Some(Record { receipt: Receipt::Committed(committed), .. }) = record {
            member(&mut out, "committed_at", &committed.at.to_string());
        }
        if let Some(result) = result {
            out.push_str("\"result\":");
            out.push_str(result);
            out.push(',');
        }
        member(&mut out, "epoch", epoch);
        member(&mut out, "keep", &show_duration(windows.keep));
        member(&mut out, "remember", &show_duration(windows.remember));
        out.pop();
        out.push('}');
        Ok(out)
    }
}

/// The state after a void.
pub(super) fn voided(void: Void) -> &'static str {
    match void {
        Void::Voided => "voided",
        Void::Committed(_) => "committed",
    }
}

fn kept<'c>(committed: &'c Committed, write: &Write, now: Timestamp) -> Option<&'c str> {
    let within = now <= committed.at.plus(write.contract.windows.keep);
    committed.result.as_deref().filter(|_| within)
}

/// The recorded intent as its own revision reads it, if that revision is still declared.
pub(super) fn recorded(write: &Write, committed: &Committed, intent: &str) -> Option<Reading> {
    let contract = &write.contract;
    let schema = schema_of(write, committed)?;
    let value = json::parse(intent.as_bytes(), json::Bounds::default()).ok()?;
    let reading = Reading::new(&contract.ledger_name, committed.revision.clone(), schema.read(&value).ok()?);
    (reading.fingerprint == committed.fingerprint).then_some(reading)
}

fn schema_of<'w>(write: &'w Write, committed: &Committed) -> Option<&'w Schema> {
    let contract = &write.contract;
    if contract.revision == committed.revision {
        return Some(&contract.schema);
    }
    contract.retired.iter().find(|(revision, _)| *revision == committed.revision).map(|(_, schema)| schema)
}

fn member(out: &mut String, name: &str, value: &str) {
    write_string(out, name);
    out.push(':');
    write_string(out, value);
    out.push(',');
}

fn text<'a>(arguments: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    let fault =
        |message: &str| Refusal::invalid_arguments(vec![FieldError::new(&format!("/{name}"), message)]);
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(fault(&format!("must be a string, not {}", other.kind()))),
        None => Err(fault("is required")),
    }
}

fn only(arguments: &Value) -> Result<(), Refusal> {
    let Value::Object(members) = arguments else { return Ok(()) };
    match members.iter().find(|(name, _)| !matches!(&**name, "tool" | "operation")) {
        None => Ok(()),
        Some((name, _)) => {
            let fault = FieldError::new(&format!("/{name}"), "is not an argument of this tool");
            Err(Refusal::invalid_arguments(vec![fault]))
        }
    }
}
