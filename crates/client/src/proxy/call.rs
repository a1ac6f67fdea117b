//! A caller's `tools/call`: which operation it means, who says so, and what makes another call the same one.

use counterfoil_core::json::{self, Bounds, Value, write_string};
use counterfoil_core::{RequestId, wire};
use sha2::{Digest as _, Sha256};

use super::catalogue::Keyed;
use super::message::Request;
use super::raw::{Object, string};
use crate::limits;
use crate::operation::{Arguments, InvalidArguments};
use crate::session::Envelope;
use crate::words::{Caller, ServerUrl, Tool};

/// Members of `_meta` by which clients name a call of their model: the same word is the same call, sent again.
pub(crate) const SOURCES: [&str; 4] =
    ["claudecode/toolUseId", "claude/toolUseId", "copilot/toolCallId", "callId"];

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) tool: Tool,
    pub(crate) arguments: Arguments,
    pub(crate) envelope: Envelope,
    /// From the caller's runtime: it decides.
    pub(crate) runtime: Option<RequestId>,
    /// From among the arguments, so from a model: a name for a new operation.
    pub(crate) model: Option<RequestId>,
    pub(crate) source: Option<String>,
    /// What else of the call changes what it means: the answers to what an earlier answer asked.
    meaning: String,
}

/// Why it is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// It is no call at all.
    Params(&'static str),
    /// An id is malformed, or two sources that decide do not agree.
    Id(&'static str),
    /// It cannot be kept: too large, or no JSON that can be trusted.
    Unkept(InvalidArguments),
}

/// Members of `params` that continue an earlier call.
const CONTINUES: [&str; 2] = ["inputResponses", "requestState"];

impl Call {
    /// Reads a call of a tool that takes request ids, as `keyed` says, or of one that takes none. `header` is what
    /// the header `Idempotency-Key` says.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(crate) fn read(
        request: &Request<'_>,
        keyed: Option<&Keyed>,
        header: Option<&str>,
    ) -> Result<Self, NotTaken> {
        let params = request.object.object("params").ok_or(NotTaken::Params("there are no params"))?;
        for name in ["name", "arguments", "_meta"] {
            params.get(name).map_err(|_| NotTaken::Params("a member of params stands twice"))?;
        }
        let tool = params.string("name").ok_or(NotTaken::Params("there is no tool's name"))?;
        let tool = Tool::parse(&tool).map_err(|_| NotTaken::Params("this is no tool's name"))?;
        let meta = params.object("_meta");
        let (arguments, model) = arguments(params.any("arguments").unwrap_or("{}"), keyed)?;
        let mut call = Self {
            tool,
            arguments,
            envelope: Envelope::default(),
            runtime: None,
            model,
            source: meta.as_ref().and_then(source),
            meaning: params.members(|name| CONTINUES.contains(&name)),
        };
        let ours = |name: &str| keyed.is_some() && name == wire::META_REQUEST_ID;
        let other = |name: &str| match name {
            "name" | "arguments" | "_meta" => false,
            wire::PARAMS_MEMBER => keyed.is_none(),
            _ => true,
        };
        call.envelope.params = params.members(other);
        call.envelope.meta = meta.as_ref().map(|meta| meta.members(|name| !ours(name))).unwrap_or_default();
        if let Some(keyed) = keyed {
            call.envelope.argument.clone_from(&keyed.argument);
            call.envelope.own_words = !keyed.ours;
            call.runtime = runtime(&params, meta.as_ref(), header)?;
        }
        Ok(call)
    }

    /// It answers what an earlier answer of the tool asked.
    pub(crate) fn continues(&self) -> bool {
        !self.meaning.is_empty()
    }

    /// What another call must equal to be the same one.
    pub(crate) fn same(&self, server: &ServerUrl, caller: &Caller) -> String {
        let mut hash = Sha256::new();
        let arguments = canonical(self.arguments.as_str());
        for part in [server.as_str(), caller.as_str(), self.tool.as_str(), &arguments, &self.meaning] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The arguments without the id among them, if the tool takes ids.
fn arguments(text: &str, keyed: Option<&Keyed>) -> Result<(Arguments, Option<RequestId>), NotTaken> {
    let whole = Arguments::parse(text).map_err(NotTaken::Unkept)?;
    let Some(keyed) = keyed else { return Ok((whole, None)) };
    let object = Object::read(text).ok_or(NotTaken::Params("the arguments are no object"))?;
    let argument = match &keyed.argument {
        Some(argument) => argument,
        None if keyed.ours => wire::REQUEST_ID_ARGUMENT,
        None => return Ok((whole, None)),
    };
    let Some(given) = object.any(argument) else { return Ok((whole, None)) };
    let id = if given == "null" { None } else { Some(id(given)?) };
    Ok((Arguments::parse(&object.without(argument)).map_err(NotTaken::Unkept)?, id))
}

fn id(text: &str) -> Result<RequestId, NotTaken> {
    let word = string(text).ok_or(NotTaken::Id("a request id is a string"))?;
    RequestId::parse(&word).map_err(|_| NotTaken::Id("a request id has 1 to 64 of A-Z a-z 0-9 _ -"))
}

fn runtime(
    params: &Object<'_>,
    meta: Option<&Object<'_>>,
    header: Option<&str>,
) -> Result<Option<RequestId>, NotTaken> {
    let twice = |_| NotTaken::Id("a request id stands twice");
    let mut found: Option<RequestId> = None;
    let in_meta = match meta {
        Some(meta) => meta.get(wire::META_REQUEST_ID).map_err(twice)?,
        None => None,
    };
    let in_header = header.map(|header| {
        let bare = header.trim().trim_matches('"');
        RequestId::parse(bare).map_err(|_| NotTaken::Id("the header Idempotency-Key holds no request id"))
    });
    let given = [in_meta, params.get(wire::PARAMS_MEMBER).map_err(twice)?];
    for next in given.into_iter().flatten().map(id).chain(in_header) {
        let next = next?;
        if found.as_ref().is_some_and(|found| *found != next) {
            return Err(NotTaken::Id("the sources of the request id do not agree"));
        }
        found = Some(next);
    }
    Ok(found)
}

fn source(meta: &Object<'_>) -> Option<String> {
    let (key, word) = SOURCES.into_iter().find_map(|key| Some((key, meta.string(key)?)))?;
    (1..=limits::SOURCE).contains(&word.len()).then(|| format!("{key}:{word}"))
}

/// Arguments in one spelling: members sorted, no blanks. Numbers stay as they are spelled: without the tool's own
/// schema nobody knows whether `1.0` is `1`.
fn canonical(text: &str) -> String {
    match json::parse(text.as_bytes(), Bounds::default()) {
        Ok(mut value) => {
            sort(&mut value);
            json::text(&value)
        }
        // Arguments have been read before.
        Err(_) => text.to_owned(),
    }
}

fn sort(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            members.iter_mut().for_each(|(_, value)| sort(value));
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        Value::Null | Value::Boolean(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_string(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::super::message::Incoming;
    use super::*;

    const OURS: Keyed = Keyed { argument: None, ours: true };

    fn read(params: &str, keyed: Option<&Keyed>, header: Option<&str>) -> Result<Call, NotTaken> {
        let text = format!("{{\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}");
        let Incoming::Request(request) = Incoming::read(&text).unwrap() else { panic!("{text}") };
        Call::read(&request, keyed, header)
    }

    fn words(not: &NotTaken) -> String {
        match not {
            NotTaken::Params(why) | NotTaken::Id(why) => (*why).into(),
            NotTaken::Unkept(error) => error.to_string(),
        }
    }

    #[test]
    fn ids_are_found_where_they_may_stand_and_nowhere_else() {
        let keyed = Keyed { argument: Some("key".into()), ours: false };
        let foreign = Keyed { argument: None, ours: false };
        type Case<'c> =
            (&'c str, Option<&'c Keyed>, Option<&'c str>, Result<(&'c str, &'c str, &'c str), &'c str>);
        let cases: [Case<'_>; 14] = [
            (r#"{"name":"t"}"#, Some(&OURS), None, Ok(("{}", "", ""))),
            (
                r#"{"name":"t","arguments":{"a":1.0,"request_id":"m"}}"#,
                Some(&OURS),
                None,
                Ok((r#"{"a":1.0}"#, "", "m")),
            ),
            (r#"{"name":"t","arguments":{"request_id":null}}"#, Some(&OURS), None, Ok(("{}", "", ""))),
            (
                r#"{"name":"t","arguments":{"request_id":"m"}}"#,
                None,
                Some("h"),
                Ok((r#"{"request_id":"m"}"#, "", "")),
            ),
            (
                r#"{"name":"t","arguments":{"request_id":"m","key":"k"}}"#,
                Some(&keyed),
                None,
                Ok((r#"{"request_id":"m"}"#, "", "k")),
            ),
            (
                r#"{"name":"t","arguments":{"request_id":"m"}}"#,
                Some(&foreign),
                None,
                Ok((r#"{"request_id":"m"}"#, "", "")),
            ),
            (
                r#"{"name":"t","_meta":{"dev.counterfoil/request-id":"r"}}"#,
                Some(&OURS),
                None,
                Ok(("{}", "r", "")),
            ),
            (r#"{"name":"t","idempotencyKey":"r"}"#, Some(&OURS), Some("\"r\""), Ok(("{}", "r", ""))),
            (r#"{"name":"t","idempotencyKey":"r"}"#, Some(&OURS), Some("other"), Err("do not agree")),
            (r#"{"name":"t","arguments":{"request_id":7}}"#, Some(&OURS), None, Err("is a string")),
            (r#"{"name":"t","arguments":{"request_id":"no blank"}}"#, Some(&OURS), None, Err("1 to 64")),
            (r#"{"name":"t","arguments":[]}"#, None, None, Err("an array, not an object")),
            (r#"{"name":"t","arguments":{},"arguments":{}}"#, None, None, Err("stands twice")),
            (r#"{"arguments":{}}"#, None, None, Err("no tool's name")),
        ];
        for (params, keyed, header, expected) in cases {
            let got = read(params, keyed, header);
            match (&got, expected) {
                (Ok(call), Ok((arguments, runtime, model))) => {
                    let word =
                        |id: &Option<RequestId>| id.as_ref().map(ToString::to_string).unwrap_or_default();
                    let found = (call.arguments.as_str(), word(&call.runtime), word(&call.model));
                    assert_eq!(found, (arguments, runtime.into(), model.into()), "{params}");
                }
                (Err(not), Err(part)) => assert!(words(not).contains(part), "{params}: {not:?}"),
                _ => panic!("{params}: {got:?}"),
            }
        }
    }

    #[test]
    fn whatever_else_a_call_says_goes_with_it() {
        let params = r#"{"name":"t","task":{"ttl":1.0},"idempotencyKey":"r","_meta":{"progressToken":7,"dev.counterfoil/request-id":"r","x":{"y":1e1}}}"#;
        let call = read(params, Some(&OURS), None).unwrap();
        assert_eq!(call.envelope.params, r#""task":{"ttl":1.0}"#);
        assert_eq!(call.envelope.meta, r#""progressToken":7,"x":{"y":1e1}"#);
        let call = read(params, None, None).unwrap();
        assert_eq!(call.envelope.params, r#""task":{"ttl":1.0},"idempotencyKey":"r""#);
        assert!(call.envelope.meta.contains("dev.counterfoil/request-id"), "not ours to take out");
    }

    #[test]
    fn calls_are_the_same_by_what_they_mean() {
        let server = ServerUrl::parse("http://127.0.0.1:1/mcp").unwrap();
        let (alice, bob) = (Caller::of_server("alice").unwrap(), Caller::of_server("bob").unwrap());
        let same =
            |params: &str, caller: &Caller| read(params, Some(&OURS), None).unwrap().same(&server, caller);
        let first = same(r#"{"name":"t","arguments":{"a":1,"b":{"d":[1,2],"c":"x"}}}"#, &alice);
        let cases = [
            (r#"{"name":"t","arguments":{"b":{"c":"\u0078","d":[1, 2]} , "a":1}}"#, &alice, true),
            (r#"{"name":"t","arguments":{"a":1,"b":{"d":[1,2],"c":"x"},"request_id":"m"}}"#, &alice, true),
            (r#"{"name":"t","arguments":{"a":1,"b":{"d":[2,1],"c":"x"}}}"#, &alice, false),
            (r#"{"name":"u","arguments":{"a":1,"b":{"d":[1,2],"c":"x"}}}"#, &alice, false),
            (r#"{"name":"t","requestState":"s","arguments":{"a":1,"b":{"d":[1,2],"c":"x"}}}"#, &alice, false),
            (r#"{"name":"t","arguments":{"a":1,"b":{"d":[1,2],"c":"x"}}}"#, &bob, false),
        ];
        for (params, caller, expected) in cases {
            assert_eq!(same(params, caller) == first, expected, "{params}");
        }
    }
}
