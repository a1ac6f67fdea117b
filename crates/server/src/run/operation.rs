//! The built-in tools: what became of an operation, and recording that it never will.

use std::sync::Arc;

use counterfoil::sqlite::{Ledger, Record, Tx, Void, find_record, void};
use counterfoil::{Fault, Key};
use counterfoil_core::json::{self, Value, write_string};
use counterfoil_core::schema::Schema;
use counterfoil_core::{
    Committed, FieldError, Principal, Reading, Receipt, Refusal, RequestId, Timestamp, decide, wire,
};

use super::execute::Context;
use super::write::{may, replay_rule};
use crate::config::show_duration;
use crate::plan::{Kind, Plan, Tool, Write};

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

    fn write(&self) -> Result<&Write, Refusal> {
        match &self.tool.kind {
            Kind::Write(write) => Ok(write),
            Kind::Read(_) => Err(Refusal::resource_unavailable()),
        }
    }

    fn key<'a>(&'a self, write: &'a Write) -> Key<'a> {
        Key { principal: &self.principal, tool: &write.contract.ledger_name, request_id: &self.operation }
    }

    fn member(&self, tx: &Tx<'_>) -> Result<(), Fault> {
        let context = Context::of(&self.principal);
        if may(tx, &self.plan, None, &context)? {
            Ok(())
        } else {
            Err(Refusal::resource_unavailable().into())
        }
    }

    /// `operation_status`, in one read transaction.
    pub(super) fn status(&self, tx: &Tx<'_>, epoch: &str) -> Result<String, Fault> {
        self.member(tx)?;
        let write = self.write()?;
        let record = find_record(tx, self.key(write))?;
        let state = match &record {
            Some(Record { receipt: Receipt::Voided, .. }) => "voided",
            Some(Record { receipt: Receipt::Committed(_), .. }) => "committed",
            // Where its fact may be gone, absence says nothing.
            None if decide::dated(&self.operation, write.contract.windows.remember, tx.now()).is_some() => {
                "unknown"
            }
            None => "not_committed_so_far",
        };
        self.body(tx, write, state, record.as_ref(), epoch)
    }

    /// `void_operation`, in the writer's transaction.
    pub(super) fn void(&self, tx: &Tx<'_>, epoch: &str) -> Result<String, Fault> {
        self.member(tx)?;
        let write = self.write()?;
        let state = match void(tx, self.key(write), write.contract.windows)? {
            Void::Voided => "voided",
            Void::Committed(_) => "committed",
        };
        let record = find_record(tx, self.key(write))?;
        self.body(tx, write, state, record.as_ref(), epoch)
    }

    fn body(
        &self,
        tx: &Tx<'_>,
        write: &Write,
        state: &str,
        record: Option<&Record>,
        epoch: &str,
    ) -> Result<String, Fault> {
        let windows = &write.contract.windows;
        let mut out = String::from("{");
        member(&mut out, "tool", self.tool.name.as_str());
        member(&mut out, "request_id", self.operation.as_str());
        member(&mut out, "state", state);
        if let Some(Record { receipt: Receipt::Committed(committed), .. }) = record {
            member(&mut out, "committed_at", &committed.at.to_string());
        }
        if let Some(result) = self.result(tx, write, record)? {
            out.push_str("\"result\":");
            out.push_str(&result);
            out.push(',');
        }
        member(&mut out, "epoch", epoch);
        member(&mut out, "keep", &show_duration(windows.keep));
        member(&mut out, "remember", &show_duration(windows.remember));
        out.pop();
        out.push('}');
        Ok(out)
    }

    /// The result, only if it is kept and the rule passes now with the recorded intent.
    fn result(&self, tx: &Tx<'_>, write: &Write, record: Option<&Record>) -> Result<Option<Box<str>>, Fault> {
        let Some(Record { receipt: Receipt::Committed(committed), intent: Some(intent), .. }) = record else {
            return Ok(None);
        };
        let Some(result) = kept(committed, write, tx.now()) else { return Ok(None) };
        let Some(reading) = recorded(write, committed, intent) else { return Ok(None) };
        let context = Context {
            request_id: Some(&self.operation),
            intent: Some(&reading.intent),
            ..Context::of(&self.principal)
        };
        let allowed = may(tx, &self.plan, replay_rule(&self.tool, write, &reading), &context)?;
        Ok(allowed.then(|| result.into()))
    }
}

fn kept<'c>(committed: &'c Committed, write: &Write, now: Timestamp) -> Option<&'c str> {
    let within = now <= committed.at.plus(write.contract.windows.keep);
    committed.result.as_deref().filter(|_| within)
}

/// The recorded intent as its own revision reads it, if that revision is still declared.
fn recorded(write: &Write, committed: &Committed, intent: &str) -> Option<Reading> {
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

/// Runs `status` on a reader.
pub(super) fn status(ledger: &Ledger, question: &Question) -> Result<String, Refusal> {
    let epoch = ledger.epoch().as_str();
    ledger.read(|tx| question.status(tx, epoch))
}
