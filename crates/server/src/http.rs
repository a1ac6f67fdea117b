//! The HTTP edge: who may knock, who they are, what they may carry in. What passes goes to [`crate::mcp`].
//!
//! Every answer given here is JSON, in the shape of a JSON-RPC error. The order of the doors is fixed: Host and
//! Origin (403), method (405), identity (401), headers (406, 415), size (413), strict reading (400).

mod metadata;
mod serve;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, get};
use bytes::{Bytes, BytesMut};
use counterfoil_core::{Principal, Refusal, Scope, wire};
use http::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, ORIGIN, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use percent_encoding::percent_decode_str;

use crate::auth::{Authenticator, Denied};
use crate::front::{
    self, Front, INVALID_PARAMS, INVALID_REQUEST, Id, Limits, Message, Rejection, TURNED_AWAY, Verdict,
};
use crate::mcp::{Mcp, McpHttp, Watch};
use crate::tools::{Effect, Tools};
use metadata::challenge;

pub use metadata::{Metadata, NoResource, WELL_KNOWN};
pub use serve::serve;
pub use tls::{BadCertificate, Certificates, Files};

/// Where MCP is spoken.
pub const MCP_PATH: &str = "/mcp";
/// Where a load balancer asks whether we are up.
pub const HEALTH_PATH: &str = "/healthz";

/// Where it asks whether calls can be served.
pub const READY_PATH: &str = "/readyz";
/// How long a database may take to say that it is there.
const READY_WAIT: Duration = Duration::from_secs(2);

/// Names that always reach a server on this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The MCP library wants to see both. It always answers the first here.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// What an operator may set.
#[derive(Clone)]
pub struct Options {
    /// How large a request may be.
    pub limits: Limits,
    /// Names, with or without port, under which the server may be addressed, besides those of loopback.
    pub hosts: Vec<String>,
    /// Web pages that may call, as `https://app.example.com`, spelled as browsers spell `Origin`. None by default.
    pub origins: Vec<String>,
    /// This server as an OAuth resource. Without it, a client must know by itself where tokens come from.
    pub metadata: Option<Metadata>,
    /// TLS, unless a proxy in front has it.
    pub tls: Option<Arc<Certificates>>,
    /// Connections at once.
    pub connections: usize,
    /// How long a connection may be silent: before a request, within its head, and while its answer is not read.
    pub header_wait: Duration,
    /// How long a body may take to arrive.
    pub body_wait: Duration,
    /// How often callers may call, and where writes are written down.
    pub watch: Watch,
    /// How long a shutdown waits for begun calls, and then again for their answers to be read.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            limits: Limits::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            metadata: None,
            tls: None,
            connections: 1024,
            header_wait: seconds(30),
            watch: Watch::default(),
            body_wait: seconds(30),
            drain: seconds(30),
        }
    }
}

/// The edge of one server.
pub struct Edge {
    authenticator: Authenticator,
    tools: Arc<dyn Tools>,
    hosts: Vec<Host>,
    options: Options,
    mcp: Mcp,
    service: McpHttp,
}

impl Edge {
    /// The edge of `tools`.
    #[must_use]
    pub fn new(tools: Arc<dyn Tools>, authenticator: Authenticator, options: Options) -> Arc<Self> {
        let own = options.metadata.as_ref().map(|metadata| metadata.host().to_owned());
        let named = options.hosts.iter().cloned().chain(own);
        let names: Vec<String> = LOOPBACK.iter().copied().map(str::to_owned).chain(named).collect();
        let mcp = Mcp::new(Arc::clone(&tools)).watched(options.watch.clone());
        // The library checks what we check, a second time.
        let service = McpHttp::new(mcp.clone(), &names, &options.origins, options.limits.body);
        let hosts = names.iter().filter_map(|name| Host::parse(name)).collect();
        Arc::new(Self { authenticator, tools, hosts, options, mcp, service })
    }

    /// The routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(MCP_PATH, any(mcp))
            .route(&format!("{MCP_PATH}/{{workspace}}"), any(mcp))
            .route(WELL_KNOWN, get(resource))
            .route(&format!("{WELL_KNOWN}/{{*suffix}}"), get(resource))
            .route(HEALTH_PATH, get(health))
            .route(READY_PATH, get(ready))
            .fallback(nowhere)
            .with_state(Arc::clone(self))
    }
}

