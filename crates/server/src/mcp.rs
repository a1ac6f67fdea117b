//! MCP, spoken through the official library. No other file knows that library.
//!
//! The library keeps the protocol: revisions, negotiation, the shape of results. What it would lose travels around
//! it as a [`Front`] in the extensions of each request. A call, once begun, runs on a task of its own: the library
//! may drop a request whose client has gone, and nothing that was begun is dropped with it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use counterfoil::{Clock, SystemClock};
use counterfoil_core::{Code, Principal, Refusal, wire};
use http_body_util::{BodyExt, Full};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientJsonRpcMessage, ClientNotification,
    ContentBlock, DiscoverResult, ErrorCode, ErrorData, GetExtensions, Implementation,
    InitializeRequestParams, InitializeResult, JsonRpcMessage, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProtocolVersion, RequestId, ServerCapabilities, ServerConfig,
    ServerJsonRpcMessage, Tool, ToolAnnotations,
};
use rmcp::service::{
    RequestContext, RoleServer, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage, serve_server,
};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, Transport};
use rmcp::{ServerHandler, model::Extensions};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::front::{
    self, Front, Given, INVALID_PARAMS, INVALID_REQUEST, Kind, Limits, Message, Rejection, Verdict,
};
use crate::limit::Limiter;
use crate::stdio::{Line, Lines, Writer};
use crate::tools::{Answer, Effect, Listed, Noted, ToolCall, Tools, UnknownTool};
use crate::verbatim;

/// What the log filter of a program should add: the library's own log tells of every request, and at its finest of
/// what is in them.
pub const LOG_DIRECTIVE: &str = "rmcp=error";

/// Requests of one stdio session that may be unanswered before the next is read.
const UNANSWERED: usize = 1024;

/// What every client is told first.
const INSTRUCTIONS: &str = "Every tool that changes something takes a request_id: your own name for one intended \
change, 1 to 64 of the characters A-Z a-z 0-9 _ -. Choose it before the first call and keep it. If a call fails or \
its answer is lost, send the same call again with the same request_id and the same arguments: the change happens at \
most once, and you get its result. Take a new request_id only for a new change. A result with replayed: true is what \
happened then, not what is there now. operation_status tells whether a request_id has committed; void_operation \
makes sure that it never will.";

/// The protocol's side of the engine. Cheap to clone.
#[derive(Clone)]
pub struct Mcp {
    tools: Arc<dyn Tools>,
    begun: TaskTracker,
    info: Arc<ServerConfig>,
    watch: Watch,
}

/// What is kept of calls besides receipts.
#[derive(Clone)]
pub struct Watch {
    /// How often a caller may call.
    pub limiter: Option<Arc<Limiter>>,
    /// One line for each write.
    pub audit: Option<Arc<Audit>>,
    /// Dates the lines.
    pub clock: Arc<dyn Clock>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { limiter: None, audit: None, clock: Arc::new(SystemClock) }
    }
}

impl Watch {
    /// May this caller call?
    pub(crate) fn admit(&self, who: &Principal, effect: Effect) -> Result<(), Refusal> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.take(who, effect).map_err(|wait| match effect {
            Effect::Write => Refusal::rate_limited(wait),
            Effect::Read => Refusal::rate_limited(wait).of_read(),
        })
    }

    /// A write has ended.
    fn ended(&self, who: &Principal, noted: &Noted, took: Duration) {
        if let Some(limiter) = self.limiter.as_ref().filter(|_| !reached_the_writer(noted)) {
            limiter.was_no_write(who);
        }
        if let Some(audit) = &self.audit {
            audit.note(self.clock.now(), who, noted, took);
        }
    }
}

/// A replay, and a refusal that is judged without the writer, cost no more than a read. What is not told apart here
/// counts as a write.
fn reached_the_writer(noted: &Noted) -> bool {
    let Some(code) = Code::ALL.iter().find(|code| code.as_str() == noted.outcome) else {
        return !noted.replayed;
    };
    match code {
        Code::Forbidden
        | Code::RequestIdRequired
        | Code::InvalidRequestId
        | Code::InvalidArguments
        | Code::RequestIdReused
        | Code::RevisionChanged
        | Code::RequestIdVoided
        | Code::RequestIdExpired
        | Code::RateLimited => false,
        Code::ResourceUnavailable
        | Code::VersionConflict
        | Code::PreconditionFailed
        | Code::ConstraintViolated
        | Code::ResultTooLarge
        | Code::Busy
        | Code::OutcomeUnknown
        | Code::Internal => true,
    }
}

