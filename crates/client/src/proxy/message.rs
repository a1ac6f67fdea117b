//! JSON-RPC messages as they pass: what must be understood is read strictly, the rest is left as it stands.

use std::borrow::Cow;

use counterfoil_core::json::write_string;

use super::call::quoted;
use super::raw::{Object, string};

/// Not JSON.
pub(crate) const SYNTAX: i64 = -32700;
/// No message, or one that says a thing twice.
pub(crate) const INVALID: i64 = -32600;
/// The proxy has no answer.
pub(crate) const NO_ANSWER: i64 = -32000;

/// The member of `_meta` that names the revision, where every request says it.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of a notification's `_meta` that says which request it belongs to.
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// One message.
#[derive(Debug)]
pub(crate) enum Incoming<'t> {
    /// It wants an answer.
    Request(Request<'t>),
    /// It wants none.
    Notification(Notification<'t>),
    /// It is one.
    Response(Answered<'t>),
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request<'t> {
    /// As it is spelled.
    pub(crate) id: &'t str,
    pub(crate) method: Cow<'t, str>,
    pub(crate) object: Object<'t>,
}

/// A notification.
#[derive(Debug)]
pub(crate) struct Notification<'t> {
    pub(crate) method: Cow<'t, str>,
    pub(crate) object: Object<'t>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered<'t> {
    /// As it is spelled; `null` for a request that was not understood.
    pub(crate) id: &'t str,
    pub(crate) object: Object<'t>,
}

/// Why a text is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) code: i64,
    pub(crate) why: &'static str,
}

impl<'t> Incoming<'t> {
    /// Reads one message.
    ///
    /// # Errors
    /// [`Unfit`]
    pub(crate) fn read(text: &'t str) -> Result<Self, Unfit> {
        let unfit = |code, why| Err(Unfit { code, why });
        let Some(object) = Object::read(text) else {
            return match text.trim_start().starts_with('[') {
                true => unfit(INVALID, "batches are not taken: send one message at a time"),
                false => unfit(SYNTAX, "this is not JSON, or no object"),
            };
        };
        let (id, method) = match (object.get("id"), object.get("method"), object.get("params")) {
            (Ok(id), Ok(_), Ok(_)) => (id, object.string("method")),
            _ => return unfit(INVALID, "a member stands twice"),
        };
        match (id, method) {
            (Some(id), Some(method)) if named(id) => Ok(Incoming::Request(Request { id, method, object })),
            (None, Some(method)) => Ok(Incoming::Notification(Notification { method, object })),
            (Some(id), None) if object.any("result").is_some() || object.any("error").is_some() => {
                Ok(Incoming::Response(Answered { id, object }))
            }
            _ => unfit(INVALID, "this is neither a request, nor a notification, nor an answer"),
        }
    }
}

/// A string or a number, as an id must be.
fn named(id: &str) -> bool {
    id.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

/// An id in one spelling: whoever answers may spell it in another.
pub(crate) fn key(id: &str) -> String {
    if let Some(text) = string(id) {
        return quoted(&text);
    }
    let whole = id.strip_suffix(".0").unwrap_or(id);
    whole.to_owned()
}

impl Request<'_> {
    /// The revision that the request says it speaks, in the generation without sessions.
    pub(crate) fn version(&self) -> Option<String> {
        Some(self.meta()?.string(META_VERSION)?.into_owned())
    }

    /// `params._meta`
    pub(crate) fn meta(&self) -> Option<Object<'_>> {
        self.object.object("params")?.object("_meta")
    }

    /// What the header `Mcp-Name` says of it.
    pub(crate) fn name(&self) -> Option<String> {
        let params = self.object.object("params")?;
        let member = match &*self.method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" => "taskId",
            _ => return None,
        };
        Some(params.string(member)?.into_owned())
    }

    /// The token by which progress is told, as it is spelled.
    pub(crate) fn progress_token(&self) -> Option<String> {
        Some(self.meta()?.any("progressToken")?.to_owned())
    }
}

/// A JSON-RPC answer that is an error.
pub(crate) fn error(id: &str, code: i64, message: &str, data: Option<&str>) -> String {
    let mut out = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":");
    write_string(&mut out, message);
    if let Some(data) = data {
        out.push_str(",\"data\":");
        out.push_str(data);
    }
    out.push_str("}}");
    out
}

/// A JSON-RPC answer.
pub(crate) fn result(id: &str, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

/// A JSON-RPC request.
pub(crate) fn request(id: u64, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_in_any_spelling() {
        for (one, other, same) in [
            ("\"a\\u0062\"", "\"ab\"", true),
            ("7.0", "7", true),
            ("7", "\"7\"", false),
            ("\"\\ud800\"", "\"\\ud800\"", true),
            ("1", "10", false),
        ] {
            assert_eq!(key(one) == key(other), same, "{one} {other}");
        }
    }

    #[test]
    fn messages_are_told_apart_and_nothing_is_guessed() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping"),
            (r#"{"id":"a\"b","method":"x","params":{"name":"\ud800"}}"#, r#"request "a\"b" x"#),
            (r#"{"method":"notifications/x"}"#, "notification notifications/x"),
            (r#"{"id":1,"result":{}}"#, "answer 1"),
            (r#"{"id":null,"error":{}}"#, "answer null"),
            (r#"{"id":1}"#, "-32600"),
            (r#"{"id":null,"method":"ping"}"#, "-32600"),
            (r#"{"id":{},"method":"ping"}"#, "-32600"),
            (r#"{"id":1,"id":2,"method":"ping"}"#, "-32600"),
            (r#"{"id":1,"method":"ping","method":"tools/call"}"#, "-32600"),
            (r#"{"id":1,"method":"tools/call","params":{},"params":{}}"#, "-32600"),
            (r#"[{"id":1,"method":"ping"}]"#, "-32600"),
            ("null", "-32700"),
            ("{\"id\":1", "-32700"),
            ("", "-32700"),
        ];
        for (text, expected) in cases {
            let got = match Incoming::read(text) {
                Ok(Incoming::Request(request)) => format!("request {} {}", request.id, request.method),
                Ok(Incoming::Notification(told)) => format!("notification {}", told.method),
                Ok(Incoming::Response(answered)) => format!("answer {}", answered.id),
                Err(unfit) => unfit.code.to_string(),
            };
            assert_eq!(got, expected, "{text}");
        }
    }
}
