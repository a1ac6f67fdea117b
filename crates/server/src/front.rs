//! The strict reader in front of the MCP library, on every transport.
//!
//! Each message is read once, by our own reader, before the library sees any of it. What the library would lose
//! (the arguments' exact spelling, the sources of the request id) is taken out here and travels around it as a
//! [`Front`]. The library is handed a `tools/call` without arguments: it has no use for them, cannot choke on a
//! number it does not like, and cannot log them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use counterfoil_core::json::{self, Bounds, Value, write, write_string};
use counterfoil_core::{Principal, Refusal, Sources, limits, wire};
use serde::Deserialize;

/// JSON-RPC: this is not JSON, or not JSON that can be trusted.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: this is not a request.
pub const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: the params do not fit the method.
pub const INVALID_PARAMS: i32 = -32602;
/// Ours: refused at the door, before dispatch. `data`, if any, says which of the refusals it is.
pub const TURNED_AWAY: i32 = -32000;

/// The method whose params are taken apart here.
const CALL: &str = "tools/call";
/// The `_meta` members that the library needs begin like this.
const PROTOCOL_META: &str = "io.modelcontextprotocol/";

/// How large a message may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes.
    pub body: usize,
    /// Nesting and number of values.
    pub json: Bounds,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body: limits::BODY, json: Bounds::default() }
    }
}

/// What travels around the MCP library with a message.
#[derive(Clone)]
pub struct Front {
    /// Who sent it.
    pub principal: Arc<Principal>,
    /// For `tools/call`: what it says.
    pub given: Option<Given>,
    /// Over HTTP: where a refusal is left that the edge answers with a status of its own.
    pub verdict: Option<Verdict>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// What a `tools/call` says, besides the tool's name.
#[derive(Clone, Default)]
pub struct Given {
    /// `params.arguments`, of whatever type; `null` counts as absent.
    pub arguments: Option<Value>,
    /// Where a request id may stand, besides the arguments.
    pub sources: Sources,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}

/// Holds the refusal that the edge answers instead of the MCP library.
#[derive(Debug, Clone, Default)]
pub struct Verdict(Arc<OnceLock<Refusal>>);

impl Verdict {
    /// Leaves a refusal. The first one counts.
    pub fn leave(&self, refusal: Refusal) {
        let _first = self.0.set(refusal);
    }

    /// The refusal, if one was left.
    #[must_use]
    pub fn get(&self) -> Option<&Refusal> {
        self.0.get()
    }
}

/// A JSON-RPC id, as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(String);

impl Id {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::of_text(text)),
            Value::Number(spelled) => spelled.parse::<i64>().ok().map(|number| Self(number.to_string())),
            Value::Null | Value::Boolean(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn of_text(text: &str) -> Self {
        let mut out = String::new();
        write_string(&mut out, text);
        Self(out)
    }
}

/// What kind of message this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Wants an answer under this id.
    Request(Id),
    /// Wants none.
    Notification,
    /// Answers a question that this server never asks.
    Response,
}

/// A message that passed.
#[derive(Debug, Clone)]
pub struct Message {
    /// What kind.
    pub kind: Kind,
    /// What the MCP library is handed.
    pub body: Bytes,
    /// Of a `tools/call`: what the library is not handed.
    pub given: Option<Given>,
}

impl Message {
    /// The id, of a request.
    #[must_use]
    pub fn id(&self) -> Option<&Id> {
        match &self.kind {
            Kind::Request(id) => Some(id),
            Kind::Notification | Kind::Response => None,
        }
    }
}

/// A message that did not pass, as a JSON-RPC error. It never quotes what was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The request's id, if it can be known.
    pub id: Option<Id>,
    /// JSON-RPC's code.
    pub code: i32,
    /// What is wrong.
    pub message: String,
}

impl Rejection {
    /// A rejection of the request `id`.
    #[must_use]
    pub fn new(id: Option<Id>, code: i32, message: impl Into<String>) -> Self {
        Self { id, code, message: message.into() }
    }

    /// The JSON-RPC error, as JSON text.
    #[must_use]
    pub fn body(&self) -> String {
        error(self.id.as_ref(), self.code, &self.message, None)
    }
}

