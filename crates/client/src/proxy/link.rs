//! One upstream, as one conversation sees it: a message goes there, its answer comes back, and whatever else comes is
//! sent on to the caller it belongs to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::child::Child;
use super::message::{self, Incoming, META_SUBSCRIPTION, Notification, Request};
use super::outlet::{Item, Outlet};
use super::raw::Object;
use super::web::Web;
use crate::limits;
use crate::time::Time;
use crate::transport::{Fault, Loss, Response};

/// Ids of our own begin here: far from those that clients count from 0, and exact in a double.
const OWN_IDS: u64 = 1 << 52;

/// The way to an upstream.
#[derive(Debug)]
pub(crate) enum Wire {
    /// A command.
    Child(Child),
    /// A server over HTTP.
    Web(Web),
}

/// A message that is to go there.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) text: String,
    /// As it is spelled.
    pub(crate) id: String,
    pub(crate) method: String,
    /// What the header `Mcp-Name` says.
    pub(crate) name: Option<String>,
    /// The revision that the message itself says it speaks.
    pub(crate) version: Option<String>,
    /// The progress token, as it is spelled.
    pub(crate) token: Option<String>,
}

/// What was said when the conversation began, to be said again to an upstream that has forgotten.
#[derive(Debug, Clone)]
pub(crate) struct Greeting {
    /// The params of the caller's `initialize`.
    pub(crate) params: String,
    /// The revision that was agreed on.
    pub(crate) version: String,
}

/// One conversation's way to its upstream.
pub(crate) struct Link {
    pub(crate) wire: Wire,
    pub(crate) time: Arc<dyn Time>,
    /// Several callers share it, and may use the same ids.
    shared: bool,
    ids: Arc<AtomicU64>,
    waiting: Mutex<HashMap<String, Waiting>>,
    asked: Mutex<HashMap<String, AskedBack>>,
    greeting: Mutex<Option<Greeting>>,
    outlet: Outlet,
    /// Counts what makes a listing of tools old.
    editions: AtomicU64,
}

/// A request that waits for its answer.
struct Waiting {
    answer: oneshot::Sender<Result<Response, Fault>>,
    reply: Outlet,
    /// As the upstream sees it, and as the caller does.
    token: Option<(String, String)>,
    /// As the caller spelled it.
    id: String,
    generation: u64,
}

/// A request of the upstream that a caller has been given.
struct AskedBack {
    /// As the upstream spelled it.
    id: String,
    generation: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(crate) fn new(wire: Wire, time: Arc<dyn Time>, outlet: Outlet, shared: bool) -> Arc<Self> {
        Arc::new(Self {
            wire,
            time,
            shared,
            ids: Arc::new(AtomicU64::new(OWN_IDS)),
            waiting: Mutex::default(),
            asked: Mutex::default(),
            greeting: Mutex::default(),
            outlet,
            editions: AtomicU64::new(0),
        })
    }

