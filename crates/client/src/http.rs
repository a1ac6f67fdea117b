//! MCP over Streamable HTTP: the one file that knows the HTTP library.
//!
//! Redirects are not followed (a token is for the server it was given for), answers are bounded in size, and the
//! token stands in a header that is marked as a secret.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use reqwest::{Client, redirect};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::answer::spoken;
use crate::limits;
use crate::sse::Events;
use crate::token::Token;
use crate::transport::{Fault, Loss, Message, Pending, Response, Transport};
use crate::words::ServerUrl;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A way to one server over HTTP.
#[derive(Debug)]
pub struct Http {
    client: Client,
    server: ServerUrl,
    authorization: Option<HeaderValue>,
    /// What a server of an older revision calls our session.
    session: Mutex<Option<HeaderValue>>,
}

/// There is no way to make requests from here.
#[derive(Debug, thiserror::Error)]
pub enum NoHttp {
    /// TLS cannot be set up: there are no root certificates, say.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
    /// Not a server that HTTP leads to.
    #[error("the server is a command: only the proxy in front of it reaches it")]
    Command,
    /// A token would be sent in the clear.
    #[error("a token must not be sent over plain HTTP to another machine: use https://")]
    InTheClear,
}

impl Http {
    /// A way to `server`, with `token`.
    ///
    /// # Errors
    /// [`NoHttp`]
    pub fn new(server: &ServerUrl, token: Option<&Token>) -> Result<Self, NoHttp> {
        if server.is_command() {
            return Err(NoHttp::Command);
        }
        if token.is_some() && server.in_the_clear() {
            return Err(NoHttp::InTheClear);
        }
        let builder = Client::builder()
            .tls_backend_preconfigured(tls().map_err(NoHttp::Tls)?)
            .redirect(redirect::Policy::none())
            .connect_timeout(limits::CONNECT);
        let client = builder.build().map_err(NoHttp::Client)?;
        let authorization = token.and_then(bearer);
        Ok(Self { client, server: server.clone(), authorization, session: Mutex::default() })
    }

    fn headers(&self, head: Head<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, if head.method.is_some() { BOTH } else { EVENTS });
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("counterfoil/", env!("CARGO_PKG_VERSION"))));
        let optional = [
            (CONTENT_TYPE, head.method.map(|_| JSON)),
            (AUTHORIZATION, self.authorization.clone()),
            (VERSION, head.version.and_then(value)),
            (METHOD, head.method.filter(|method| !method.is_empty()).and_then(value)),
            (NAME, head.name.and_then(value)),
            (SESSION, self.session()),
        ];
        headers.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        headers
    }

    pub(crate) fn session(&self) -> Option<HeaderValue> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the session `old`, unless there is a newer one.
    pub(crate) fn forget(&self, old: &HeaderValue) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.as_ref() == Some(old) {
            *session = None;
        }
    }

    /// Sends one message; what comes back is read message by message.
    pub(crate) async fn open(&self, head: Head<'_>, body: String) -> Result<Opened, Fault> {
        let request = self.client.post(self.server.url().clone()).headers(self.headers(head)).body(body);
        let opened = Opened::new(request.send().await.map_err(|error| fault(&error))?);
        if let Some(session) = opened.response.headers().get(SESSION) {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
        Ok(opened)
    }

    /// Asks for what the server has to say unasked.
    pub(crate) async fn listen(&self, version: &str) -> Result<Opened, Fault> {
        let head = Head { method: None, name: None, version: Some(version) };
        let request = self.client.get(self.server.url().clone()).headers(self.headers(head));
        Ok(Opened::new(request.send().await.map_err(|error| fault(&error))?))
    }

    /// Ends the session, if there is one; a server that minds may say so to nobody.
    pub(crate) async fn end(&self, version: &str) {
        if self.session().is_some() {
            let head = Head { method: None, name: None, version: Some(version) };
            let request = self.client.delete(self.server.url().clone()).headers(self.headers(head));
            let _unanswered = request.timeout(limits::LEAVE).send().await;
        }
    }

    async fn post(&self, message: &Message) -> Result<Response, Fault> {
        let head = Head { method: Some(message.method()), name: message.name(), version: message.version() };
        let mut opened = self.open(head, message.body().to_owned()).await?;
        let mut answer =
            Response { status: opened.status, body: Vec::new(), retry_after: opened.retry_after };
        let Some(id) = message.id() else { return Ok(answer) };
        while let Some(said) = opened.next(Bound::Whole).await? {
            if !opened.streamed || spoken(&said, id).is_some() {
                answer.body = said;
                return Ok(answer);
            }
        }
        if opened.streamed { Err(Fault::Lost(Loss::Broken)) } else { Ok(answer) }
    }
}

