//! `tools/call`: by what is known of the tool it passes freely, goes through the journal to be done once, or goes
//! through the journal to be sent once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use counterfoil_core::{Refusal, wire};

use super::answers::{self, Asked, tell};
use super::call::{Call, NotTaken};
use super::catalogue::{Class, Keyed};
use super::conversation::{Active, Conversation, From, locked, said};
use super::message::{self, Incoming, NO_ANSWER, Request};
use super::outlet::{Outlet, Parcel, Receipt};
use super::raw::Object;
use super::relay::{Relay, Shared};
use crate::client::new_id;
use crate::journal::{JournalError, Problem, Wanted};
use crate::limits;
use crate::operation::{Operation, Sending};
use crate::words::Caller;

/// Members of `_meta` that say who speaks, and how: our own questions have them too.
const PROTOCOL: &str = "io.modelcontextprotocol/";

impl Conversation {
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: &Request<'_>,
        text: &str,
        from: &From,
        active: &Active,
    ) -> Parcel {
        let class = match self.class(request).await {
            Ok(class) => class,
            Err(error) => return Parcel::plain(error),
        };
        let keyed = match &class {
            Class::Free => {
                let answer = self.freely(request, text, &from.reply).await;
                return Parcel::plain(said(request.id, &answer).unwrap_or_else(|error| error));
            }
            Class::Once => None,
            Class::Keyed(keyed) => Some(keyed),
        };
        match Call::read(request, keyed, from.key.as_deref()) {
            Ok(call) => self.operation(request, call, keyed, (from, active)).await,
            Err(NotTaken::Id(why)) => {
                Parcel::plain(answers::refused(request.id, &Refusal::invalid_request_id(why)))
            }
            // Whoever knows the tool may judge it; sent once, because nothing of it is kept.
            Err(NotTaken::Params(_) | NotTaken::Unkept(_)) => {
                let answer = self.once(request, text, &from.reply).await;
                Parcel::plain(said(request.id, &answer).unwrap_or_else(|_| answers::lost(request.id)))
            }
        }
    }

    /// How the tool is called, by the server's word; asked for if it is not known.
    async fn class(self: &Arc<Self>, request: &Request<'_>) -> Result<Class, String> {
        let params = request.object.object("params");
        let tool = params.as_ref().and_then(|params| params.string("name")).unwrap_or_default();
        if let Some(class) = self.known_class(&tool) {
            return Ok(class);
        }
        let _one_at_a_time = self.listing.lock().await;
        if let Some(class) = self.known_class(&tool) {
            return Ok(class);
        }
        self.list(request).await?;
        Ok(self.known_class(&tool).unwrap_or(Class::Once))
    }

    fn known_class(&self, tool: &str) -> Option<Class> {
        let catalogue = self.catalogue();
        let class = catalogue.class(tool)?;
        // A server that takes request ids has these two, and both may be asked as often as needed.
        let built_in = matches!(tool, wire::OPERATION_STATUS | wire::VOID_OPERATION);
        Some(if built_in && catalogue.takes_request_ids() { Class::Free } else { class })
    }

    /// Asks for all pages of the listing.
    async fn list(self: &Arc<Self>, request: &Request<'_>) -> Result<(), String> {
        let mut cursor: Option<String> = None;
        for _page in 0..limits::PAGES {
            let mut params = self.own_params(request);
            if let Some(cursor) = &cursor {
                params = Object::read(&params).map_or(params.clone(), |params| params.with("cursor", cursor));
            }
            let page = self.ask_of_own("tools/list", &params).await.map_err(|why| {
                let why = format!("nothing was sent: the tools could not be listed: {why}");
                message::error(request.id, NO_ANSWER, &why, None)
            })?;
            let mut catalogue = self.catalogue();
            let _shown = catalogue.learn(&page, &self.proxy.told);
            let next = Object::read(&page).and_then(|page| page.any("nextCursor").map(ToOwned::to_owned));
            match next.filter(|next| next != "null") {
                Some(next) => cursor = Some(next),
                None => {
                    catalogue.complete = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Params of a question of our own, in the words of the caller's revision.
    fn own_params(&self, request: &Request<'_>) -> String {
        let meta = request.meta().map(|meta| meta.members(|name| name.starts_with(PROTOCOL)));
        match meta.filter(|meta| !meta.is_empty()) {
            Some(meta) => format!("{{\"_meta\":{{{meta}}}}}"),
            None => "{}".into(),
        }
    }

    /// Asks something that the caller did not: the result, or why there is none.
    async fn ask_of_own(&self, method: &str, params: &str) -> Result<String, String> {
        let text = message::request(self.link.next_id(), method, params);
        let Ok(Incoming::Request(question)) = Incoming::read(&text) else { return Err("no question".into()) };
        let answer = self.freely(&question, &text, &Outlet::nowhere()).await;
        let said = said(question.id, &answer).unwrap_or_else(|error| error);
        let whole = Object::read(&said);
        let of = |name: &str| whole.as_ref().and_then(|whole| whole.any(name));
        match (of("result"), of("error").and_then(Object::read)) {
            (Some(result), _) => Ok(result.to_owned()),
            (None, error) => {
                let words = error.as_ref().and_then(|error| error.string("message"));
                Err(words.map_or_else(|| "it failed".to_owned(), |words| crate::answer::shown(&words).into()))
            }
        }
    }

    /// Who we are to the server: it says so where the conversation begins; where none did it is asked.
    async fn who(self: &Arc<Self>, request: &Request<'_>) -> Caller {
        if let Some(caller) = self.known_caller() {
            return caller;
        }
        let told = self.ask_of_own("server/discover", &self.own_params(request)).await.ok();
        let word = told.as_deref().and_then(Object::read).and_then(|told| told.object("_meta"));
        let word = word.and_then(|meta| meta.string(wire::META_CALLER));
        let caller = word.and_then(|word| Caller::of_server(&word).ok());
        let caller = caller.unwrap_or_else(|| self.proxy.identity.clone());
        self.set_caller(caller.clone());
        caller
    }

    /// One operation: found or begun, waited for, told.
    async fn operation(
        self: &Arc<Self>,
        request: &Request<'_>,
        call: Call,
        keyed: Option<&Keyed>,
        (from, active): (&From, &Active),
    ) -> Parcel {
        let caller = self.who(request).await;
        let model = call.model.clone();
        let shared = Arc::new(Shared::default());
        // What is known by its id goes on; what is sent once may be given up, and is then unknown.
        active.begun.store(keyed.is_some(), Ordering::Release);
        *locked(&active.call) = Some(Arc::clone(&shared));
        let relay = Relay {
            link: Arc::clone(&self.link),
            reply: from.reply.clone(),
            version: request.version(),
            token: request.progress_token(),
            shared,
        };
        let envelope = call.envelope.clone();
        let wanted = self.wanted(call, keyed.is_some(), &caller);
        let flights = &self.proxy.flights;
        let landed = async {
            let mut boarded = flights.board(wanted, caller, (relay, envelope), from.came).await?;
            let landed = boarded.landed().await?;
            Ok((boarded, landed))
        };
        let (boarded, landed) = match landed.await {
            Ok(landed) => landed,
            Err(error) => return Parcel::plain(not_begun(request.id, &error)),
        };
        let report = match &landed.report {
            Ok(report) => report,
            Err(error) => return Parcel::plain(not_begun(request.id, error)),
        };
        let fresh = landed.last.as_deref().filter(|_| boarded.first);
        let once = keyed.is_none();
        let told = tell(Asked { id: request.id, fresh, once, model: model.as_ref() }, report);
        let receipt = Receipt { flights: Arc::clone(flights), operation: boarded.operation };
        Parcel { text: told.message, receipt: told.settles.then_some(receipt) }
    }

    fn wanted(&self, call: Call, keyed: bool, caller: &Caller) -> Wanted {
        let flights = &self.proxy.flights;
        // An answer to a question of the upstream is no call that could be sent again as it is.
        let repeatable = keyed && !(call.continues() && call.envelope.own_words);
        let sending = if repeatable { Sending::Repeatable } else { Sending::AtMostOnce };
        let same = call.same(&flights.server, caller);
        let decided = call.runtime.is_some();
        let id = call.runtime.or(call.model).unwrap_or_else(|| new_id(flights.time.now()));
        let operation = Operation {
            id,
            server: flights.server.clone(),
            caller: caller.clone(),
            tool: call.tool,
            arguments: call.arguments,
            sending,
        };
        Wanted { operation, decided, same, source: call.source }
    }
}

/// The journal would not: nothing was sent.
fn not_begun(id: &str, error: &JournalError) -> String {
    match error.problem() {
        Problem::IdTaken(_) => answers::refused(id, &Refusal::request_id_reused()),
        Problem::Place(_)
        | Problem::TooNew { .. }
        | Problem::NotAJournal
        | Problem::ReadOnly
        | Problem::Full
        | Problem::Busy
        | Problem::Damaged
        | Problem::OtherCaller(_)
        | Problem::NoSuch
        | Problem::Impossible(_)
        | Problem::Failed => message::error(id, NO_ANSWER, &format!("nothing was sent: {error}"), None),
    }
}
