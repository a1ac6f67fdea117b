//! What is agreed with a server before anything is asked of it: the protocol version, and who we are to it. And the
//! making of every message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::json::{self, Value, write_string};
use counterfoil_core::{RequestId, wire};

use crate::answer::{Answer, Spoken, judge, shown, spoken};
use crate::journal::Try;
use crate::limits;
use crate::operation::{Operation, Sending};
use crate::time::Time;
use crate::transport::{Fault, Loss, Message, Response, Transport};
use crate::words::{Caller, InvalidWord, Tool};

/// The revision without sessions, in which every request says who speaks.
const MODERN: &str = "2026-07-28";
/// What is offered to a server that does not know it.
const LEGACY: &str = "2025-11-25";

/// A server that answers, and what was agreed with it.
#[derive(Debug)]
pub struct Session<T> {
    transport: T,
    caller: Caller,
    version: Box<str>,
    next: Arc<AtomicU64>,
    /// Of a caller whose call this is, if it is not ours.
    envelope: Option<Envelope>,
}

/// What somebody else's call has beside its name and arguments, as JSON text, to be sent with every try.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envelope {
    /// Members of `params`, without braces.
    pub params: String,
    /// Members of `params._meta`, without braces.
    pub meta: String,
    /// The argument that takes the request id, of a server that wants it there.
    pub argument: Option<Box<str>>,
    /// The server knows request ids and answers in words of its own.
    pub own_words: bool,
}

/// A tool as its server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Tool,
    /// The JSON Schema of its arguments.
    pub schema: Value,
    /// It takes request ids: the server says so.
    pub request_ids: bool,
    /// It changes nothing: the server says so.
    pub read_only: bool,
}

impl Listed {
    /// How often a call of it may be sent.
    #[must_use]
    pub fn sending(&self) -> Sending {
        if self.request_ids { Sending::Repeatable } else { Sending::AtMostOnce }
    }
}

/// A question was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// No connection could be made.
    #[error("the server cannot be reached")]
    NotReached,
    /// An answer was not had.
    #[error("{0}")]
    Lost(Loss),
    /// The server will not answer this, and says why.
    #[error("the server answered: {0}")]
    Declined(Box<str>),
    /// The server calls us something that is no name.
    #[error("the server's answer cannot be used: {0}")]
    Caller(InvalidWord),
}

impl NoAnswer {
    /// May the same question be answered when it is asked again?
    pub(crate) fn again(&self) -> bool {
        match self {
            NoAnswer::NotReached | NoAnswer::Lost(_) => true,
            NoAnswer::Declined(_) | NoAnswer::Caller(_) => false,
        }
    }
}

impl From<Fault> for NoAnswer {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotSent => NoAnswer::NotReached,
            Fault::Lost(loss) => NoAnswer::Lost(loss),
        }
    }
}

impl<T: Transport> Session<T> {
    /// Agrees with a server on a version and learns who we are to it. `identity` is our name for ourselves, for a
    /// server that has none for us.
    ///
    /// # Errors
    /// [`NoAnswer`]: nothing was begun.
    pub async fn open(transport: T, time: &dyn Time, identity: &Caller) -> Result<Self, NoAnswer> {
        let mut session = Self::agreed(transport, identity.clone(), MODERN, Arc::new(AtomicU64::new(1)));
        let discovered = match session.ask(time, "server/discover", "").await {
            Ok(discovered) => discovered,
            Err(NoAnswer::Declined(_) | NoAnswer::Lost(Loss::Rubbish)) => session.initialize(time).await?,
            Err(other) => return Err(other),
        };
        let told = discovered.get("_meta").and_then(|meta| meta.get(wire::META_CALLER)?.as_str());
        if let Some(told) = told {
            session.caller = Caller::of_server(told).map_err(NoAnswer::Caller)?;
        }
        Ok(session)
    }

    /// A session on which somebody else has agreed already; messages take their ids from `next`.
    pub(crate) fn agreed(transport: T, caller: Caller, version: &str, next: Arc<AtomicU64>) -> Self {
        Self { transport, caller, version: version.into(), next, envelope: None }
    }

    /// Sends every call in `envelope`.
    pub(crate) fn in_envelope(self, envelope: Envelope) -> Self {
        Self { envelope: Some(envelope), ..self }
    }