/// What is noted of a write for which the engine had no more to say.
fn plain(tool: String, answer: &Result<Answer, UnknownTool>) -> Noted {
    let outcome = match answer {
        Ok(Answer::Done { .. }) => "committed",
        Ok(Answer::Refused(refusal)) => refusal.code().as_str(),
        Err(UnknownTool) => Code::Internal.as_str(),
    };
    Noted { tool, request_id: None, outcome, replayed: false }
}

impl Mcp {
    /// Speaks for `tools`.
    #[must_use]
    pub fn new(tools: Arc<dyn Tools>) -> Self {
        let server = Implementation::new("counterfoil", env!("CARGO_PKG_VERSION"));
        let info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_instructions(INSTRUCTIONS)
            .with_server_info(server);
        let begun = TaskTracker::new();
        // Closed only says that waiting may end whenever nothing runs; calls may still be begun.
        begun.close();
        Self { tools, begun, info: Arc::new(info), watch: Watch::default() }
    }

    /// The same, watched.
    #[must_use]
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch, ..self }
    }

    /// Waits until no begun call is running.
    pub async fn idle(&self) {
        self.begun.wait().await;
    }

    /// Runs a call on a task of its own, to its end.
    async fn run(&self, principal: Arc<Principal>, call: ToolCall) -> Result<Answer, UnknownTool> {
        let watched = self.watch.limiter.is_some() || self.watch.audit.is_some();
        if !watched || self.tools.effect(&call.name) != Some(Effect::Write) {
            return self.answer(principal, call).await;
        }
        let (mcp, who, name) = (self.clone(), Arc::clone(&principal), call.name.clone());
        let noted = Arc::clone(&call.noted);
        // What became of a write is written down whether or not anybody waits for it.
        let task = self.begun.spawn(async move {
            let begun = Instant::now();
            let answer = mcp.answer(principal, call).await;
            let noted = noted.get().cloned().unwrap_or_else(|| plain(name, &answer));
            mcp.watch.ended(&who, &noted, begun.elapsed());
            answer
        });
        task.await.unwrap_or_else(|failure| Ok(lost_answer(&failure)))
    }

    async fn answer(&self, principal: Arc<Principal>, call: ToolCall) -> Result<Answer, UnknownTool> {
        let tools = Arc::clone(&self.tools);
        let task = self.begun.spawn(async move { tools.call(principal, call).await });
        task.await.unwrap_or_else(|failure| Ok(lost_answer(&failure)))
    }
}

fn lost_answer(failure: &tokio::task::JoinError) -> Answer {
    let id = correlation_id();
    tracing::error!(correlation_id = id, %failure, "a call ended without an answer");
    Answer::Refused(Refusal::internal(id))
}

impl From<Arc<dyn Tools>> for Mcp {
    fn from(tools: Arc<dyn Tools>) -> Self {
        Self::new(tools)
    }
}