/// Whether a call could be served, and nothing of why not.
async fn ready(State(edge): State<Arc<Edge>>) -> Response {
    let ready = tokio::time::timeout(READY_WAIT, edge.tools.ready()).await.unwrap_or(false);
    if ready {
        reply(StatusCode::OK, "{\"status\":\"ready\"}")
    } else {
        reply(StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"not ready\"}")
    }
}

async fn health() -> Response {
    reply(StatusCode::OK, "{\"status\":\"ok\"}")
}

async fn resource(State(edge): State<Arc<Edge>>, request: Request) -> Response {
    let suffix = request.uri().path().strip_prefix(WELL_KNOWN).unwrap_or_default();
    match edge.options.metadata.as_ref().and_then(|metadata| metadata.document(suffix)) {
        Some(document) => reply(StatusCode::OK, document),
        None => nowhere().await,
    }
}

async fn nowhere() -> Response {
    let problem = format!("There is nothing here. MCP is spoken at {MCP_PATH}.");
    reply(StatusCode::NOT_FOUND, front::error(None, TURNED_AWAY, &problem, None))
}

async fn mcp(State(edge): State<Arc<Edge>>, request: Request) -> Response {
    let Some(workspace) = workspace(request.uri()) else { return nowhere().await };
    match edge.answer(request, workspace.as_deref()).await {
        Ok(response) => response,
        Err(stop) => edge.stopped(stop, workspace.as_deref()),
    }
}

/// The workspace that `/mcp/WORKSPACE` names, if it names one; the outer `None` if it is spelled as none can be.
#[expect(clippy::option_option, reason = "no name, and no such place, are two answers")]
fn workspace(uri: &Uri) -> Option<Option<String>> {
    let Some(segment) = uri.path().strip_prefix(MCP_PATH).and_then(|rest| rest.strip_prefix('/')) else {
        return Some(None);
    };
    let name = percent_decode_str(segment).decode_utf8().ok()?;
    (!name.is_empty()).then(|| Some(name.into_owned()))
}

/// Why a request goes no further.
enum Stop {
    /// A door is closed.
    Door(StatusCode, String),
    /// Anything but POST.
    Method,
    /// Nobody we know.
    Denied(Denied),
    /// Not a message.
    Rejected(Rejection),
}

impl Stop {
    fn door(status: StatusCode, message: impl Into<String>) -> Self {
        Stop::Door(status, message.into())
    }
}

impl Edge {
    fn stopped(&self, stop: Stop, workspace: Option<&str>) -> Response {
        let away = |status, message: &str| reply(status, front::error(None, TURNED_AWAY, message, None));
        match stop {
            Stop::Door(status, message) => away(status, &message),
            Stop::Method => {
                let response =
                    away(StatusCode::METHOD_NOT_ALLOWED, "This server keeps no sessions. Use POST.");
                with(response, ALLOW, HeaderValue::from_static("POST"))
            }
            Stop::Denied(denied) => self.denied(denied, workspace),
            Stop::Rejected(rejection) => reply(StatusCode::BAD_REQUEST, rejection.body()),
        }
    }

    fn denied(&self, denied: Denied, workspace: Option<&str>) -> Response {
        let message = front::error(None, TURNED_AWAY, &denied.to_string(), None);
        let response = reply(denied.status(), message);
        if denied == Denied::Unavailable {
            return with(response, RETRY_AFTER, HeaderValue::from(crate::auth::PAUSE.as_secs()));
        }
        if denied.status() != StatusCode::UNAUTHORIZED {
            return response;
        }
        let metadata = self.options.metadata.as_ref();
        let first = metadata.map(Metadata::first).unwrap_or_default();
        with(response, WWW_AUTHENTICATE, challenge(metadata, denied.error(), first, workspace))
    }

