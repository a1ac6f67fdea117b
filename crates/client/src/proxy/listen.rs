//! Callers over Streamable HTTP, on loopback alone. A caller of an older revision has a session, and with it a
//! conversation of its own; those of the generation without sessions share one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, IntoFuture as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use counterfoil_core::wire;
use futures_util::stream::unfold;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{OnceCell, watch};
use uuid::Uuid;

use super::Proxy;
use super::conversation::{Conversation, From};
use super::lines::one_line;
use super::message::{self, INVALID, Incoming};
use super::outlet::{Item, Outlet, Parcel, Receipt};
use crate::limits;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Everybody who calls over HTTP.
struct Hall {
    proxy: Arc<Proxy>,
    /// Of callers without sessions.
    common: OnceCell<Arc<Conversation>>,
    sessions: Mutex<Sessions>,
    closing: watch::Receiver<bool>,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<String, Session>,
    uses: u64,
}

#[derive(Clone)]
struct Session {
    conversation: Arc<Conversation>,
    /// What the upstream says to nobody in particular.
    unasked: Arc<tokio::sync::Mutex<Receiver<Item>>>,
    used: u64,
}

/// An answer that is not MCP's.
type Refused = (StatusCode, &'static str);

impl Proxy {
    /// Serves callers over HTTP until `shutdown`, then ends their conversations.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve_http(
        self: &Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let (close, closing) = watch::channel(false);
        let hall = Arc::new(Hall {
            proxy: Arc::clone(self),
            common: OnceCell::new(),
            sessions: Mutex::default(),
            closing,
        });
        let router = Router::new().fallback(any(enter)).with_state(Arc::clone(&hall));
        let closed = async move {
            shutdown.await;
            close.send_replace(true);
        };
        let (mut late, within) = (hall.closing.clone(), self.flights.policy.within);
        let late = async {
            let _closing = late.wait_for(|closing| *closing).await.map(drop);
            self.flights.time.sleep(within).await;
        };
        tokio::select! {
            served = axum::serve(listener, router).with_graceful_shutdown(closed).into_future() => served?,
            // Somebody still waits for an answer; what was begun is waited for below.
            () = late => {}
        }
        self.flights.drain(within).await;
        let all: Vec<Session> = hall.sessions().by_id.drain().map(|(_, session)| session).collect();
        for session in all {
            session.conversation.link.end().await;
        }
        if let Some(common) = hall.common.get() {
            common.link.end().await;
        }
        Ok(())
    }
}