/// What stands in the headers of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'m> {
    /// The method; without one there is no message.
    pub(crate) method: Option<&'m str>,
    pub(crate) name: Option<&'m str>,
    pub(crate) version: Option<&'m str>,
}

/// What is bounded by [`limits::ANSWER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// All that comes back.
    Whole,
    /// Each message: the stream itself may go on for ever.
    Message,
}

/// An answer that has begun: a message, or a stream of them.
pub(crate) struct Opened {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    /// There may be other messages before the answer.
    pub(crate) streamed: bool,
    response: reqwest::Response,
    events: Events,
    ready: VecDeque<Vec<u8>>,
    read: usize,
    ended: bool,
}

impl Opened {
    fn new(response: reqwest::Response) -> Self {
        Self {
            status: response.status().as_u16(),
            retry_after: retry_after(response.headers()),
            streamed: of_type(response.headers(), "text/event-stream"),
            response,
            events: Events::default(),
            ready: VecDeque::new(),
            read: 0,
            ended: false,
        }
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self, bound: Bound) -> Result<Option<Vec<u8>>, Fault> {
        let mut whole = Vec::new();
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            let chunk = self.response.chunk().await.map_err(|error| fault(&error))?;
            let Some(chunk) = chunk else {
                self.ended = true;
                return Ok((!self.streamed).then_some(whole));
            };
            self.read = self.read.saturating_add(chunk.len());
            if self.streamed {
                self.ready.extend(self.events.push(&chunk));
            } else {
                whole.extend_from_slice(&chunk);
            }
            let held = if self.streamed && bound == Bound::Message { self.events.held() } else { self.read };
            if held > limits::ANSWER {
                return Err(Fault::Lost(Loss::TooLarge));
            }
        }
    }
}

/// A header's value. What a header cannot hold is written in base64, as the protocol says (SEP-2243).
fn value(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text))).ok()
}

impl Transport for Http {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        Box::pin(self.post(message))
    }

    fn forget_session(&self) -> bool {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

fn tls() -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_platform_verifier()?;
    Ok(builder.with_no_client_auth())
}

/// A token is checked to be what a header can hold.
fn bearer(token: &Token) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.secret())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Only a failure to connect is sure to have sent nothing.
fn fault(error: &reqwest::Error) -> Fault {
    if error.is_connect() || error.is_builder() {
        Fault::NotSent
    } else if error.is_timeout() {
        Fault::Lost(Loss::Late)
    } else {
        Fault::Lost(Loss::Broken)
    }
}

fn of_type(headers: &HeaderMap, essence: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(essence)
}

/// In seconds, or until a date (RFC 9110, section 10.2.3), which is held against the server's own clock: its `Date`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_ask_to_wait_in_seconds_or_until_a_date() {
        let date = "Tue, 01 Dec 2026 00:00:00 GMT";
        let cases = [
            ("7", None, Some(7)),
            ("Tue, 01 Dec 2026 00:00:30 GMT", Some(date), Some(30)),
            ("Mon, 30 Nov 2026 00:00:00 GMT", Some(date), Some(0)),
            ("Tue, 01 Dec 2026 00:00:30 GMT", None, None),
            ("soon", Some(date), None),
        ];
        for (asked, now, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(asked).unwrap());
            headers.extend(now.map(|now| (DATE, HeaderValue::from_static(now))));
            assert_eq!(retry_after(&headers), expected.map(Duration::from_secs), "{asked}");
        }
    }

    #[test]
    fn a_token_is_shown_nowhere_and_sent_over_tls_alone() {
        let token = Token::parse("alice-local-token").unwrap();
        let server = |url| ServerUrl::parse(url).unwrap();
        let http = Http::new(&server("https://example.com/mcp"), Some(&token)).unwrap();
        assert!(!format!("{http:?}").contains("alice-local"), "{http:?}");
        assert!(Http::new(&server("http://127.0.0.1:1/mcp"), Some(&token)).is_ok());
        assert!(matches!(
            Http::new(&server("http://example.com/mcp"), Some(&token)),
            Err(NoHttp::InTheClear)
        ));
        assert!(Http::new(&server("http://example.com/mcp"), None).is_ok());
    }
}
