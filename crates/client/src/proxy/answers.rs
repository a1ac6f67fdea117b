//! What a caller is told of an operation. A fresh answer passes as the upstream gave it; whatever is told again, or
//! from the journal, says so in its body, because a model sees neither headers nor `_meta`.

use counterfoil_core::{Refusal, Reply, RequestId, wire};

use super::call::quoted;
use super::message::{self, NO_ANSWER, result};
use super::raw::{Object, items};
use crate::answer::{Away, Plain, Refused};
use crate::client::{Outcome, Report, Unknown, Why};

/// The member of a result's `_meta` that says that it is told again.
pub(crate) const META_REPLAYED: &str = "dev.counterfoil/replayed";

/// One answer to one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// The JSON-RPC message.
    pub(crate) message: String,
    /// It is the operation's outcome: once delivered, the same call is a new intention.
    pub(crate) settles: bool,
}

/// How an operation was called for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The JSON-RPC id, as it is spelled.
    pub(crate) id: &'a str,
    /// The upstream's last answer, if it came for this call and no other was told it.
    pub(crate) fresh: Option<&'a [u8]>,
    /// The upstream knows no request ids.
    pub(crate) once: bool,
    /// The id that a model put among the arguments.
    pub(crate) model: Option<&'a RequestId>,
}

/// Tells what became of an operation.
pub(crate) fn tell(asked: Asked<'_>, report: &Report) -> Told {
    let settles = settles(asked, &report.outcome);
    if let Some(message) = asked.fresh.and_then(|body| as_it_came(asked.id, body, &report.outcome)) {
        return Told { message: noted(asked, &report.id, message), settles };
    }
    let again = Again { id: &report.id, other: asked.model.filter(|model| **model != report.id) };
    let message = match &report.outcome {
        Outcome::Replied(reply) => result(asked.id, &again.reply(reply)),
        Outcome::Plain(plain) => again.plain(asked.id, plain),
        Outcome::Committed(Some(at)) => {
            result(asked.id, &again.refusal(&Refusal::result_expired(*at).body()))
        }
        Outcome::Committed(None) => {
            result(asked.id, &again.own("request_id_expired", COMMITTED, "read_first", "committed"))
        }
        Outcome::Refused(refused) => result(asked.id, &again.refusal(&refused.body)),
        Outcome::Away(away) => turned_away(asked.id, away),
        Outcome::Voided => result(asked.id, &again.refusal(&Refusal::request_id_voided().body())),
        Outcome::Abandoned { .. } => {
            result(asked.id, &again.own("outcome_unknown", GIVEN_UP, "read_first", "unknown"))
        }
        Outcome::Unknown(unknown) => result(asked.id, &again.unknown(unknown, asked.once)),
    };
    Told { message, settles }
}

const COMMITTED: &str =
    "This change committed earlier; its result is not to be had any more. Read the current state.";
const GIVEN_UP: &str = "This operation was given up by its owner: it is not sent again, and nobody knows what became of it. \
    Read the current state before you act.";

/// Is this the end of the operation, as far as its caller goes?
fn settles(asked: Asked<'_>, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Replied(_)
        | Outcome::Plain(_)
        | Outcome::Committed(_)
        | Outcome::Refused(_)
        | Outcome::Away(_)
        | Outcome::Voided
        | Outcome::Abandoned { .. } => true,
        // Where ids are known the same call finds out; where they are not nobody ever will.
        Outcome::Unknown(_) => asked.once,
    }
}

/// The upstream's own answer, where it is what the outcome rests on.
fn as_it_came(id: &str, body: &[u8], outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Replied(_) | Outcome::Plain(_) | Outcome::Refused(_) | Outcome::Away(_) => {
            let message = Object::read(std::str::from_utf8(body).ok()?)?;
            let speaks = message.any("result").is_some() || message.any("error").is_some();
            speaks.then(|| message.with("id", id))
        }
        Outcome::Committed(_) | Outcome::Voided | Outcome::Abandoned { .. } | Outcome::Unknown(_) => None,
    }
}

/// A model that named another id is told which one is in use.
fn noted(asked: Asked<'_>, id: &RequestId, message: String) -> String {
    if asked.model.is_none_or(|model| model == id) {
        return message;
    }
    let noted = || {
        let whole = Object::read(&message)?;
        let result = Object::read(whole.any("result")?)?;
        Some(whole.with("result", &with_words(&result, &in_use(id))?))
    };
    noted().unwrap_or(message)
}

fn in_use(id: &RequestId) -> String {
    format!("This is the operation {id}, begun by the same call before its outcome was known.")
}

/// A result with one text before its content.
fn with_words(result: &Object<'_>, words: &str) -> Option<String> {
    let content = items(result.any("content")?)?;
    let text = format!("{{\"type\":\"text\",\"text\":{}}}", quoted(words));
    let all: Vec<&str> = [&*text].into_iter().chain(content).collect();
    Some(result.with("content", &format!("[{}]", all.join(","))))
}

fn turned_away(id: &str, away: &Away) -> String {
    let why = format!("the upstream turned the call away, and did nothing: {}", away.why);
    message::error(id, NO_ANSWER, &why, None)
}

/// An answer that its caller gets later than it came.
struct Again<'a> {
    id: &'a RequestId,
    /// What the caller called the operation.
    other: Option<&'a RequestId>,
}

