//! An upstream over Streamable HTTP: every message is a request of its own; what comes on its stream before the answer
//! belongs to the same caller.

use std::sync::{Arc, PoisonError, Weak};

use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use super::link::{Greeting, Link, Outgoing, Wire};
use super::message::{self, Incoming};
use super::outlet::Outlet;
use crate::http::{Bound, Head, Http, Opened};
use crate::limits;
use crate::transport::{Fault, Loss, Response};

/// A server over HTTP.
pub(crate) struct Web {
    http: Http,
    /// One of several callers greets anew, the others wait for it.
    greeting: Mutex<()>,
    listener: std::sync::Mutex<Option<AbortHandle>>,
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web").field("http", &self.http).finish_non_exhaustive()
    }
}

impl Web {
    pub(crate) fn new(http: Http) -> Self {
        Self { http, greeting: Mutex::default(), listener: std::sync::Mutex::default() }
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<AbortHandle>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn end(&self, greeting: Option<&Greeting>) {
        if let Some(listener) = self.listener().take() {
            listener.abort();
        }
        if let Some(greeting) = greeting {
            self.http.end(&greeting.version).await;
        }
    }
}

impl Link {
    pub(crate) async fn ask_web(
        self: &Arc<Self>,
        web: &Web,
        message: &Outgoing,
        reply: &Outlet,
    ) -> Result<Response, Fault> {
        let mut opened = self.open(web, message).await?;
        let (status, retry_after) = (opened.status, opened.retry_after);
        let response = |body| Response { status, body, retry_after };
        while let Some(said) = opened.next(Bound::Message).await? {
            if !opened.streamed || answers(&said, &message.id) {
                return Ok(response(said));
            }
            let fits = match std::str::from_utf8(&said) {
                Ok(text) => self.arrived(text, 0, Some(reply)).await,
                Err(_) => false,
            };
            if !fits {
                tracing::warn!("the upstream sent an event that is no message");
            }
        }
        if opened.streamed { Err(Fault::Lost(Loss::Broken)) } else { Ok(response(Vec::new())) }
    }

    /// A session that the server has forgotten is opened anew, once: it did not look at the message.
    async fn open(self: &Arc<Self>, web: &Web, message: &Outgoing) -> Result<Opened, Fault> {
        let session = web.http.session();
        let opened = web.http.open(self.head(message).as_head(), message.text.clone()).await?;
        let Some(session) = session.filter(|_| opened.status == 404 && message.method != "initialize") else {
            return Ok(opened);
        };
        let Some(greeting) = self.greeting() else { return Ok(opened) };
        let first = web.greeting.lock().await;
        if web.http.session().as_ref() == Some(&session) {
            web.http.forget(&session);
            self.greet_web(web, &greeting).await?;
            self.outdated();
        }
        drop(first);
        web.http.open(self.head(message).as_head(), message.text.clone()).await
    }

    async fn greet_web(self: &Arc<Self>, web: &Web, greeting: &Greeting) -> Result<(), Fault> {
        let id = self.next_id();
        let hello = message::request(id, "initialize", &greeting.params);
        let head = Head { method: Some("initialize"), name: None, version: None };
        let greeted = async {
            let mut opened = web.http.open(head, hello).await?;
            while let Some(said) = opened.next(Bound::Whole).await? {
                if answers(&said, &id.to_string()) {
                    return Ok(());
                }
            }
            Err(Fault::NotSent)
        };
        tokio::select! {
            // The message that this is for has not left.
            greeted = greeted => greeted.map_err(|_: Fault| Fault::NotSent)?,
            () = self.time.sleep(limits::GREETING) => return Err(Fault::NotSent),
        }
        let initialized = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
        self.tell_web(web, initialized, Some("notifications/initialized")).await
    }

    pub(crate) async fn tell_web(
        self: &Arc<Self>,
        web: &Web,
        text: &str,
        method: Option<&str>,
    ) -> Result<(), Fault> {
        let version = self.greeting().map(|greeting| greeting.version);
        // An answer to a request of the server has no method to name.
        let head = Head { method: Some(method.unwrap_or("")), name: None, version: version.as_deref() };
        web.http.open(head, text.to_owned()).await?;
        if method == Some("notifications/initialized") {
            let mut listener = web.listener();
            if listener.is_none() {
                *listener = Some(tokio::spawn(listen(Arc::downgrade(self))).abort_handle());
            }
        }
        Ok(())
    }

    fn head(&self, message: &Outgoing) -> Heading {
        let agreed = self.greeting().map(|greeting| greeting.version);
        let version = message.version.clone().or(agreed).filter(|_| message.method != "initialize");
        Heading { method: message.method.clone(), name: message.name.clone(), version }
    }
}

/// What owns a [`Head`].
struct Heading {
    method: String,
    name: Option<String>,
    version: Option<String>,
}

impl Heading {
    fn as_head(&self) -> Head<'_> {
        Head { method: Some(&self.method), name: self.name.as_deref(), version: self.version.as_deref() }
    }
}

fn answers(said: &[u8], id: &str) -> bool {
    let text = std::str::from_utf8(said).unwrap_or_default();
    matches!(Incoming::read(text), Ok(Incoming::Response(answered)) if message::key(answered.id) == message::key(id))
}

/// What a server of an older revision says unasked, for as long as the conversation lasts.
async fn listen(conversation: Weak<Link>) {
    let mut failures = 0_u32;
    while failures < limits::STARTS {
        let Some(opened) = ask_to_listen(&conversation).await else { return };
        match opened {
            Ok(opened) if opened.status == 200 && opened.streamed => {
                failures = 0;
                hear(&conversation, opened).await;
            }
            // It has nothing to say, and says so.
            Ok(opened) if opened.status == 405 => return,
            Ok(_) | Err(_) => failures += 1,
        }
        let Some(link) = conversation.upgrade() else { return };
        let time = Arc::clone(&link.time);
        drop(link);
        time.sleep(limits::FIRST_PAUSE * 2_u32.saturating_pow(failures)).await;
    }
}

async fn ask_to_listen(conversation: &Weak<Link>) -> Option<Result<Opened, Fault>> {
    let link = conversation.upgrade()?;
    match (&link.wire, link.greeting()) {
        (Wire::Web(web), Some(greeting)) => Some(web.http.listen(&greeting.version).await),
        (Wire::Web(_) | Wire::Child(_), _) => None,
    }
}

async fn hear(conversation: &Weak<Link>, mut opened: Opened) {
    while let Ok(Some(said)) = opened.next(Bound::Message).await {
        let Some(link) = conversation.upgrade() else { return };
        if let Ok(text) = std::str::from_utf8(&said) {
            link.arrived(text, 0, None).await;
        }
    }
}