    /// Who we are to the server.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The protocol version agreed on.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    async fn initialize(&mut self, time: &dyn Time) -> Result<Value, NoAnswer> {
        self.version = LEGACY.into();
        let result = self.ask(time, "initialize", &greeting()).await?;
        let agreed = result.get("protocolVersion").and_then(Value::as_str);
        self.version = shown(agreed.ok_or(NoAnswer::Lost(Loss::Rubbish))?);
        self.initialized().await;
        Ok(result)
    }

    /// Agrees anew, in the words agreed on: the server has forgotten our session, and did not look at the message.
    async fn reopen(&self, time: &dyn Time) -> Result<(), Fault> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let message = self.message(id, "initialize", None, &greeting(), None);
        let answer = self.within(time, &message, limits::TRY).await?;
        match spoken(&answer.body, id) {
            Some(Spoken::Result(_)) => {
                self.initialized().await;
                Ok(())
            }
            Some(Spoken::Error(_)) | None => Err(Fault::NotSent),
        }
    }

    async fn initialized(&self) {
        let body = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}".to_owned();
        let version = Some(self.version.clone());
        let method = "notifications/initialized";
        let _unanswered =
            self.transport.exchange(&Message { id: None, method, name: None, version, body }).await;
    }

    /// The tool `name`, if the server lists it.
    ///
    /// # Errors
    /// [`NoAnswer`]
    pub async fn tool(&self, time: &dyn Time, name: &Tool) -> Result<Option<Listed>, NoAnswer> {
        let mut cursor: Option<String> = None;
        for _page in 0..limits::PAGES {
            let mut params = String::new();
            if let Some(cursor) = &cursor {
                params.push_str("\"cursor\":");
                write_string(&mut params, cursor);
            }
            let page = self.ask(time, "tools/list", &params).await?;
            let Some(Value::Array(tools)) = page.get("tools") else {
                return Err(NoAnswer::Lost(Loss::Rubbish));
            };
            if let Some(found) = tools.iter().find(|tool| named(tool, name)) {
                return Ok(Some(listed(found, name)));
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(None),
            }
        }
        Err(NoAnswer::Lost(Loss::TooLarge))
    }

    /// Calls a tool that changes nothing, and needs no journal: the whole result, if it comes within `wait`.
    pub(crate) async fn read(
        &self,
        time: &dyn Time,
        tool: &Listed,
        arguments: &str,
        wait: Duration,
    ) -> Result<Value, NoAnswer> {
        if !tool.read_only || tool.request_ids {
            return Err(NoAnswer::Declined("the tool changes something: call it through the journal".into()));
        }
        self.ask_tool(time, tool.name.as_str(), arguments, wait).await
    }

    /// Asks a built-in tool about an operation: its structured content.
    pub(crate) async fn about(
        &self,
        time: &dyn Time,
        built_in: &'static str,
        arguments: &str,
    ) -> Result<Value, NoAnswer> {
        let mut result = self.ask_tool(time, built_in, arguments, limits::TRY).await?;
        let is_error = result.get("isError") == Some(&Value::Boolean(true));
        let structured = result.remove("structuredContent").unwrap_or(Value::Null);
        if !is_error {
            return Ok(structured);
        }
        let message = structured.get("error").and_then(|error| error.get("message")?.as_str());
        Err(NoAnswer::Declined(shown(message.unwrap_or("it failed"))))
    }

    async fn ask_tool(
        &self,
        time: &dyn Time,
        tool: &str,
        arguments: &str,
        wait: Duration,
    ) -> Result<Value, NoAnswer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let message = self.message(id, "tools/call", Some(tool), &call_params(tool, arguments), None);
        self.answer(time, &message, id, wait).await
    }

    async fn ask(&self, time: &dyn Time, method: &'static str, params: &str) -> Result<Value, NoAnswer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let message = self.message(id, method, None, params, None);
        self.answer(time, &message, id, limits::TRY).await
    }

    async fn answer(
        &self,
        time: &dyn Time,
        message: &Message,
        id: u64,
        wait: Duration,
    ) -> Result<Value, NoAnswer> {
        let response = self.exchange(time, message, wait).await?;
        match spoken(&response.body, id) {
            Some(Spoken::Result(result)) => Ok(result),
            Some(Spoken::Error(said)) if response.status < 500 => Err(NoAnswer::Declined(said.message)),
            _ if (400..500).contains(&response.status) => {
                Err(NoAnswer::Declined(format!("HTTP {}", response.status).into()))
            }
            _ if response.status >= 500 => Err(NoAnswer::Lost(Loss::Failed(response.status))),
            _ => Err(NoAnswer::Lost(Loss::Rubbish)),
        }
    }

    /// Sends a try, and says what became of it within `wait`. A try is on disk: there is no other way to have one.
    pub(crate) async fn send(&self, time: &dyn Time, attempt: &Try, wait: Duration) -> Answer {
        let operation = attempt.operation();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let request_id = match operation.sending {
            Sending::Repeatable => Some(operation.id.as_str()),
            Sending::AtMostOnce => None,
        };
        let params = self.params_of(operation);
        let message = self.message(id, "tools/call", Some(operation.tool.as_str()), &params, request_id);
        let answer = self.exchange(time, &message, wait).await;
        let own_words = self.envelope.as_ref().is_some_and(|envelope| envelope.own_words);
        judge(operation, id, own_words, answer)
    }

    fn params_of(&self, operation: &Operation) -> String {
        let (tool, arguments) = (operation.tool.as_str(), operation.arguments.as_str());
        let Some(envelope) = &self.envelope else { return call_params(tool, arguments) };
        let named = match (&envelope.argument, operation.sending) {
            (Some(argument), Sending::Repeatable) => Some(with_argument(arguments, argument, &operation.id)),
            (None, _) | (_, Sending::AtMostOnce) => None,
        };
        let mut params = call_params(tool, named.as_deref().unwrap_or(arguments));
        if !envelope.params.is_empty() {
            params.push(',');
            params.push_str(&envelope.params);
        }
        params
    }

    async fn exchange(&self, time: &dyn Time, message: &Message, wait: Duration) -> Result<Response, Fault> {
        let answer = self.within(time, message, wait).await?;
        if answer.status == 404 && message.method != "initialize" && self.transport.forget_session() {
            self.reopen(time).await?;
            return self.within(time, message, wait).await;
        }
        Ok(answer)
    }

    async fn within(&self, time: &dyn Time, message: &Message, wait: Duration) -> Result<Response, Fault> {
        tokio::select! {
            biased;
            answer = self.transport.exchange(message) => answer,
            () = time.sleep(wait) => Err(Fault::Lost(Loss::Late)),
        }
    }

    /// `params` are members without their braces.
    fn message(
        &self,
        id: u64,
        method: &'static str,
        name: Option<&str>,
        params: &str,
        request_id: Option<&str>,
    ) -> Message {
        let mut body =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{params}");
        let meta = self.meta(request_id);
        if !meta.is_empty() {
            let comma = if params.is_empty() { "" } else { "," };
            body.push_str(&format!("{comma}\"_meta\":{{{meta}}}"));
        }
        body.push_str("}}");
        let version = (method != "initialize").then(|| self.version.clone());
        Message { id: Some(id), method, name: name.map(Into::into), version, body }
    }

    fn meta(&self, request_id: Option<&str>) -> String {
        let mut members = Vec::new();
        if let Some(envelope) = &self.envelope {
            members.extend(Some(&envelope.meta).filter(|meta| !meta.is_empty()).cloned());
        } else if *self.version == *MODERN {
            members.push(format!("\"io.modelcontextprotocol/protocolVersion\":\"{MODERN}\""));
            members.push("\"io.modelcontextprotocol/clientCapabilities\":{}".to_owned());
            members.push(format!("\"io.modelcontextprotocol/clientInfo\":{}", client_info()));
        }
        if let Some(request_id) = request_id {
            // A request id needs no escapes.
            members.push(format!("\"{}\":\"{request_id}\"", wire::META_REQUEST_ID));
        }
        members.join(",")
    }
}

