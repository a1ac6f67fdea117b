//! What a server's answer says, purely: done, refused, turned away, or nothing that can be relied on.

use std::time::Duration;

use counterfoil_core::json::{self, Bounds, Value};
use counterfoil_core::{Code, Epoch, Operation as Known, Reply, RequestId, Retry, Timestamp};

use crate::journal::Told;
use crate::limits;
use crate::operation::{Operation, Sending};
use crate::proxy::raw::Object;
use crate::state::Event;
use crate::transport::{Fault, Loss, Response};

/// What became of one try.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Committed, now or earlier.
    Replied(Reply),
    /// The result of a server that knows no request ids.
    Plain(Plain),
    /// Refused, with a code.
    Refused(Refused),
    /// Turned away before anything was looked at: this try did nothing.
    Away(Away),
    /// Nobody knows.
    Lost(Lost),
}

/// A result of a server that knows no request ids, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The result's JSON.
    pub result: Box<str>,
    /// The tool says that it failed.
    pub is_error: bool,
}

/// A refusal as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The stable code.
    pub code: Code,
    /// What to do next, in words.
    pub message: Box<str>,
    /// What is known of the operation as a whole.
    pub operation: Option<Known>,
    /// How long to wait before the same call is sent again.
    pub retry_after: Option<Duration>,
    /// The whole refusal, as JSON text: `{"error": …}`.
    pub body: Box<str>,
}

/// A door that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Why, in the server's words where it has any.
    pub why: Box<str>,
    /// It may open again.
    pub again: bool,
    /// How long to wait until then.
    pub retry_after: Option<Duration>,
}

/// An answer that never came, or says that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// What happened.
    pub why: Box<str>,
    /// The refusal that said so, if one did: `outcome_unknown` or `internal`.
    pub code: Option<Code>,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// Reads `{"error": {…}}`.
    #[must_use]
    pub fn read(body: &Value) -> Option<Self> {
        let error = body.get("error")?;
        let word = error.get("code")?.as_str()?;
        let code = Code::ALL.into_iter().find(|code| code.as_str() == word)?;
        let retry_after = error.get("retry_after_ms").and_then(millis);
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        let message = shown(message);
        let operation = known(error)?;
        Some(Self { code, message, operation, retry_after, body: json::text(body).into() })
    }

    /// Does the code's advice allow the same call again?
    #[must_use]
    pub fn again(&self) -> bool {
        match self.code.retry() {
            Retry::SameId => true,
            Retry::No | Retry::Corrected | Retry::NewId | Retry::ReadFirst => false,
        }
    }
}

/// The outer `None` is a word that is not understood: then nothing of the refusal is relied on.
#[expect(clippy::option_option, reason = "absent and not understood are two things")]
fn known(error: &Value) -> Option<Option<Known>> {
    let Some(word) = error.get("operation") else { return Some(None) };
    Some(Some(match word.as_str()? {
        "committed" => Known::Committed(Timestamp::parse(error.get("committed_at")?.as_str()?).ok()?),
        "voided" => Known::Voided,
        "not_committed_so_far" => Known::NotCommittedSoFar,
        "unknown" => Known::Unknown,
        _ => return None,
    }))
}

fn millis(value: &Value) -> Option<Duration> {
    let Value::Number(spelled) = value else { return None };
    spelled.parse().ok().map(Duration::from_millis)
}

/// A server's words, bounded, and without what would move a terminal's cursor.
pub(crate) fn shown(text: &str) -> Box<str> {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(limits::SHOWN).collect::<String>().into()
}

/// Does this refusal leave its own try open? `internal` is said of a call that ended without an answer, which may
/// have been after its commit.
fn leaves_open(code: Code) -> bool {
    match code {
        Code::OutcomeUnknown | Code::Internal => true,
        Code::Forbidden
        | Code::RequestIdRequired
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
        | Code::RateLimited => false,
    }
}

/// A JSON-RPC answer, or what stands in its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Spoken {
    /// `result`
    Result(Value),
    /// `error`
    Error(Said),
}

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(crate) code: i64,
    pub(crate) message: Box<str>,
    /// The whole of it.
    error: Value,
    /// It names our message: a server has read it.
    ours: bool,
}