async fn enter(State(hall): State<Arc<Hall>>, request: HttpRequest) -> Response {
    let answer = match (request.method().clone(), door(&request)) {
        (_, Err(refused)) => Err(refused),
        (Method::POST, Ok(())) => hall.post(request).await,
        (Method::GET, Ok(())) => hall.get(request.headers()),
        (Method::DELETE, Ok(())) => hall.delete(request.headers()).await,
        (_, Ok(())) => Err((StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE")),
    };
    answer.unwrap_or_else(|(status, why)| {
        let error = message::error("null", INVALID, why, None);
        answered(status, "application/json", Body::from(error))
    })
}

/// A page of another site must not reach what listens here, whatever name it found for it.
fn door(request: &HttpRequest) -> Result<(), Refused> {
    let text = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let local = |host: &str| {
        let authority = host.parse::<Authority>().ok();
        authority.is_some_and(|named| LOOPBACK.contains(&named.host().trim_matches(['[', ']'])))
    };
    if !text(HOST).is_some_and(local) {
        return Err((StatusCode::FORBIDDEN, "the Host is not this machine"));
    }
    let origin =
        |origin: &str| origin.parse::<Uri>().ok().and_then(|uri| uri.host().map(local)).unwrap_or_default();
    if !text(ORIGIN).is_none_or(origin) {
        return Err((StatusCode::FORBIDDEN, "the Origin is another site"));
    }
    Ok(())
}

impl Hall {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn post(self: &Arc<Self>, request: HttpRequest) -> Result<Response, Refused> {
        let (head, body) = request.into_parts();
        let json = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !json.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json"));
        }
        let too_large = |_| (StatusCode::PAYLOAD_TOO_LARGE, "the message is too large, or did not arrive");
        let body = to_bytes(body, limits::FRAME).await.map_err(too_large)?;
        let text =
            String::from_utf8(body.into()).map_err(|_| (StatusCode::BAD_REQUEST, "this is not UTF-8"))?;
        let (wants_answer, begins, modern) = match Incoming::read(&text) {
            Ok(Incoming::Request(request)) => {
                (true, request.method == "initialize", request.version().is_some())
            }
            Ok(Incoming::Notification(_) | Incoming::Response(_)) => (false, false, false),
            Err(unfit) => return Err((StatusCode::BAD_REQUEST, unfit.why)),
        };
        let (id, conversation) = self.conversation(&head.headers, begins, modern).await?;
        let (to, items) = mpsc::channel(limits::UNREAD);
        let key = head.headers.get(wire::HEADER).map(|key| key.to_str().unwrap_or_default().to_owned());
        let reply = Outlet::new(to);
        conversation.receive(text, From { reply, key, leaving_cancels: modern, came: 0 }).await;
        if !wants_answer {
            return Ok(answered(StatusCode::ACCEPTED, "application/json", Body::empty()));
        }
        let mut response = respond(items, streams(&head.headers)).await;
        if let Some(id) = id.filter(|_| begins).and_then(|id| HeaderValue::from_str(&id).ok()) {
            response.headers_mut().insert(SESSION, id);
        }
        Ok(response)
    }

    /// Whose message it is.
    async fn conversation(
        &self,
        headers: &HeaderMap,
        begins: bool,
        modern: bool,
    ) -> Result<(Option<String>, Arc<Conversation>), Refused> {
        if begins {
            let (id, conversation, left) = self.begin();
            if let Some(left) = left {
                left.conversation.link.end().await;
            }
            return Ok((Some(id), conversation));
        }
        if headers.contains_key(SESSION) {
            return self.known(headers).map(|session| (None, session.conversation));
        }
        if !modern {
            return Err((StatusCode::BAD_REQUEST, "no session: begin with initialize"));
        }
        let begun = async {
            // What an upstream says to nobody in particular has nobody to go to here.
            let link = self.proxy.link(Outlet::nowhere(), true);
            Conversation::new(Arc::clone(&self.proxy), link)
        };
        Ok((None, Arc::clone(self.common.get_or_init(|| begun).await)))
    }

    /// A new conversation; the one that was used least recently makes room for it.
    fn begin(&self) -> (String, Arc<Conversation>, Option<Session>) {
        let (to, unasked) = mpsc::channel(limits::UNREAD);
        let link = self.proxy.link(Outlet::lossy(to), false);
        let conversation = Conversation::new(Arc::clone(&self.proxy), link);
        let id = Uuid::new_v4().to_string();
        let mut sessions = self.sessions();
        let full = sessions.by_id.len() >= limits::CONVERSATIONS;
        let oldest = sessions.by_id.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
        let left = oldest.filter(|_| full).and_then(|oldest| sessions.by_id.remove(&oldest));
        sessions.uses += 1;
        let (used, unasked) = (sessions.uses, Arc::new(tokio::sync::Mutex::new(unasked)));
        let session = Session { conversation: Arc::clone(&conversation), unasked, used };
        sessions.by_id.insert(id.clone(), session);
        (id, conversation, left)
    }

    fn known(&self, headers: &HeaderMap) -> Result<Session, Refused> {
        let id = headers.get(SESSION).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let mut sessions = self.sessions();
        sessions.uses += 1;
        let uses = sessions.uses;
        let session = sessions.by_id.get_mut(id).ok_or((StatusCode::NOT_FOUND, "no such session"))?;
        session.used = uses;
        Ok(session.clone())
    }

    /// What the upstream says unasked.
    fn get(&self, headers: &HeaderMap) -> Result<Response, Refused> {
        let session = self.known(headers)?;
        let taken = session.unasked.try_lock_owned();
        let unasked = taken.map_err(|_| (StatusCode::CONFLICT, "somebody listens already"))?;
        let stream = unfold((unasked, self.closing.clone()), |(mut unasked, mut closing)| async move {
            let item = tokio::select! {
                item = unasked.recv() => item?,
                _closed = closing.wait_for(|closing| *closing) => return None,
            };
            Some((Ok::<_, Infallible>(event(item).0), (unasked, closing)))
        });
        Ok(answered(StatusCode::OK, "text/event-stream", Body::from_stream(stream)))
    }

    async fn delete(&self, headers: &HeaderMap) -> Result<Response, Refused> {
        let session = self.known(headers)?;
        let id = headers.get(SESSION).and_then(|id| id.to_str().ok()).unwrap_or_default();
        self.sessions().by_id.remove(id);
        session.conversation.link.end().await;
        Ok(answered(StatusCode::OK, "application/json", Body::empty()))
    }
}

fn streams(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

/// One JSON answer if it is the first to come, else a stream that ends with it.
async fn respond(mut items: Receiver<Item>, streams: bool) -> Response {
    let first = loop {
        match items.recv().await {
            // Who takes no stream is told the answer only.
            Some(Item::Note(_)) if !streams => {}
            Some(item) => break item,
            None => return answered(StatusCode::OK, "application/json", Body::empty()),
        }
    };
    match first {
        Item::Answer(parcel) => answered(StatusCode::OK, "application/json", whole(parcel)),
        note @ Item::Note(_) => answered(StatusCode::OK, "text/event-stream", stream(note, items)),
    }
}

/// The answer counts as delivered when the connection asks for what comes after it.
fn whole(parcel: Parcel) -> Body {
    let Parcel { text, receipt } = parcel;
    Body::from_stream(unfold((Some(text), receipt), |(text, receipt)| async move {
        if let Some(text) = text {
            receipt.iter().for_each(Receipt::leaves);
            return Some((Ok::<_, Infallible>(Bytes::from(text)), (None, receipt)));
        }
        if let Some(receipt) = receipt {
            receipt.delivered().await;
        }
        None
    }))
}

enum Rest {
    First(Item, Receiver<Item>),
    More(Receiver<Item>),
    Last(Option<Receipt>),
}

fn stream(first: Item, items: Receiver<Item>) -> Body {
    Body::from_stream(unfold(Rest::First(first, items), |rest| async move {
        let (item, items) = match rest {
            Rest::First(item, items) => (item, items),
            Rest::More(mut items) => (items.recv().await?, items),
            Rest::Last(Some(receipt)) => {
                receipt.delivered().await;
                return None;
            }
            Rest::Last(None) => return None,
        };
        let (bytes, ended) = event(item);
        let rest = match ended {
            Some(receipt) => {
                receipt.iter().for_each(Receipt::leaves);
                Rest::Last(receipt)
            }
            None => Rest::More(items),
        };
        Some((Ok::<_, Infallible>(bytes), rest))
    }))
}

/// One server-sent event; of an answer also what is to be written once it has left.
#[expect(clippy::option_option, reason = "a note has no answer's end, and an answer may have no receipt")]
fn event(item: Item) -> (Bytes, Option<Option<Receipt>>) {
    let (text, ended) = match item {
        Item::Note(text) => (text, None),
        Item::Answer(parcel) => (parcel.text, Some(parcel.receipt)),
    };
    (Bytes::from(format!("event: message\ndata: {}\n\n", one_line(&text))), ended)
}

fn answered(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
