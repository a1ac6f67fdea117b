//! MCP messages as they travel: a call made by hand, byte for byte, and what was told in answer.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{Answer, Ask};

/// The protocol revision without sessions.
pub const MODERN: &str = "2026-07-28";

/// A `tools/call` as it is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// The JSON-RPC id, as JSON.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, as JSON.
    pub arguments: String,
    /// The members of `_meta`, as JSON, without braces.
    pub meta: String,
    /// More members of `params`, as JSON, each with a comma in front.
    pub more: String,
    /// More headers, over HTTP.
    pub headers: Vec<(String, String)>,
    /// Spoken in the revision without sessions, rather than in an older one.
    pub modern: bool,
}

impl Send {
    /// A call of `tool` with `arguments`, as JSON.
    #[must_use]
    pub fn new(tool: &str, arguments: impl Into<String>) -> Self {
        Self {
            id: "1".to_owned(),
            tool: tool.to_owned(),
            arguments: arguments.into(),
            meta: String::new(),
            more: String::new(),
            headers: Vec::new(),
            modern: false,
        }
    }

    /// The same with a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with these members of `_meta`.
    #[must_use]
    pub fn meta(mut self, members: &str) -> Self {
        members.clone_into(&mut self.meta);
        self
    }

    /// The same with these members of `params`.
    #[must_use]
    pub fn more(mut self, members: &str) -> Self {
        members.clone_into(&mut self.more);
        self
    }

    /// The same under this JSON-RPC id.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// The whole message.
    #[must_use]
    pub fn body(&self) -> String {
        let Self { id, arguments, more, .. } = self;
        let (tool, meta) = (json!(self.tool), self.whole_meta());
        let meta = if meta.is_empty() { meta } else { format!(",\"_meta\":{{{meta}}}") };
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\
             \"params\":{{\"name\":{tool},\"arguments\":{arguments}{meta}{more}}}}}"
        )
    }

    fn whole_meta(&self) -> String {
        let protocol = [
            ("io.modelcontextprotocol/protocolVersion", json!(MODERN)),
            ("io.modelcontextprotocol/clientCapabilities", json!({})),
            ("io.modelcontextprotocol/clientInfo", json!({ "name": "testkit", "version": "1" })),
        ];
        let mut members: Vec<String> = protocol
            .iter()
            .filter(|_| self.modern)
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        members.extend(Some(self.meta.clone()).filter(|meta| !meta.is_empty()));
        members.join(",")
    }
}

impl From<&Ask> for Send {
    fn from(ask: &Ask) -> Self {
        Send::new(ask.tool, ask.text())
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The HTTP status; 200 over stdio.
    pub status: u16,
    /// Head of the HTTP response.
    pub head: String,
    /// The whole JSON-RPC message.
    pub body: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    result: Option<Outcome<'a>>,
    #[serde(borrow)]
    error: Option<Failure<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    #[serde(borrow)]
    structured_content: &'a RawValue,
    is_error: bool,
    content: Vec<Text>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct Failure<'a> {
    code: i64,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl Told {
    fn envelope(&self) -> Envelope<'_> {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The structured content, byte for byte; what is answered before dispatch has it as `data`.
    #[must_use]
    pub fn structured(&self) -> &str {
        let Envelope { result, error } = self.envelope();
        let data = error.and_then(|error| error.data);
        result.map(|result| result.structured_content).or(data).unwrap_or_else(|| panic!("{self:?}")).get()
    }

    /// The structured content as a value.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(self.structured()).unwrap()
    }

    /// What a person is shown.
    #[must_use]
    pub fn text(&self) -> String {
        let result = self.envelope().result.unwrap_or_else(|| panic!("no result: {self:?}"));
        result.content.into_iter().map(|content| content.text).collect()
    }

    /// Is the result marked as an error, or an error itself?
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.envelope().result.is_none_or(|result| result.is_error)
    }

    /// The code of a JSON-RPC error.
    #[must_use]
    pub fn protocol_error(&self) -> Option<i64> {
        self.envelope().error.map(|error| error.code)
    }

    /// A reply or a refusal.
    #[must_use]
    pub fn answer(&self) -> Answer {
        Answer::of(self.structured())
    }
}