/// Reads the JSON-RPC answer to message `id`. An error need not name it: it may not have been read.
pub(crate) fn spoken(body: &[u8], id: u64) -> Option<Spoken> {
    let bounds = Bounds { values: limits::ANSWER_VALUES, nesting: limits::ANSWER_NESTING };
    let mut value = json::parse(body, bounds).ok()?;
    let ours = matches!(value.get("id"), Some(Value::Number(spelled)) if **spelled == *id.to_string());
    let nobodys = matches!(value.get("id"), None | Some(Value::Null));
    if let Some(result) = value.remove("result") {
        return ours.then_some(Spoken::Result(result));
    }
    let error = value.remove("error").filter(|_| ours || nobodys)?;
    let Some(Value::Number(code)) = error.get("code") else { return None };
    let code = code.parse().ok()?;
    let message = shown(error.get("message").and_then(Value::as_str).unwrap_or_default());
    Some(Spoken::Error(Said { code, message, error, ours }))
}

/// What became of a try of `operation`, sent as message `id`, to a server that may answer in words of its own.
pub(crate) fn judge(
    operation: &Operation,
    id: u64,
    own_words: bool,
    answer: Result<Response, Fault>,
) -> Answer {
    let response = match answer {
        Ok(response) => response,
        Err(Fault::NotSent) => return away("the server cannot be reached", true, None),
        Err(Fault::Lost(loss)) => return lost(loss, None),
    };
    let asked = response.retry_after;
    if (own_words || operation.sending == Sending::AtMostOnce)
        && let Some(plain) = plain(&response, id)
    {
        return Answer::Plain(plain);
    }
    match spoken(&response.body, id) {
        Some(Spoken::Result(result)) if response.status == 200 => called(operation, result, asked),
        Some(Spoken::Error(said)) => error(operation, &response, &said),
        Some(Spoken::Result(_)) | None => unspoken(response.status, asked),
    }
}

/// The result of a server that answers as it likes: byte for byte, and no more of it understood than must be.
fn plain(response: &Response, id: u64) -> Option<Plain> {
    let message = Object::read(std::str::from_utf8(&response.body).ok()?)?;
    let ours = message.get("id").ok()?? == id.to_string();
    let result = message.get("result").ok()?.filter(|_| ours && response.status == 200)?;
    Object::read(result).map(|_| Plain::of(result))
}

impl Plain {
    /// A tool's result, as it came.
    pub(crate) fn of(result: &str) -> Self {
        let is_error = Object::read(result).is_some_and(|result| result.any("isError") == Some("true"));
        Self { result: result.into(), is_error }
    }

    /// It is the whole result of a call, not the body of a reply.
    pub(crate) fn looks_like(text: &str) -> bool {
        Object::read(text).is_some_and(|result| result.any("content").is_some())
    }
}

/// The result of `tools/call`.
fn called(operation: &Operation, mut result: Value, asked: Option<Duration>) -> Answer {
    let is_error = result.get("isError") == Some(&Value::Boolean(true));
    match operation.sending {
        Sending::AtMostOnce => Answer::Plain(Plain { result: json::text(&result).into(), is_error }),
        Sending::Repeatable => {
            let structured = result.remove("structuredContent").unwrap_or(Value::Null);
            let answer = if is_error {
                Refused::read(&structured).map(|refused| refusal(refused, asked))
            } else {
                reply(&structured, &operation.id).map(Answer::Replied)
            };
            answer.unwrap_or_else(|| lost(Loss::Rubbish, asked))
        }
    }
}

fn refusal(refused: Refused, asked: Option<Duration>) -> Answer {
    let retry_after = refused.retry_after.max(asked);
    let told = matches!(refused.operation, Some(Known::Committed(_) | Known::Voided));
    if leaves_open(refused.code) && !told {
        return Answer::Lost(Lost { why: refused.message, code: Some(refused.code), retry_after });
    }
    Answer::Refused(Refused { retry_after, ..refused })
}

/// The structured content of a write, if it is about this operation.
pub(crate) fn reply(structured: &Value, id: &RequestId) -> Option<Reply> {
    let text = |name: &str| structured.get(name).and_then(Value::as_str);
    if text("request_id")? != id.as_str() {
        return None;
    }
    let Some(Value::Boolean(replayed)) = structured.get("replayed") else { return None };
    Some(Reply {
        result: json::text(structured.get("result")?).into(),
        request_id: id.clone(),
        replayed: *replayed,
        committed_at: Timestamp::parse(text("committed_at")?).ok()?,
        epoch: Epoch::parse(text("epoch")?).ok()?,
        current: structured.get("current").map(|current| json::text(current).into()),
    })
}

