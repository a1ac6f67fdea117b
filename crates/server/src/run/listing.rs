//! Tools as `tools/list` shows them: schemas, hints, and descriptions that teach the request id.

use counterfoil_core::{IdForm, Principal, wire};
use serde_json::{Map, Value, json};

use crate::config::{OutputType, ReadReturns, WriteReturns, show_duration};
use crate::plan::{Column, Kind, Plan, Read, Statement, Tool, Write};
use crate::tools::{Hints, Listed};

/// The tools whose scope `principal` holds, and the built-ins if any of them takes request ids.
pub(super) fn list(plan: &Plan, principal: &Principal) -> Vec<Listed> {
    let visible = plan.tools.iter().filter(|tool| principal.scopes.contains(&tool.scope));
    let mut listed: Vec<Listed> = visible.map(|tool| self::tool(tool)).collect();
    let writes: Vec<&str> =
        listed.iter().filter(|tool| tool.request_ids).map(|tool| tool.name.as_str()).collect();
    if !writes.is_empty() {
        let built_in = built_ins(&writes);
        listed.extend(built_in);
    }
    listed
}

fn tool(tool: &Tool) -> Listed {
    let (description, output_schema, hints, request_ids) = match &tool.kind {
        Kind::Read(read) => (tool.description.clone().unwrap_or_default(), read_output(read), READ, false),
        Kind::Write(write) => {
            let hints =
                Hints { read_only: false, destructive: write.destructive, idempotent: write.idempotent };
            (taught(tool.description.as_deref(), write), write_output(write), hints, true)
        }
    };
    let mut input_schema = object(&tool.input);
    if let Kind::Write(write) = &tool.kind {
        add_request_id(&mut input_schema, write.contract.ids);
    }
    Listed {
        name: tool.name.to_string(),
        title: tool.title.clone(),
        description,
        input_schema,
        output_schema,
        hints,
        request_ids,
    }
}

const READ: Hints = Hints { read_only: true, destructive: false, idempotent: true };

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn taught(description: Option<&str>, write: &Write) -> String {
    let windows = &write.contract.windows;
    let (keep, remember) = (show_duration(windows.keep), show_duration(windows.remember));
    let own = description.map(|text| format!("{} ", text.trim())).unwrap_or_default();
    format!(
        "{own}Give `request_id`: one id per intended change, chosen before the first try. To retry the same change, \
         reuse the same id and arguments: you get the recorded result back and nothing runs twice. Results can be \
         replayed for {keep}; that a change committed is known for {remember}."
    )
}

fn add_request_id(schema: &mut Map<String, Value>, ids: IdForm) {
    let pattern = match ids {
        IdForm::Any => "^[A-Za-z0-9_-]{1,64}$",
        IdForm::Uuid => "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    };
    let description = "Names this intended change. One id per intended change; reuse it for every retry of the same change.";
    let member = json!({ "type": "string", "pattern": pattern, "description": description });
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(wire::REQUEST_ID_ARGUMENT.to_owned(), member);
    }
}

fn row(columns: &[Column]) -> Value {
    let properties: Map<String, Value> =
        columns.iter().map(|column| (column.name.to_string(), column_schema(column))).collect();
    let required: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn column_schema(column: &Column) -> Value {
    match (column.certain, column.output) {
        (Some(certain), Some(OutputType::Bytes)) => {
            json!({ "type": [certain, "null"], "contentEncoding": "base64" })
        }
        (Some(certain), _) => json!({ "type": [certain, "null"] }),
        (None, _) => json!({}),
    }
}

fn rows(statement: &Statement) -> Value {
    json!({ "type": "array", "items": row(&statement.columns) })
}

fn read_output(read: &Read) -> Map<String, Value> {
    let result = match read.returns {
        ReadReturns::Row => row(&read.query.columns),
        ReadReturns::Rows(_) => rows(&read.query),
    };
    reply(json!({ "result": result, "truncated": { "type": "boolean" } }), &["result"])
}

fn write_output(write: &Write) -> Map<String, Value> {
    let statement = write.result.and_then(|at| write.steps.get(at)).map(|step| (&step.statement, step));
    let result = match (write.returns, statement) {
        (WriteReturns::Rows, Some((statement, _))) => rows(statement),
        (WriteReturns::Row, Some((statement, step))) if step.may_change_nothing => {
            json!({ "anyOf": [row(&statement.columns), { "type": "null" }] })
        }
        (WriteReturns::Row, Some((statement, _))) => row(&statement.columns),
        (WriteReturns::Nothing, _) | (_, None) => json!({ "type": "null" }),
    };
    let mut members = json!({
        "result": result,
        "request_id": { "type": "string" },
        "replayed": { "type": "boolean", "description": "true: read from the receipt of an earlier try" },
        "committed_at": { "type": "string" },
        "epoch": { "type": "string" },
    });
    if let (Some(current), Some(members)) = (&write.current, members.as_object_mut()) {
        let now = json!({ "anyOf": [row(&current.columns), { "type": "null" }], "description": "the row as it is now" });
        members.insert("current".to_owned(), now);
    }
    reply(members, &["result", "request_id", "replayed", "committed_at", "epoch"])
}

/// An object that is a reply or a refusal: clients hold both against it.
fn reply(members: Value, required: &[&str]) -> Map<String, Value> {
    let mut properties = object(&members);
    properties.insert("error".to_owned(), error());
    object(&json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
    }))
}

fn error() -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "retry": { "enum": ["no", "corrected", "same_id", "new_id", "read_first"] },
            "operation": { "enum": ["committed", "voided", "not_committed_so_far", "unknown"] },
            "committed_at": { "type": "string" },
            "retry_after_ms": { "type": "integer" },
            "current": {},
            "fields": { "type": "array" },
            "correlation_id": { "type": "string" },
        },
        "required": ["code", "message", "retry"],
    })
}

fn built_ins(writes: &[&str]) -> [Listed; 2] {
    let status = "Tells what became of an operation: whether the change under this request id committed, was voided, \
                  or has not committed so far. Use it when a call's answer was lost.";
    let void = "Records that the change under this request id will never commit, unless it has committed already; \
                the answer tells which. Use it before giving up on a call whose answer was lost.";
    [
        built_in(wire::OPERATION_STATUS, status, writes, READ),
        built_in(
            wire::VOID_OPERATION,
            void,
            writes,
            Hints { read_only: false, destructive: true, idempotent: true },
        ),
    ]
}

fn built_in(name: &str, description: &str, writes: &[&str], hints: Hints) -> Listed {
    let input = json!({
        "type": "object",
        "properties": {
            "tool": { "type": "string", "enum": writes, "description": "the tool that was called" },
            "operation": { "type": "string", "description": "the request_id that it was called with" },
        },
        "required": ["tool", "operation"],
        "additionalProperties": false,
    });
    let output = json!({
        "tool": { "type": "string" },
        "request_id": { "type": "string" },
        "state": { "enum": ["committed", "voided", "not_committed_so_far", "unknown"] },
        "committed_at": { "type": "string" },
        "result": {},
        "epoch": { "type": "string" },
        "keep": { "type": "string" },
        "remember": { "type": "string" },
    });
    Listed {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema: object(&input),
        output_schema: reply(output, &["tool", "request_id", "state", "epoch", "keep", "remember"]),
        hints,
        request_ids: false,
    }
}