fn greeting() -> String {
    let info = client_info();
    format!("\"protocolVersion\":\"{LEGACY}\",\"capabilities\":{{}},\"clientInfo\":{info}")
}

fn client_info() -> String {
    format!("{{\"name\":\"counterfoil\",\"version\":\"{}\"}}", env!("CARGO_PKG_VERSION"))
}

/// The arguments stand in it exactly as they were given.
fn call_params(tool: &str, arguments: &str) -> String {
    let mut params = String::from("\"name\":");
    write_string(&mut params, tool);
    params.push_str(",\"arguments\":");
    params.push_str(arguments);
    params
}

/// The object `arguments` with one member more.
fn with_argument(arguments: &str, name: &str, id: &RequestId) -> String {
    let members = arguments.strip_prefix('{').unwrap_or(arguments);
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    let mut out = String::from("{");
    write_string(&mut out, name);
    // A request id needs no escapes.
    out.push_str(&format!(":\"{id}\"{comma}{members}"));
    out
}

fn named(tool: &Value, name: &Tool) -> bool {
    tool.get("name").and_then(Value::as_str) == Some(name.as_str())
}

fn listed(tool: &Value, name: &Tool) -> Listed {
    let says = |place: &str, member: &str| {
        tool.get(place).and_then(|place| place.get(member)) == Some(&Value::Boolean(true))
    };
    let schema = tool.get("inputSchema").cloned().unwrap_or(Value::Object(Vec::new()));
    let request_ids = says("_meta", wire::META_REQUEST_IDS);
    Listed { name: name.clone(), schema, request_ids, read_only: says("annotations", "readOnlyHint") }
}

/// The structured content of a read's result, or the whole result; and whether the tool says that it failed.
#[must_use]
pub fn content(result: &Value) -> (String, bool) {
    let is_error = result.get("isError") == Some(&Value::Boolean(true));
    (json::text(result.get("structuredContent").unwrap_or(result)), is_error)
}