impl Again<'_> {
    fn words(&self, words: &str) -> String {
        match self.other {
            Some(_) => format!("{} {words}", in_use(self.id)),
            None => words.to_owned(),
        }
    }

    fn reply(&self, reply: &Reply) -> String {
        let reply = Reply { replayed: true, ..reply.clone() };
        let body = reply.body();
        let words = format!(
            "This change committed earlier, at {}. This is its recorded result, not a fresh read.\n{body}",
            reply.committed_at
        );
        self.whole(&words, &body, false, true)
    }

    fn plain(&self, id: &str, plain: &Plain) -> String {
        let Some(result) = Object::read(&plain.result) else {
            return message::error(id, NO_ANSWER, "the recorded answer cannot be read", None);
        };
        if result.any("content").is_none() && result.any("code").is_some() {
            return format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{}}}", plain.result);
        }
        let words = "This call was made earlier. This is its recorded answer, not a fresh one.";
        let told = with_words(&result, &self.words(words)).unwrap_or_else(|| plain.result.to_string());
        let marked = Object::read(&told).map(|told| {
            let meta = told.any("_meta").and_then(Object::read);
            let mark = |meta: &Object<'_>| meta.with(META_REPLAYED, "true");
            let meta = meta.as_ref().map_or_else(|| format!("{{\"{META_REPLAYED}\":true}}"), mark);
            told.with("_meta", &meta)
        });
        message::result(id, &marked.unwrap_or(told))
    }

    fn refusal(&self, body: &str) -> String {
        let error = Object::read(body).and_then(|body| body.object("error"));
        let text = |name: &str| error.as_ref().and_then(|error| error.string(name)).unwrap_or_default();
        let words = format!("{}: {}", text("code"), text("message"));
        self.whole(&words, body, true, true)
    }

    fn unknown(&self, unknown: &Unknown, once: bool) -> String {
        let retry = if once { "read_first" } else { "same_id" };
        let standing = if unknown.open == 0 { "not_committed_so_far" } else { "unknown" };
        self.own(
            "outcome_unknown",
            &format!("{} {}", self.why(&unknown.why), self.way_out(once)),
            retry,
            standing,
        )
    }

    fn why(&self, why: &Why) -> String {
        match why {
            Why::Bounds(last) => format!("It is not known whether this was done: {last}."),
            Why::Refused(Refused { code, .. }) => format!(
                "It is not known whether this was done: an earlier try is unanswered, and the last one was refused ({code})."
            ),
            Why::Away(away) => format!(
                "It is not known whether this was done: an earlier try is unanswered, and the last one was turned away ({}).",
                away.why
            ),
            Why::AtMostOnce => "It is not known whether this was done: the answer was lost.".into(),
            Why::OtherCaller => {
                "This operation was begun as another caller, and nothing was sent now.".into()
            }
            Why::NotVoided(_) => "It could not be voided.".into(),
            Why::NotWritten(problem) => format!("The last answer could not be written down: {problem}."),
        }
    }

    fn way_out(&self, once: bool) -> String {
        if once {
            return "It was sent once and is not sent again by itself. Read the current state before you act; call \
                    again only if it was not done."
                .into();
        }
        format!(
            "Call again with the same arguments to find out: it stays the operation {}, and is done once.",
            self.id
        )
    }

    /// An answer of the proxy itself.
    fn own(&self, code: &str, message: &str, retry: &str, operation: &str) -> String {
        let body = format!(
            "{{\"error\":{{\"code\":\"{code}\",\"message\":{},\"retry\":\"{retry}\",\"operation\":\"{operation}\"}}}}",
            quoted(message)
        );
        self.whole(&format!("{code}: {message}"), &body, true, false)
    }

    /// What is kept as text goes into the answer as it is spelled.
    fn whole(&self, words: &str, structured: &str, is_error: bool, replayed: bool) -> String {
        format!(
            "{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"structuredContent\":{structured},\"isError\":{is_error},\
             \"_meta\":{{\"{}\":\"{}\",\"{META_REPLAYED}\":{replayed}}}}}",
            quoted(&self.words(words)),
            wire::META_REQUEST_ID,
            self.id
        )
    }
}

/// A refusal of the proxy itself: nothing was sent.
pub(crate) fn refused(id: &str, refusal: &Refusal) -> String {
    let body = refusal.body();
    let words = format!("{}: {}", refusal.code(), refusal.message());
    let text = quoted(&words);
    let result = format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"structuredContent\":{body},\"isError\":true}}"
    );
    message::result(id, &result)
}

/// The answer to a call that was sent once and of which nothing is kept.
pub(crate) fn lost(id: &str) -> String {
    let words = "It is not known whether this was done: the answer was lost. It was sent once and is not sent again by \
                 itself. Read the current state before you act; call again only if it was not done.";
    let body = format!(
        "{{\"error\":{{\"code\":\"outcome_unknown\",\"message\":{},\"retry\":\"read_first\",\"operation\":\"unknown\"}}}}",
        quoted(words)
    );
    let text = quoted(&format!("outcome_unknown: {words}"));
    let result = format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"structuredContent\":{body},\"isError\":true}}"
    );
    message::result(id, &result)
}