/// JSON-RPC: not JSON, not a request, no such method, params that do not fit. All are said before dispatch.
const BEFORE_DISPATCH: [i64; 4] = [-32700, -32600, -32601, -32602];

fn error(operation: &Operation, response: &Response, said: &Said) -> Answer {
    let asked = response.retry_after;
    if let Some(refused) = said.error.get("data").and_then(Refused::read) {
        return refusal(refused, asked);
    }
    match operation.sending {
        // An error is an answer, and its caller's to judge.
        Sending::AtMostOnce if said.ours => {
            Answer::Plain(Plain { result: json::text(&said.error).into(), is_error: true })
        }
        Sending::Repeatable if said.ours && BEFORE_DISPATCH.contains(&said.code) => {
            away(&said.message, false, asked)
        }
        Sending::AtMostOnce | Sending::Repeatable => match unspoken_or(response.status, &said.message, asked)
        {
            Answer::Lost(lost) => Answer::Lost(Lost { why: said.message.clone(), ..lost }),
            answer @ (Answer::Replied(_) | Answer::Plain(_) | Answer::Refused(_) | Answer::Away(_)) => answer,
        },
    }
}

/// An answer without a JSON-RPC answer in it: the status is all there is.
fn unspoken(status: u16, asked: Option<Duration>) -> Answer {
    unspoken_or(status, &format!("HTTP {status}"), asked)
}

fn unspoken_or(status: u16, why: &str, asked: Option<Duration>) -> Answer {
    match status {
        // Said at the door, before a message is acted on.
        400 | 401 | 403..=406 | 411 | 413..=415 | 417 | 421 | 426 | 431 => away(why, false, asked),
        // A redirect is not followed: the token is not for whoever it names.
        300..=399 => away(why, false, asked),
        429 => away(why, true, asked),
        500..=599 => lost(Loss::Failed(status), asked),
        _ => lost(Loss::Rubbish, asked),
    }
}

fn away(why: &str, again: bool, retry_after: Option<Duration>) -> Answer {
    Answer::Away(Away { why: shown(why), again, retry_after })
}

fn lost(loss: Loss, retry_after: Option<Duration>) -> Answer {
    Answer::Lost(Lost { why: loss.to_string().into(), code: None, retry_after })
}

impl Answer {
    /// May the same call be sent again?
    #[must_use]
    pub fn again(&self) -> bool {
        match self {
            Answer::Replied(_) | Answer::Plain(_) => false,
            Answer::Refused(refused) => refused.again(),
            Answer::Away(away) => away.again,
            Answer::Lost(_) => true,
        }
    }

    /// How long the server asked to wait before that.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Answer::Replied(_) | Answer::Plain(_) => None,
            Answer::Refused(refused) => refused.retry_after,
            Answer::Away(away) => away.retry_after,
            Answer::Lost(lost) => lost.retry_after,
        }
    }

    /// What the journal is told.
    #[must_use]
    pub fn told(&self) -> Told {
        match self {
            Answer::Replied(reply) => Told {
                answer: Some(reply.body().into()),
                committed_at: Some(reply.committed_at),
                epoch: Some(reply.epoch.clone()),
                ..Event::Replied.into()
            },
            Answer::Plain(plain) => Told { answer: Some(plain.result.clone()), ..Event::Replied.into() },
            Answer::Refused(refused) => refused.told(),
            Answer::Away(away) => Event::Refused { known: None, again: away.again }.into(),
            Answer::Lost(lost) => {
                Told { code: lost.code.map(|code| code.as_str().to_owned()), ..Event::Unknown.into() }
            }
        }
    }
}

impl Refused {
    fn told(&self) -> Told {
        let committed_at = match self.operation {
            Some(Known::Committed(at)) => Some(at),
            Some(Known::Voided | Known::NotCommittedSoFar | Known::Unknown) | None => None,
        };
        let event = Event::Refused { known: self.operation, again: self.again() };
        Told {
            code: Some(self.code.as_str().to_owned()),
            answer: Some(self.body.clone()),
            committed_at,
            ..event.into()
        }
    }
}