    /// An id of our own.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn ids(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.ids)
    }

    pub(crate) fn greeting(&self) -> Option<Greeting> {
        locked(&self.greeting).clone()
    }

    pub(crate) fn greeted(&self, greeting: Greeting) {
        *locked(&self.greeting) = Some(greeting);
    }

    /// How often the listing of tools has become old.
    pub(crate) fn edition(&self) -> u64 {
        self.editions.load(Ordering::Acquire)
    }

    /// What was known of the tools may not hold any more.
    pub(crate) fn outdated(&self) {
        self.editions.fetch_add(1, Ordering::Release);
    }

    /// Sends a request and waits for its answer, which has the caller's id again.
    pub(crate) async fn ask(self: &Arc<Self>, message: &Outgoing, reply: &Outlet) -> Result<Response, Fault> {
        match &self.wire {
            Wire::Child(child) => self.ask_child(child, message, reply).await,
            Wire::Web(web) => self.ask_web(web, message, reply).await,
        }
    }

    /// Sends what has no answer: a notification, or an answer.
    pub(crate) async fn tell(self: &Arc<Self>, text: &str, method: Option<&str>) {
        let _lost = match &self.wire {
            Wire::Child(child) => self.to_child(child, text, |_| ()).await.map(drop),
            Wire::Web(web) => self.tell_web(web, text, method).await,
        };
    }

    async fn ask_child(
        self: &Arc<Self>,
        child: &Child,
        message: &Outgoing,
        reply: &Outlet,
    ) -> Result<Response, Fault> {
        let number = if self.shared { Some(self.next_id().to_string()) } else { None };
        let text = number.as_deref().map(|number| renumbered(message, number));
        let wire_id = message::key(number.as_deref().unwrap_or(&message.id));
        if locked(&self.waiting).contains_key(&wire_id) {
            let twice = message::error(&message.id, message::INVALID, "a request with this id is open", None);
            return Ok(Response { status: 200, body: twice.into(), retry_after: None });
        }
        let (answer, answered) = oneshot::channel();
        let token = message.token.clone().map(|token| (number.unwrap_or_else(|| token.clone()), token));
        let waiting = Waiting { answer, reply: reply.clone(), token, id: message.id.clone(), generation: 0 };
        let register = |generation| {
            locked(&self.waiting).insert(wire_id.clone(), Waiting { generation, ..waiting });
        };
        let guard = Forget { link: self, id: &wire_id };
        self.to_child(child, text.as_deref().unwrap_or(&message.text), register).await?;
        let answer = answered.await.unwrap_or(Err(Fault::Lost(Loss::Broken)));
        drop(guard);
        answer
    }

    /// Waits for an answer to a message of our own.
    pub(crate) fn expect(&self, id: &str, generation: u64) -> oneshot::Receiver<Result<Response, Fault>> {
        let (answer, answered) = oneshot::channel();
        let reply = Outlet::nowhere();
        let waiting = Waiting { answer, reply, token: None, id: id.to_owned(), generation };
        locked(&self.waiting).insert(id.to_owned(), waiting);
        answered
    }

    /// The id by which the upstream knows a caller's request.
    pub(crate) fn wire_id(&self, id: &str, reply: &Outlet) -> String {
        if !self.shared {
            return id.to_owned();
        }
        let waiting = locked(&self.waiting);
        let mine = |waiting: &Waiting| waiting.id == id && waiting.reply.same(reply);
        waiting.iter().find(|(_, entry)| mine(entry)).map_or_else(|| id.to_owned(), |(id, _)| id.clone())
    }

    /// The upstream of `generation` is gone: what it has not answered it will not answer.
    pub(crate) fn fell(&self, generation: u64, loss: Loss) {
        let mut waiting = locked(&self.waiting);
        let gone: Vec<String> = waiting
            .iter()
            .filter(|(_, entry)| entry.generation == generation)
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            if let Some(entry) = waiting.remove(&id) {
                let _gone = entry.answer.send(Err(Fault::Lost(loss)));
            }
        }
        drop(waiting);
        self.outdated();
    }

    /// A message came: whether it is one. `reply` is whose stream it came on, where that is known.
    pub(crate) async fn arrived(&self, text: &str, generation: u64, reply: Option<&Outlet>) -> bool {
        match Incoming::read(text) {
            Ok(Incoming::Response(answered)) => self.answered(answered.id, &answered.object, text),
            Ok(Incoming::Notification(told)) => self.noted(&told, text, reply).await,
            Ok(Incoming::Request(asked)) => self.asked_back(&asked, text, generation, reply).await,
            Err(_) => return false,
        }
        true
    }

    fn answered(&self, id: &str, object: &Object<'_>, text: &str) {
        // Nobody waits for it any more, or ever did.
        let Some(entry) = locked(&self.waiting).remove(&message::key(id)) else { return };
        let body = if message::key(&entry.id) == message::key(id) {
            text.to_owned()
        } else {
            object.with("id", &entry.id)
        };
        let _gone = entry.answer.send(Ok(Response { status: 200, body: body.into(), retry_after: None }));
    }

    async fn noted(&self, told: &Notification<'_>, text: &str, reply: Option<&Outlet>) {
        if told.method == "notifications/tools/list_changed" {
            self.outdated();
        }
        let found = self.belongs(told);
        let text = found.as_ref().and_then(|(_, text)| text.clone()).unwrap_or_else(|| text.to_owned());
        let outlet = found.as_ref().map(|(outlet, _)| outlet).or(reply).unwrap_or(&self.outlet);
        outlet.send(Item::Note(text)).await;
    }

    /// The request that a notification names, by its token or by its id; and the text with the caller's own words in
    /// their place, where they differ.
    fn belongs(&self, told: &Notification<'_>) -> Option<(Outlet, Option<String>)> {
        let params = told.object.object("params")?;
        let waiting = locked(&self.waiting);
        if let Some(token) = params.any("progressToken") {
            let mine = |entry: &&Waiting| entry.token.as_ref().is_some_and(|(wire, _)| wire == token);
            let entry = waiting.values().find(mine)?;
            let (wire, own) = entry.token.as_ref()?;
            let text = (wire != own).then(|| told.object.with("params", &params.with("progressToken", own)));
            return Some((entry.reply.clone(), text));
        }
        let meta = params.object("_meta")?;
        let entry = waiting.get(&message::key(meta.any(META_SUBSCRIPTION)?))?;
        let own = params.with("_meta", &meta.with(META_SUBSCRIPTION, &entry.id));
        let text = self.shared.then(|| told.object.with("params", &own));
        Some((entry.reply.clone(), text))
    }

    /// A request of the upstream goes on to a caller, under an id that no other one of them has.
    async fn asked_back(&self, asked: &Request<'_>, text: &str, generation: u64, reply: Option<&Outlet>) {
        let id = {
            let mut open = locked(&self.asked);
            if open.len() >= limits::OPEN_REQUESTS {
                open.retain(|_, entry| entry.generation == generation);
            }
            if open.len() >= limits::OPEN_REQUESTS {
                return;
            }
            let id = match open.contains_key(&message::key(asked.id)) {
                true => format!("\"counterfoil-{}\"", self.next_id()),
                false => asked.id.to_owned(),
            };
            open.insert(message::key(&id), AskedBack { id: asked.id.to_owned(), generation });
            id
        };
        let text = if id == asked.id { text.to_owned() } else { asked.object.with("id", &id) };
        reply.unwrap_or(&self.outlet).send(Item::Note(text)).await;
    }

    /// A caller's answer to a request of the upstream, as the upstream is to see it; `None` if it is too late.
    pub(crate) fn to_asked(
        &self,
        id: &str,
        object: &Object<'_>,
        text: &str,
        generation: u64,
    ) -> Option<String> {
        let asked =
            locked(&self.asked).remove(&message::key(id)).filter(|asked| asked.generation == generation)?;
        Some(if message::key(&asked.id) == message::key(id) {
            text.to_owned()
        } else {
            object.with("id", &asked.id)
        })
    }

    /// The upstream's present life; an answer to an earlier one is for nobody.
    pub(crate) fn generation(&self) -> u64 {
        match &self.wire {
            Wire::Child(child) => child.generation(),
            Wire::Web(_) => 0,
        }
    }

    /// Ends the conversation with the upstream.
    pub(crate) async fn end(&self) {
        match &self.wire {
            Wire::Child(child) => child.end(&*self.time).await,
            Wire::Web(web) => web.end(self.greeting().as_ref()).await,
        }
    }
}

/// A request that is given up is not waited for.
struct Forget<'l> {
    link: &'l Link,
    id: &'l str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        locked(&self.link.waiting).remove(self.id);
    }
}

/// The message under another id, its progress token too.
fn renumbered(message: &Outgoing, number: &str) -> String {
    let numbered = || {
        let whole = Object::read(&message.text)?;
        let Some(_) = &message.token else { return Some(whole.with("id", number)) };
        let params = whole.object("params")?;
        let meta = params.object("_meta")?.with("progressToken", number);
        let params = params.with("_meta", &meta);
        let whole = whole.with("params", &params);
        Some(Object::read(&whole)?.with("id", number))
    };
    numbered().unwrap_or_else(|| message.text.clone())
}