/// Finds one failure in the log. Only has to differ from others: the standard library's random hash keys do.
fn correlation_id() -> String {
    format!("{:016x}", RandomState::new().hash_one(()))
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        (*self.info).clone()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let meta = caller_meta(&take_front(&mut context.extensions)?.principal);
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        result.meta.get_or_insert_default().0.extend(meta.0);
        Ok(result)
    }

    async fn discover(&self, mut context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let meta = caller_meta(&take_front(&mut context.extensions)?.principal);
        let versions = self.supported_protocol_versions().into_owned();
        let mut result = DiscoverResult::from_server_info(versions, self.get_info());
        result.meta.get_or_insert_default().0.extend(meta.0);
        Ok(result)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let front = take_front(&mut context.extensions)?;
        let tools = self.tools.list(&front.principal).into_iter().map(listed).collect();
        // The library adds the cache hints that 2026-07-28 requires: private, and stale at once.
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let front = take_front(&mut context.extensions)?;
        let heeded = gone_means_cancelled(&front, &context);
        let cancelled = if heeded { context.ct.clone() } else { CancellationToken::new() };
        if cancelled.is_cancelled() {
            return Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, "Cancelled before it was begun.", None));
        }
        let Given { arguments, sources } = front.given.ok_or_else(lost)?;
        let name = request.name.into_owned();
        let admitted = match self.tools.effect(&name) {
            Some(effect) if over_http(&front.verdict) => self.watch.admit(&front.principal, effect),
            Some(_) | None => Ok(()),
        };
        let call = ToolCall { name, arguments, sources, noted: Arc::default(), cancelled };
        let answer = match admitted {
            Ok(()) => self.run(front.principal, call).await,
            Err(limited) => Ok(Answer::Refused(limited)),
        };
        match answer {
            Ok(Answer::Done { structured, text }) => Ok(result(structured, text, false)),
            Ok(Answer::Refused(refusal)) => {
                if let Some(verdict) = front.verdict
                    && at_the_edge(refusal.code())
                {
                    verdict.leave(refusal.clone());
                }
                let text = format!("{} ({})", refusal.message(), refusal.code());
                Ok(result(refusal.body(), text, true))
            }
            Err(UnknownTool) => {
                Err(ErrorData::invalid_params("There is no such tool; tools/list names them.", None))
            }
        }
    }
}

fn over_http(verdict: &Option<Verdict>) -> bool {
    verdict.is_some()
}

/// The codes that have an HTTP status of their own over MCP.
fn at_the_edge(code: Code) -> bool {
    match code {
        Code::Forbidden | Code::RateLimited => true,
        Code::RequestIdRequired
        | Code::InvalidRequestId
        | Code::InvalidArguments
        | Code::ResourceUnavailable
        | Code::RequestIdReused
        | Code::RevisionChanged
        | Code::RequestIdVoided
        | Code::RequestIdExpired
        | Code::VersionConflict
        | Code::PreconditionFailed
        | Code::ConstraintViolated
        | Code::ResultTooLarge
        | Code::Busy
        | Code::OutcomeUnknown
        | Code::Internal => false,
    }
}

/// A closed HTTP connection cancels a request from 2026-07-28 on; before, it says nothing. Over stdio only a
/// notification cancels, in every revision.
fn gone_means_cancelled(front: &Front, context: &RequestContext<RoleServer>) -> bool {
    let over_http = front.verdict.is_some();
    !over_http || context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Over HTTP the library puts the request's parts into the extensions, and ours are inside those. Taken, not copied:
/// the arguments may be large.
fn take_front(extensions: &mut Extensions) -> Result<Front, ErrorData> {
    let over_stdio = extensions.remove::<Front>();
    let over_http = || extensions.get_mut::<http::request::Parts>()?.extensions.remove::<Front>();
    over_stdio.or_else(over_http).ok_or_else(lost)
}

/// No identity, no answer. Cannot happen while every transport puts a [`Front`] into every request.
fn lost() -> ErrorData {
    ErrorData::internal_error("The request came without an identity.", None)
}

fn caller_meta(principal: &Principal) -> MetaObject {
    let mut meta = MetaObject::new();
    meta.0.insert(wire::META_CALLER.to_owned(), principal.caller().into());
    meta
}

fn result(structured: String, text: String, refused: bool) -> CallToolResponse {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(verbatim::wrap(structured));
    result.is_error = Some(refused);
    result.into()
}

fn listed(tool: Listed) -> Tool {
    let mut out = Tool::new(tool.name, tool.description, tool.input_schema);
    let mut hints = ToolAnnotations::new()
        .read_only(tool.hints.read_only)
        .destructive(tool.hints.destructive)
        .idempotent(tool.hints.idempotent)
        .open_world(false);
    hints.title.clone_from(&tool.title);
    out.title = tool.title;
    out.output_schema = Some(Arc::new(tool.output_schema));
    out.annotations = Some(hints);
    if tool.request_ids {
        out.meta.get_or_insert_default().0.insert(wire::META_REQUEST_IDS.to_owned(), true.into());
    }
    out
}

/// MCP over Streamable HTTP, without sessions: every request is answered by itself, as JSON.
#[derive(Clone)]
pub struct McpHttp {
    service: StreamableHttpService<Mcp, NeverSessionManager>,
}

impl McpHttp {
    /// Serves `mcp` to requests whose `Host` is among `hosts` and whose `Origin`, if any, is among `origins`.
    #[must_use]
    pub fn new(mcp: Mcp, hosts: &[String], origins: &[String], limit: usize) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(None)
            .with_max_request_body_bytes(limit)
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation();
        let sessions = Arc::new(NeverSessionManager::default());
        Self { service: StreamableHttpService::new(move || Ok(mcp.clone()), sessions, config) }
    }

    /// Answers one request, whose extensions hold a [`Front`].
    pub async fn handle(&self, request: http::Request<Full<Bytes>>) -> http::Response<Bytes> {
        let (parts, body) = self.service.handle(request).await.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        let body = body.unwrap_or_else(|never: Infallible| match never {});
        http::Response::from_parts(parts, verbatim::unwrap(body.into()).into())
    }
}

