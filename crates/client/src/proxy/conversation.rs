//! One caller and one upstream: what becomes of each message. [`Conversation::answer`] is the one place that decides
//! whether a request passes, passes once, or goes through the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::Proxy;
use super::catalogue::Catalogue;
use super::link::{Greeting, Link, Outgoing};
use super::message::{self, Incoming, NO_ANSWER, Notification, Request};
use super::outlet::{Item, Outlet, Parcel};
use super::raw::Object;
use super::relay::Shared;
use crate::limits;
use crate::transport::{Fault, Loss, Response};
use crate::words::Caller;
use counterfoil_core::wire;

/// Requests that change nothing: an answer that was lost may be asked for again.
const FREE: [&str; 17] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tools/list",
];

/// A conversation.
pub(crate) struct Conversation {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) link: Arc<Link>,
    pub(crate) listing: tokio::sync::Mutex<()>,
    catalogue: Mutex<Catalogue>,
    caller: Mutex<Option<Caller>>,
    active: Mutex<HashMap<String, Arc<Active>>>,
    room: Arc<Semaphore>,
}

/// A request that is being served.
#[derive(Default)]
pub(crate) struct Active {
    cancelled: Notify,
    /// The call as it is on its way, where giving it up is to be told to the upstream.
    pub(crate) call: Mutex<Option<Arc<Shared>>>,
    /// It goes on whatever its caller does.
    pub(crate) begun: std::sync::atomic::AtomicBool,
}