    /// A refusal that has a status of its own.
    fn refused(&self, id: Option<&Id>, refusal: &Refusal, asked: &Asked<'_>) -> Response {
        let status =
            StatusCode::from_u16(refusal.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = front::error(id, TURNED_AWAY, refusal.message(), Some(&refusal.body()));
        let response = reply(status, body);
        if let Some(missing) = refusal.scope().and_then(|scope| Scope::parse(scope).ok()) {
            let scopes = self.needed(missing, asked);
            let metadata = self.options.metadata.as_ref();
            let challenge = challenge(metadata, Some("insufficient_scope"), &scopes, asked.workspace);
            return with(response, WWW_AUTHENTICATE, challenge);
        }
        match refusal.retry_after() {
            // Whole seconds, rounded up: half a second is no reason to come back at once.
            Some(wait) => {
                with(response, RETRY_AFTER, wait.as_millis().div_ceil(1000).to_string().parse().ok())
            }
            None => response,
        }
    }

    /// From 2026-07-28 on a challenge names what the call needs, and clients add it to what they have; before, they
    /// asked for exactly what was named, and would have lost what they had.
    fn needed(&self, missing: Scope, asked: &Asked<'_>) -> Vec<Scope> {
        let adds = asked.version.as_ref().is_some_and(|version| version.as_bytes() >= ADDS.as_bytes());
        let known = |scope: &&Scope| {
            **scope != missing && self.options.metadata.as_ref().is_some_and(|all| all.knows(scope))
        };
        let held = asked.principal.scopes.iter().filter(known).filter(|_| !adds);
        let mut needed: Vec<Scope> = held.cloned().collect();
        needed.push(missing);
        needed
    }
}

/// The revision in which clients add what a challenge names to what they have.
const ADDS: &str = "2026-07-28";

/// What the answer to a request is shaped by.
struct Asked<'a> {
    principal: Arc<Principal>,
    version: Option<HeaderValue>,
    workspace: Option<&'a str>,
}

impl Edge {
    async fn answer(&self, request: Request, workspace: Option<&str>) -> Result<Response, Stop> {
        let (parts, body) = request.into_parts();
        self.addressed(&parts.uri, &parts.headers)?;
        if parts.method != Method::POST {
            return Err(Stop::Method);
        }
        let principal =
            self.authenticator.authenticate(&parts.headers, workspace).await.map_err(Stop::Denied)?;
        negotiable(&parts.headers)?;
        let body = self.body(&parts.headers, body).await?;
        let ids = parts.headers.get_all(wire::HEADER).iter().map(|value| value.as_bytes().into()).collect();
        let message = front::read(body, self.options.limits.json, ids).map_err(Stop::Rejected)?;
        let version = parts.headers.get(VERSION).cloned();
        Ok(self.dispatch(parts, message, &Asked { principal, version, workspace }).await)
    }

    async fn dispatch(
        &self,
        mut parts: http::request::Parts,
        message: Message,
        asked: &Asked<'_>,
    ) -> Response {
        let verdict = Verdict::default();
        let id = message.id().cloned();
        // A call is counted where it is known what it calls.
        if message.given.is_none()
            && let Err(limited) = self.options.watch.admit(&asked.principal, Effect::Read)
        {
            return self.refused(id.as_ref(), &limited, asked);
        }
        // What has been judged, and what the library does not need and so cannot log.
        parts.headers.remove(ORIGIN);
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(wire::HEADER);
        parts.headers.insert(ACCEPT, BOTH);
        let principal = Arc::clone(&asked.principal);
        parts.extensions.insert(Front { principal, given: message.given, verdict: Some(verdict.clone()) });
        let request = http::Request::from_parts(parts, Full::new(message.body));
        let response = self.service.handle(request).await;
        match verdict.get() {
            Some(refusal) => self.refused(id.as_ref(), refusal, asked),
            None => as_json(id, response),
        }
    }