/// Serves one stdio session to its end: until the input ends or `shutdown` comes, and every begun call has
/// answered, for which a shutdown allows `drain`.
///
/// # Errors
/// The session could not be kept up; calls that were begun have ended all the same.
pub async fn serve_stdio<R, W>(
    mcp: impl Into<Mcp>,
    principal: Arc<Principal>,
    limits: Limits,
    (reader, writer): (R, W),
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let mcp: Mcp = mcp.into();
    let stopping = Stopping::after(shutdown, drain);
    let session = Session::new(principal, limits, reader, writer, &stopping);
    let outcome = match serve_server(mcp.clone(), session).await {
        Ok(service) => tokio::select! {
            ended = service.waiting() => ended.map(drop).map_err(io::Error::other),
            () = stopping.over.cancelled() => Ok(()),
        },
        // The input ended before anything was asked.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(failure) => Err(io::Error::other(failure.to_string())),
    };
    tokio::select! {
        () = mcp.idle() => {}
        () = stopping.over.cancelled() => {}
    }
    outcome
}

/// A shutdown in two steps: no more reading, and no more waiting.
struct Stopping {
    begun: CancellationToken,
    over: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Stopping {
    fn after(shutdown: impl Future<Output = ()> + Send + 'static, drain: Duration) -> Self {
        let (begun, over) = (CancellationToken::new(), CancellationToken::new());
        let (first, second) = (begun.clone(), over.clone());
        let task = tokio::spawn(async move {
            shutdown.await;
            first.cancel();
            tokio::time::sleep(drain).await;
            second.cancel();
        });
        Self { begun, over, task }
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An unanswered request: the id its client knows it by, and its place among the unanswered.
struct Unanswered {
    id: RequestId,
    place: OwnedSemaphorePermit,
}

/// The stdio transport: strict reader in, whole lines out.
///
/// Requests are renumbered on their way in and get their own ids back on their way out, because the library loses
/// an answer when two unanswered requests share an id.
struct Session<R> {
    principal: Arc<Principal>,
    limits: Limits,
    lines: Lines<R>,
    /// Until the end of the session.
    writer: Option<Writer>,
    /// By the number that the library knows them by.
    unanswered: HashMap<i64, Unanswered>,
    number: i64,
    places: Arc<Semaphore>,
    /// The answer to a line that did not pass, until it is on its way.
    rejection: Option<Rejection>,
    /// A request has been handed over: the library ends a session that begins with anything else.
    opened: bool,
    ended: bool,
    begun: CancellationToken,
    over: CancellationToken,
}

impl<R: AsyncRead + Send + Unpin> Session<R> {
    fn new<W>(principal: Arc<Principal>, limits: Limits, reader: R, writer: W, stopping: &Stopping) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self {
            principal,
            limits,
            lines: Lines::new(reader, limits.body),
            writer: Some(Writer::spawn(writer)),
            unanswered: HashMap::new(),
            number: 0,
            places: Arc::new(Semaphore::new(UNANSWERED)),
            rejection: None,
            opened: false,
            ended: false,
            begun: stopping.begun.clone(),
            over: stopping.over.clone(),
        }
    }

    fn output(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.writer.as_ref().map(Writer::lines)
    }

    /// Sends a rejection that is due. Dropped half-way, it is still due.
    async fn reject(&mut self) -> Option<()> {
        if self.rejection.is_some() {
            let output = self.output()?;
            let slot = output.reserve().await.ok()?;
            if let Some(rejection) = self.rejection.take() {
                slot.send(rejection.body().into_bytes());
            }
        }
        Some(())
    }

    /// The next line, or `None` when there will be none.
    async fn line(&mut self) -> Option<Line> {
        tokio::select! {
            biased;
            () = self.begun.cancelled() => None,
            line = self.lines.next() => line.unwrap_or_else(|failure| {
                tracing::warn!(kind = %failure.kind(), "the input failed");
                None
            }),
        }
    }

    /// Ends when every request has its answer. The library calls again after each answer, so there is nothing to
    /// wake up for in between.
    async fn settled(&mut self) {
        if !self.unanswered.is_empty() {
            self.over.cancelled().await;
        }
    }

    /// What the library is handed for a line, if anything.
    fn take_in(
        &mut self,
        line: Line,
        place: OwnedSemaphorePermit,
    ) -> Result<Option<ClientJsonRpcMessage>, Rejection> {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong => {
                let problem = format!("The message is longer than {} bytes.", self.limits.body);
                return Err(Rejection::new(None, INVALID_REQUEST, problem));
            }
        };
        let message = front::read(line.into(), self.limits.json, Vec::new())?;
        match message.kind {
            Kind::Request(_) => self.request(message, place).map(Some),
            Kind::Notification => Ok(self.notification(&message)),
            Kind::Response => Ok(None),
        }
    }

    fn request(
        &mut self,
        message: Message,
        place: OwnedSemaphorePermit,
    ) -> Result<ClientJsonRpcMessage, Rejection> {
        let misfit = || {
            let problem = "The params do not fit the method.";
            Rejection::new(message.id().cloned(), INVALID_PARAMS, problem)
        };
        let parsed: ClientJsonRpcMessage = serde_json::from_slice(&message.body).map_err(|_| misfit())?;
        let JsonRpcMessage::Request(mut request) = parsed else { return Err(misfit()) };
        let front = Front { principal: Arc::clone(&self.principal), given: message.given, verdict: None };
        request.request.extensions_mut().insert(front);
        self.number += 1;
        let id = std::mem::replace(&mut request.id, RequestId::Number(self.number));
        self.unanswered.insert(self.number, Unanswered { id, place });
        self.opened = true;
        Ok(JsonRpcMessage::Request(request))
    }

    /// A notification is answered by nothing, not even if it is malformed.
    fn notification(&mut self, message: &Message) -> Option<ClientJsonRpcMessage> {
        let parsed: ClientJsonRpcMessage = serde_json::from_slice(&message.body).ok()?;
        let JsonRpcMessage::Notification(mut parsed) = parsed else { return None };
        if let ClientNotification::CancelledNotification(cancelled) = &mut parsed.notification {
            let id = cancelled.params.request_id.as_ref()?;
            let number = *self.unanswered.iter().find(|(_, request)| request.id == *id)?.0;
            // Whatever becomes of it, the library answers a cancelled request no more.
            self.unanswered.remove(&number);
            cancelled.params.request_id = Some(RequestId::Number(number));
        }
        self.opened.then_some(JsonRpcMessage::Notification(parsed))
    }

    /// Gives an answer its client's id back. `None` if the request was cancelled.
    fn readdress(&mut self, message: &mut ServerJsonRpcMessage) -> Option<Option<OwnedSemaphorePermit>> {
        let id = match message {
            JsonRpcMessage::Response(response) => &mut response.id,
            JsonRpcMessage::Error(error) => error.id.as_mut()?,
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return Some(None),
        };
        let RequestId::Number(number) = id else { return None };
        let request = self.unanswered.remove(number)?;
        *id = request.id;
        Some(Some(request.place))
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Session<R> {
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        "stdio".into()
    }

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let place = self.readdress(&mut item);
        let output = self.output();
        async move {
            let Some(place) = place else { return Ok(()) };
            let line = verbatim::unwrap(serde_json::to_vec(&item)?);
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            output.ok_or_else(gone)?.send(line).await.map_err(|_| gone())?;
            drop(place);
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.reject().await?;
            if self.ended {
                self.settled().await;
                return None;
            }
            let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
            let Some(line) = self.line().await else {
                self.ended = true;
                continue;
            };
            match self.take_in(line, place) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(rejection) => self.rejection = Some(rejection),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        match self.writer.take() {
            Some(writer) => writer.close().await,
            None => Ok(()),
        }
    }
}