/// Where a message came from.
#[derive(Debug, Clone)]
pub(crate) struct From {
    /// Where its answer goes.
    pub(crate) reply: Outlet,
    /// What the header `Idempotency-Key` says.
    pub(crate) key: Option<String>,
    /// A caller that leaves has given up.
    pub(crate) leaving_cancels: bool,
    /// When it came, in the order of [`super::flight::Flights::tick`].
    pub(crate) came: u64,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Conversation {
    pub(crate) fn new(proxy: Arc<Proxy>, link: Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            proxy,
            link,
            listing: tokio::sync::Mutex::default(),
            catalogue: Mutex::default(),
            caller: Mutex::default(),
            active: Mutex::default(),
            room: Arc::new(Semaphore::new(limits::OPEN_REQUESTS)),
        })
    }

    /// Until every request has been answered.
    pub(crate) async fn served(&self) {
        let all = u32::try_from(limits::OPEN_REQUESTS).unwrap_or(u32::MAX);
        let _all = self.room.acquire_many(all).await;
    }

    /// Takes one message. Returns as soon as the next one may be taken.
    pub(crate) async fn receive(self: &Arc<Self>, text: String, from: From) {
        let from = From { came: self.proxy.flights.tick(), ..from };
        match Incoming::read(&text) {
            Ok(Incoming::Request(request)) => {
                let id = request.id.to_owned();
                self.begin(text.clone(), id, from).await;
            }
            Ok(Incoming::Notification(told)) => self.told(&told, &text).await,
            Ok(Incoming::Response(answered)) => {
                let generation = self.link.generation();
                if let Some(text) = self.link.to_asked(answered.id, &answered.object, &text, generation) {
                    self.link.tell(&text, None).await;
                }
            }
            Err(unfit) => {
                let error = message::error("null", unfit.code, unfit.why, None);
                from.reply.send(Item::Answer(Parcel::plain(error))).await;
            }
        }
    }

    async fn begin(self: &Arc<Self>, text: String, id: String, from: From) {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let why = format!("busy: {} requests are open", limits::OPEN_REQUESTS);
            let error = message::error(&id, NO_ANSWER, &why, None);
            from.reply.send(Item::Answer(Parcel::plain(error))).await;
            return;
        };
        let active = Arc::new(Active::default());
        locked(&self.active).insert(message::key(&id), Arc::clone(&active));
        let conversation = Arc::clone(self);
        tokio::spawn(async move {
            conversation.serve(&text, &from, &active).await;
            let mut open = locked(&conversation.active);
            let id = message::key(&id);
            if open.get(&id).is_some_and(|other| Arc::ptr_eq(other, &active)) {
                open.remove(&id);
            }
            drop(room);
        });
    }

    /// Until the answer is on its way, or nobody wants it any more.
    async fn serve(self: &Arc<Self>, text: &str, from: &From, active: &Arc<Active>) {
        let Ok(Incoming::Request(request)) = Incoming::read(text) else { return };
        let left = async {
            if from.leaving_cancels { from.reply.gone().await } else { std::future::pending().await }
        };
        tokio::select! {
            parcel = self.answer(&request, text, from, active) => from.reply.send(Item::Answer(parcel)).await,
            () = active.cancelled.notified() => self.give_up(&request, from, active).await,
            () = left => self.give_up(&request, from, active).await,
        }
    }

    /// Tells the upstream that nobody waits any more; not for an operation, which runs to its end.
    async fn give_up(self: &Arc<Self>, request: &Request<'_>, from: &From, active: &Active) {
        if active.begun.load(std::sync::atomic::Ordering::Acquire) {
            return;
        }
        let call = locked(&active.call).clone();
        let id = match call {
            Some(call) => match call.give_up() {
                Some(id) => id.to_string(),
                None => return,
            },
            None => self.link.wire_id(request.id, &from.reply),
        };
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":\"the caller gave it up\"}}}}"
        );
        self.link.tell(&text, Some("notifications/cancelled")).await;
    }

    async fn told(self: &Arc<Self>, told: &Notification<'_>, text: &str) {
        if told.method == "notifications/cancelled" {
            let params = told.object.object("params");
            let id = params.and_then(|params| params.any("requestId"));
            let active = id.and_then(|id| locked(&self.active).get(&message::key(id)).cloned());
            if let Some(active) = active {
                active.cancelled.notify_one();
            }
            return;
        }
        self.link.tell(text, Some(&told.method)).await;
    }

    async fn answer(
        self: &Arc<Self>,
        request: &Request<'_>,
        text: &str,
        from: &From,
        active: &Active,
    ) -> Parcel {
        if request.method == "tools/call" {
            return self.call(request, text, from, active).await;
        }
        let answer = if FREE.contains(&&*request.method) {
            self.freely(request, text, &from.reply).await
        } else {
            self.once(request, text, &from.reply).await
        };
        let body = match said(request.id, &answer) {
            Ok(body) => body,
            Err(error) => return Parcel::plain(error),
        };
        Parcel::plain(self.learn(request, body).await)
    }

    /// What passes by tells the proxy who it is, and which tools there are.
    async fn learn(&self, request: &Request<'_>, body: String) -> String {
        let learned = || {
            let whole = Object::read(&body)?;
            let result = whole.any("result")?;
            match &*request.method {
                "initialize" | "server/discover" => {
                    self.met(request, &Object::read(result)?);
                    None
                }
                "tools/list" => {
                    let told = &self.proxy.told;
                    let edition = self.link.edition();
                    let shown = locked(&self.catalogue).as_of(edition).learn(result, told)?;
                    Some(whole.with("result", &shown))
                }
                _ => None,
            }
        };
        learned().unwrap_or(body)
    }

    fn met(&self, request: &Request<'_>, result: &Object<'_>) {
        let told = result.object("_meta").and_then(|meta| meta.string(wire::META_CALLER));
        let told = told.and_then(|word| Caller::of_server(&word).ok());
        *locked(&self.caller) = Some(told.unwrap_or_else(|| self.proxy.identity.clone()));
        let params = request.object.any("params");
        if let ("initialize", Some(params), Some(version)) =
            (&*request.method, params, result.string("protocolVersion"))
        {
            self.link.greeted(Greeting { params: params.to_owned(), version: version.into_owned() });
        }
    }

    pub(crate) fn known_caller(&self) -> Option<Caller> {
        locked(&self.caller).clone()
    }

    pub(crate) fn set_caller(&self, caller: Caller) {
        *locked(&self.caller) = Some(caller);
    }

    pub(crate) fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        let edition = self.link.edition();
        let mut catalogue = locked(&self.catalogue);
        catalogue.as_of(edition);
        catalogue
    }

    /// Sends a request that changes nothing, again within bounds if its answer is lost.
    pub(crate) async fn freely(
        &self,
        request: &Request<'_>,
        text: &str,
        reply: &Outlet,
    ) -> Result<Response, Fault> {
        let time = &self.proxy.flights.time;
        let mut budget = self.proxy.flights.policy.start(time.elapsed());
        loop {
            let _within = budget.one_try(time.elapsed());
            let answer = self.once(request, text, reply).await;
            let (again, asked) = match &answer {
                Err(Fault::NotSent | Fault::Lost(Loss::Broken | Loss::Failed(_))) => (true, None),
                Err(Fault::Lost(Loss::Late | Loss::TooLarge | Loss::Rubbish)) => (false, None),
                Ok(answer) => (matches!(answer.status, 429 | 502..=504), answer.retry_after),
            };
            if !again {
                return answer;
            }
            match budget.pause(time.elapsed(), asked) {
                Some(pause) => time.sleep(pause).await,
                None => return answer,
            }
        }
    }

    /// Sends a request once.
    pub(crate) async fn once(
        &self,
        request: &Request<'_>,
        text: &str,
        reply: &Outlet,
    ) -> Result<Response, Fault> {
        let outgoing = Outgoing {
            text: text.to_owned(),
            id: request.id.to_owned(),
            method: request.method.to_string(),
            name: request.name(),
            version: request.version(),
            token: request.progress_token(),
        };
        tokio::select! {
            answer = self.link.ask(&outgoing, reply) => answer,
            () = self.proxy.flights.time.sleep(limits::PASS) => Err(Fault::Lost(Loss::Late)),
        }
    }
}

/// The upstream's JSON-RPC answer as it came, or what the proxy says in its place.
pub(crate) fn said(id: &str, answer: &Result<Response, Fault>) -> Result<String, String> {
    let error = |why: &str| Err(message::error(id, NO_ANSWER, why, None));
    let answer = match answer {
        Ok(answer) => answer,
        Err(Fault::NotSent) => return error("the upstream cannot be reached: nothing was sent"),
        Err(Fault::Lost(loss)) => return error(&format!("no answer of the upstream: {loss}")),
    };
    let text = std::str::from_utf8(&answer.body).unwrap_or_default();
    match Incoming::read(text) {
        Ok(Incoming::Response(answered)) if message::key(answered.id) == message::key(id) => {
            Ok(text.to_owned())
        }
        // An error that names no request: this request is the only one it can be about.
        Ok(Incoming::Response(answered)) if answered.id == "null" => Ok(answered.object.with("id", id)),
        _ if answer.status == 200 => error("the upstream's answer could not be understood"),
        _ => error(&format!("the upstream answered HTTP {}", answer.status)),
    }
}
