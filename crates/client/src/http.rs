//! MCP over Streamable HTTP: the one file that knows the HTTP library.
//!
//! Redirects are not followed (a token is for the server it was given for), answers are bounded in size, and the
//! token stands in a header that is marked as a secret.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
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

    fn headers(&self, message: &Message) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, BOTH);
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("counterfoil/", env!("CARGO_PKG_VERSION"))));
        let text = |text: &str| HeaderValue::from_str(text).ok();
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let optional = [
            (AUTHORIZATION, self.authorization.clone()),
            (VERSION, message.version().and_then(text)),
            (METHOD, text(message.method())),
            (NAME, message.name().and_then(text)),
            (SESSION, session),
        ];
        headers.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        headers
    }

    async fn post(&self, message: &Message) -> Result<Response, Fault> {
        let request = self.client.post(self.server.url().clone());
        let request = request.headers(self.headers(message)).body(message.body().to_owned());
        let response = request.send().await.map_err(|error| fault(&error))?;
        if let Some(session) = response.headers().get(SESSION) {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let streamed = of_type(response.headers(), "text/event-stream");
        let body = match message.id() {
            Some(id) if streamed => event(response, id).await?,
            Some(_) => whole(response).await?,
            None => Vec::new(),
        };
        Ok(Response { status, body, retry_after })
    }
}

impl Transport for Http {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        Box::pin(self.post(message))
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

/// In seconds. The form with a date is not worth a second clock: our own pause serves.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

async fn whole(mut response: reqwest::Response) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
        if chunk.len() > limits::ANSWER - body.len() {
            return Err(Fault::Lost(Loss::TooLarge));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The event that answers message `id`; notifications before it are passed over.
async fn event(mut response: reqwest::Response, id: u64) -> Result<Vec<u8>, Fault> {
    let (mut events, mut read) = (Events::default(), 0_usize);
    while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
        read = read.saturating_add(chunk.len());
        if read > limits::ANSWER {
            return Err(Fault::Lost(Loss::TooLarge));
        }
        if let Some(answer) = events.push(&chunk).into_iter().find(|data| spoken(data, id).is_some()) {
            return Ok(answer);
        }
    }
    Err(Fault::Lost(Loss::Broken))
}

#[cfg(test)]
mod tests {
    use super::*;

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