    /// A page on another site can make a browser call a server on this machine, under the page's own Origin or,
    /// with a name that it points here, under its own Host. Neither gets in.
    fn addressed(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Stop> {
        let forbidden = |message| Err(Stop::door(StatusCode::FORBIDDEN, message));
        let Some(host) = host(uri, headers) else {
            return forbidden("The request names no Host, or more than one.");
        };
        if !self.hosts.iter().any(|known| known.covers(&host)) {
            return forbidden("This server does not go by the name in the Host header.");
        }
        let allowed = |origin: &HeaderValue| {
            let known = |name: &String| name.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
            self.options.origins.iter().any(known) || own(origin, headers)
        };
        if headers.get_all(ORIGIN).iter().all(allowed) {
            Ok(())
        } else {
            forbidden("Pages of this Origin may not call this server.")
        }
    }

    /// The whole body, in memory bounded by the limit.
    async fn body(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Stop> {
        let limit = self.options.limits.body;
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let read = async {
            let mut body = body;
            if announced.is_none_or(|length| length <= limit)
                && let Some(whole) = collect(&mut body, limit).await?
            {
                return Ok(whole);
            }
            if !headers.contains_key(EXPECT) {
                discard(body, limit).await;
            }
            let problem = format!("The body is larger than {limit} bytes.");
            Err(Stop::door(StatusCode::PAYLOAD_TOO_LARGE, problem))
        };
        let late = |_| Stop::door(StatusCode::REQUEST_TIMEOUT, "The body took too long to arrive.");
        tokio::time::timeout(self.options.body_wait, read).await.map_err(late)?
    }
}

/// A page of this very server: its origin is what the request names as `Host`, which has been checked.
fn own(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let authority =
        ["http://", "https://"].iter().find_map(|scheme| origin.as_bytes().strip_prefix(scheme.as_bytes()));
    authority.is_some() && authority == headers.get(HOST).map(HeaderValue::as_bytes)
}

/// `None` if there is more than `limit`.
async fn collect(body: &mut Body, limit: usize) -> Result<Option<Bytes>, Stop> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| Stop::door(StatusCode::BAD_REQUEST, "The body broke off.");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if data.len() > limit - whole.len() {
            return Ok(None);
        }
        whole.extend_from_slice(&data);
    }
    Ok(Some(whole.freeze()))
}

/// Reads on for a while without keeping anything: a client that is still sending would miss its answer.
async fn discard(mut body: Body, limit: usize) {
    const TIMES: usize = 16;
    let mut left = limit.saturating_mul(TIMES);
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    let _enough = tokio::time::timeout(Duration::from_secs(2), read).await;
}

/// JSON comes and JSON goes. A page cannot send JSON to another site without asking first, and is not let in then.
fn negotiable(headers: &HeaderMap) -> Result<(), Stop> {
    let essence = |value: &str| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let sent = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(essence);
    if sent.as_deref() != Some("application/json") {
        let problem = "Send the header \"Content-Type: application/json\".";
        return Err(Stop::door(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
    }
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = accepted.flat_map(|value| value.split(',')).map(essence).peekable();
    let json = |range: String| matches!(&*range, "application/json" | "application/*" | "*/*");
    if ranges.peek().is_none() || ranges.any(json) {
        Ok(())
    } else {
        let problem =
            "This server answers JSON. Send the header \"Accept: application/json, text/event-stream\".";
        Err(Stop::door(StatusCode::NOT_ACCEPTABLE, problem))
    }
}

/// The MCP library's answer. Where it answers in prose, the prose is put into a JSON-RPC error.
fn as_json(id: Option<Id>, response: http::Response<Bytes>) -> Response {
    let (parts, body) = response.into_parts();
    let json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if json || parts.status.is_success() {
        return Response::from_parts(parts, Body::from(body));
    }
    let (status, code, message) = match parts.status {
        // We have read the message, so what does not fit is what it says.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            (StatusCode::BAD_REQUEST, INVALID_PARAMS, "The params do not fit the method.".to_owned())
        }
        status => (status, INVALID_REQUEST, String::from_utf8_lossy(&body).into_owned()),
    };
    reply(status, Rejection::new(id, code, message).body())
}

fn reply(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    with(response, CONTENT_TYPE, JSON)
}

fn with(mut response: Response, name: HeaderName, value: impl Into<Option<HeaderValue>>) -> Response {
    if let Some(value) = value.into() {
        response.headers_mut().insert(name, value);
    }
    response
}

/// A name under which a server is addressed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = |name: &str| name.trim_matches(['[', ']']).to_ascii_lowercase();
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Some(Self { name: bare(text), port: None });
        }
        let authority: Authority = text.parse().ok()?;
        let plain = !authority.as_str().contains('@');
        plain.then(|| Self { name: bare(authority.host()), port: authority.port_u16() })
    }

    /// Without a port of its own, a name covers every port.
    fn covers(&self, other: &Self) -> bool {
        self.name == other.name && (self.port.is_none() || self.port == other.port)
    }
}

/// Is this spelled as browsers spell `Origin`?
pub(crate) fn is_origin(text: &str) -> bool {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    authority.is_some_and(|authority| !authority.contains('/') && Host::parse(authority).is_some())
}

/// HTTP/2 names the host in the URI.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<Host> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Host::parse(value.to_str().ok()?),
        (None, _) => Host::parse(uri.authority()?.as_str()),
        (Some(_), Some(_)) => None,
    }
}