/// A JSON-RPC error as JSON text; `data` is JSON text too.
#[must_use]
pub fn error(id: Option<&Id>, code: i32, message: &str, data: Option<&str>) -> String {
    let id = id.map_or("null", |id| &id.0);
    let mut out = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":");
    write_string(&mut out, message);
    if let Some(data) = data {
        out.push_str(",\"data\":");
        out.push_str(data);
    }
    out.push_str("}}");
    out
}

/// Reads one message. `headers` are the values of every `Idempotency-Key` header that came with it.
///
/// # Errors
/// A [`Rejection`]: nothing of the message is acted on.
pub fn read(body: Bytes, bounds: Bounds, headers: Vec<Box<[u8]>>) -> Result<Message, Rejection> {
    let mut value = json::parse(&body, bounds)
        .map_err(|invalid| Rejection::new(peek(&body), PARSE_ERROR, format!("Parse error: {invalid}.")))?;
    let (kind, method) = envelope(&value)?;
    if method.as_deref() != Some(CALL) {
        return Ok(Message { kind, body, given: None });
    }
    let Kind::Request(id) = &kind else {
        return Err(Rejection::new(
            None,
            INVALID_REQUEST,
            "A tools/call needs an id, or it could not be answered.",
        ));
    };
    let misfit = |problem| Rejection::new(Some(id.clone()), INVALID_PARAMS, problem);
    let params = value.remove("params").unwrap_or(Value::Null);
    let (body, given) = take_apart(id, params, headers).map_err(misfit)?;
    Ok(Message { kind, body: body.into(), given: Some(given) })
}

/// The id of a message that is not JSON we trust, if there is no doubt about it: its caller would otherwise wait for
/// an answer that is not addressed to it.
fn peek(body: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Peeked {
        Number(i64),
        Text(String),
    }
    #[derive(Deserialize)]
    struct Envelope {
        id: Peeked,
    }
    Some(match serde_json::from_slice::<Envelope>(body).ok()?.id {
        Peeked::Number(number) => Id(number.to_string()),
        Peeked::Text(text) => Id::of_text(&text),
    })
}

/// Kind and method of a JSON-RPC message.
fn envelope(value: &Value) -> Result<(Kind, Option<Box<str>>), Rejection> {
    let invalid =
        |message: &str| Err(Rejection::new(value.get("id").and_then(Id::of), INVALID_REQUEST, message));
    if let Value::Array(_) = value {
        return invalid("This server takes no JSON-RPC batches. Send one message at a time.");
    }
    if value.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return invalid("A message is an object whose member jsonrpc is \"2.0\".");
    }
    let method = match value.get("method") {
        Some(Value::String(method)) => Some(method.clone()),
        None if value.get("result").is_some() || value.get("error").is_some() => None,
        _ => return invalid("A message has a method, which is a string."),
    };
    match (method, value.get("id")) {
        (None, _) => Ok((Kind::Response, None)),
        (method, None) => Ok((Kind::Notification, method)),
        (method, Some(id)) => match Id::of(id) {
            Some(id) => Ok((Kind::Request(id), method)),
            None => invalid("An id is a string or an integer of at most 64 bits."),
        },
    }
}

/// Splits the params of a `tools/call`: what the library gets, as a whole message, and what it does not get.
fn take_apart(id: &Id, mut params: Value, headers: Vec<Box<[u8]>>) -> Result<(String, Given), &'static str> {
    let Some(Value::String(name)) = params.get("name") else {
        return Err("The params of a tools/call are an object with a name, which is a string.");
    };
    let mut body =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"{CALL}\",\"params\":{{\"name\":", id.0);
    write_string(&mut body, name);
    let meta = match params.get("_meta") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Object(members)) => members,
        Some(_) => return Err("_meta is an object."),
    };
    body.push_str(",\"_meta\":{");
    let protocol = meta.iter().filter(|(name, _)| name.starts_with(PROTOCOL_META));
    write_members(&mut body, protocol);
    body.push_str("}}}");
    let meta = meta.iter().find(|(name, _)| **name == *wire::META_REQUEST_ID).map(|(_, value)| value.clone());
    let sources = Sources { meta, headers, member: params.remove(wire::PARAMS_MEMBER) };
    let arguments = params.remove("arguments").filter(|value| *value != Value::Null);
    Ok((body, Given { arguments, sources }))
}

fn write_members<'v>(out: &mut String, members: impl Iterator<Item = &'v (Box<str>, Value)>) {
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write(out, value);
    }
}
