//! The answers that write nothing: a stable code, what to do next, and what is known of the operation as a whole.

use std::fmt;
use std::time::Duration;

use crate::json::write_string;
use crate::limits;
use crate::time::Timestamp;

/// Why a try was refused. Stable on the wire; matched without a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The principal lacks the tool's scope.
    Forbidden,
    /// A write came without a request id.
    RequestIdRequired,
    /// The request id is malformed, or two sources disagree.
    InvalidRequestId,
    /// The arguments do not fit the tool's schema.
    InvalidArguments,
    /// Not a member, not found, moved, deleted or another workspace's: never said which.
    ResourceUnavailable,
    /// The id belongs to another operation.
    RequestIdReused,
    /// The operation committed, or was pinned, under another contract.
    RevisionChanged,
    /// The id was voided and will never commit.
    RequestIdVoided,
    /// The id is older than what is still known of it.
    RequestIdExpired,
    /// The row is no longer at the version the caller saw.
    VersionConflict,
    /// The write's own condition was not met.
    PreconditionFailed,
    /// A constraint of the database refused the write.
    ConstraintViolated,
    /// The result is larger than the limit; all was rolled back.
    ResultTooLarge,
    /// Locked, full or shutting down.
    Busy,
    /// This caller calls too often.
    RateLimited,
    /// It may have committed; send the same call again to find out.
    OutcomeUnknown,
    /// Our fault; the correlation id finds it in the log.
    Internal,
}

/// What a caller may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Not as it is.
    No,
    /// After correcting the call.
    Corrected,
    /// The same id and arguments again.
    SameId,
    /// A new operation under a new id; void the old one first if an earlier try is unanswered.
    NewId,
    /// Read the current state, then decide.
    ReadFirst,
}

/// What is known of the operation as a whole: an earlier try may have committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It committed, then.
    Committed(Timestamp),
    /// It never will.
    Voided,
    /// It had not, when this was judged.
    NotCommittedSoFar,
    /// This try was refused before anything was looked up.
    Unknown,
}

impl Code {
    /// Every code, in the order of the table in `docs/errors/README.md`.
    pub const ALL: [Code; 17] = [
        Code::Forbidden,
        Code::RequestIdRequired,
        Code::InvalidRequestId,
        Code::InvalidArguments,
        Code::ResourceUnavailable,
        Code::RequestIdReused,
        Code::RevisionChanged,
        Code::RequestIdVoided,
        Code::RequestIdExpired,
        Code::VersionConflict,
        Code::PreconditionFailed,
        Code::ConstraintViolated,
        Code::ResultTooLarge,
        Code::Busy,
        Code::RateLimited,
        Code::OutcomeUnknown,
        Code::Internal,
    ];

    /// The code on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Forbidden => "forbidden",
            Code::RequestIdRequired => "request_id_required",
            Code::InvalidRequestId => "invalid_request_id",
            Code::InvalidArguments => "invalid_arguments",
            Code::ResourceUnavailable => "resource_unavailable",
            Code::RequestIdReused => "request_id_reused",
            Code::RevisionChanged => "revision_changed",
            Code::RequestIdVoided => "request_id_voided",
            Code::RequestIdExpired => "request_id_expired",
            Code::VersionConflict => "version_conflict",
            Code::PreconditionFailed => "precondition_failed",
            Code::ConstraintViolated => "constraint_violated",
            Code::ResultTooLarge => "result_too_large",
            Code::Busy => "busy",
            Code::RateLimited => "rate_limited",
            Code::OutcomeUnknown => "outcome_unknown",
            Code::Internal => "internal",
        }
    }

    /// What a caller may do next.
    #[must_use]
    pub fn retry(self) -> Retry {
        match self {
            Code::Forbidden | Code::ResourceUnavailable | Code::ResultTooLarge => Retry::No,
            Code::RequestIdRequired
            | Code::InvalidRequestId
            | Code::InvalidArguments
            | Code::ConstraintViolated => Retry::Corrected,
            Code::Busy | Code::RateLimited | Code::OutcomeUnknown | Code::Internal => Retry::SameId,
            Code::RequestIdReused
            | Code::RequestIdVoided
            | Code::VersionConflict
            | Code::PreconditionFailed => Retry::NewId,
            Code::RevisionChanged | Code::RequestIdExpired => Retry::ReadFirst,
        }
    }

    /// The HTTP status where the edge answers before dispatch, or an HTTP API is not MCP.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Code::RequestIdRequired | Code::InvalidRequestId | Code::InvalidArguments => 400,
            Code::Forbidden => 403,
            Code::ResourceUnavailable => 404,
            Code::RequestIdVoided | Code::VersionConflict => 409,
            Code::RequestIdExpired => 410,
            Code::PreconditionFailed => 412,
            Code::RequestIdReused
            | Code::RevisionChanged
            | Code::ConstraintViolated
            | Code::ResultTooLarge => 422,
            Code::RateLimited => 429,
            Code::Internal => 500,
            Code::Busy | Code::OutcomeUnknown => 503,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Retry {
    /// The advice on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Retry::No => "no",
            Retry::Corrected => "corrected",
            Retry::SameId => "same_id",
            Retry::NewId => "new_id",
            Retry::ReadFirst => "read_first",
        }
    }
}

impl Operation {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Committed(_) => "committed",
            Operation::Voided => "voided",
            Operation::NotCommittedSoFar => "not_committed_so_far",
            Operation::Unknown => "unknown",
        }
    }
}

/// One faulty field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// JSON pointer (RFC 6901) into the arguments.
    pub pointer: String,
    /// What is wrong; never the value.
    pub message: String,
}

impl FieldError {
    /// A fault at `pointer`. A pointer beyond bounds is cut to the nearest enclosing value that can be named:
    /// a caller chooses its own member names, and must not choose the size of the refusal.
    #[must_use]
    pub fn new(pointer: &str, message: impl Into<String>) -> Self {
        let head = pointer.as_bytes().get(..=limits::POINTER);
        let end = head.map(|head| head.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        let cut = end.map_or(pointer, |end| &pointer[..end]);
        Self { pointer: cut.to_owned(), message: message.into() }
    }
}

/// *This try* wrote nothing.
///
/// Built only by one constructor a code, so that `operation` is right wherever it is made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    code: Code,
    message: Box<str>,
    operation: Option<Operation>,
    retry_after: Option<Duration>,
    current: Option<Box<str>>,
    fields: Vec<FieldError>,
    /// Of `internal` the correlation id, of `forbidden` the scope that is lacking.
    detail: Option<Box<str>>,
}

/// Said wherever the advice is a new id.
const VOID_FIRST: &str = "If an earlier try of this id is still unanswered, void it first.";

impl Refusal {
    fn new(code: Code, operation: impl Into<Option<Operation>>, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into().into(),
            operation: operation.into(),
            retry_after: None,
            current: None,
            fields: Vec::new(),
            detail: None,
        }
    }

    /// The principal lacks `scope`.
    #[must_use]
    pub fn forbidden(scope: &str) -> Self {
        let message = format!("This token lacks the scope {scope}.");
        Self { detail: Some(scope.into()), ..Self::new(Code::Forbidden, Operation::Unknown, message) }
    }

    /// A write came without a request id.
    #[must_use]
    pub fn request_id_required() -> Self {
        let message = "Give this change a request_id: choose one, keep it, and reuse it for every retry of this same change.";
        Self::new(Code::RequestIdRequired, Operation::Unknown, message)
    }

    /// The request id is malformed, or two sources disagree.
    #[must_use]
    pub fn invalid_request_id(problem: &str) -> Self {
        Self::new(Code::InvalidRequestId, Operation::Unknown, format!("The request id {problem}."))
    }

    /// The arguments do not fit.
    #[must_use]
    pub fn invalid_arguments(fields: Vec<FieldError>) -> Self {
        let first = fields.first().map_or_else(String::new, |field| {
            let place = if field.pointer.is_empty() { "The document" } else { &field.pointer };
            format!(" {place} {}.", field.message)
        });
        let message = format!("The arguments do not fit the tool's schema.{first}");
        Self { fields, ..Self::new(Code::InvalidArguments, Operation::Unknown, message) }
    }

    /// Not the caller's to touch, or not there: never said which.
    #[must_use]
    pub fn resource_unavailable() -> Self {
        let message = "There is no such resource that this caller may use.";
        Self::new(Code::ResourceUnavailable, Operation::Unknown, message)
    }

    /// The id belongs to another operation.
    #[must_use]
    pub fn request_id_reused() -> Self {
        let message = format!(
            "This request_id already belongs to a different change. If this is a new change, give it a new request_id. {VOID_FIRST}"
        );
        Self::new(Code::RequestIdReused, None, message)
    }

    /// The operation committed under another contract.
    #[must_use]
    pub fn revision_changed(at: Timestamp) -> Self {
        let message = format!(
            "This operation committed at {at} under another revision of the tool and is not run again. Read the current state; use a new request_id only if the effect is wanted twice."
        );
        Self::new(Code::RevisionChanged, Operation::Committed(at), message)
    }

    /// A call pinned to a retired revision has no receipt to replay.
    #[must_use]
    pub fn revision_retired() -> Self {
        let message = format!(
            "This revision of the tool is retired: it replays earlier results and runs nothing new. Read the current state and call the tool without pinning, under a new request_id. {VOID_FIRST}"
        );
        Self::new(Code::RevisionChanged, Operation::NotCommittedSoFar, message)
    }

    /// The id was voided.
    #[must_use]
    pub fn request_id_voided() -> Self {
        let message = "This request_id was voided: it has not committed and never will. If the change is still wanted, make it a new operation with a new request_id.";
        Self::new(Code::RequestIdVoided, Operation::Voided, message)
    }

    /// It committed, and its result is no longer kept.
    #[must_use]
    pub fn result_expired(at: Timestamp) -> Self {
        let message = format!(
            "This operation committed at {at}; its result is no longer kept. Read the current state, then decide."
        );
        Self::new(Code::RequestIdExpired, Operation::Committed(at), message)
    }

    /// The id dates itself before everything that is still remembered.
    #[must_use]
    pub fn id_expired() -> Self {
        let message = "This request_id is older than what is still remembered: it may have committed. Read the current state, then decide.";
        Self::new(Code::RequestIdExpired, Operation::Unknown, message)
    }

    /// The row is no longer at the version the caller saw; `current` is the row now, as JSON.
    #[must_use]
    pub fn version_conflict(current: Option<Box<str>>) -> Self {
        let message = format!(
            "The resource is no longer at the expected version. Reload it, decide again, and use a new request_id. {VOID_FIRST}"
        );
        Self { current, ..Self::new(Code::VersionConflict, Operation::NotCommittedSoFar, message) }
    }

    /// The write's own condition was not met; `current` is the row now, as JSON.
    #[must_use]
    pub fn precondition_failed(current: Option<Box<str>>) -> Self {
        let message = format!(
            "The write's condition was not met and nothing changed. Reload, decide again, and use a new request_id. {VOID_FIRST}"
        );
        Self { current, ..Self::new(Code::PreconditionFailed, Operation::NotCommittedSoFar, message) }
    }

    /// A constraint of the database refused the write. `constraint` names it, never a row.
    #[must_use]
    pub fn constraint_violated(constraint: &str) -> Self {
        let message = format!("The database refused the change: {constraint}. Correct the arguments.");
        Self::new(Code::ConstraintViolated, Operation::NotCommittedSoFar, message)
    }

    /// The result is larger than `limit` bytes.
    #[must_use]
    pub fn result_too_large(limit: usize) -> Self {
        let message = format!("The result is larger than {limit} bytes; nothing was changed.");
        Self::new(Code::ResultTooLarge, Operation::NotCommittedSoFar, message)
    }

    /// Not now.
    #[must_use]
    pub fn busy(retry_after: Duration) -> Self {
        let message = "The server is busy. Send the same call again, with the same request_id and arguments.";
        let refusal = Self::new(Code::Busy, Operation::Unknown, message);
        Self { retry_after: Some(retry_after), ..refusal }
    }

    /// This caller calls too often.
    #[must_use]
    pub fn rate_limited(retry_after: Duration) -> Self {
        let message = "Too many calls from this caller. Send the same call again later, with the same request_id and arguments.";
        let refusal = Self::new(Code::RateLimited, Operation::Unknown, message);
        Self { retry_after: Some(retry_after), ..refusal }
    }

    /// It may have committed.
    #[must_use]
    pub fn outcome_unknown(retry_after: Duration) -> Self {
        let message = "The change may or may not have committed. Send the same call again, with the same request_id and arguments, to find out; or void it.";
        let refusal = Self::new(Code::OutcomeUnknown, Operation::Unknown, message);
        Self { retry_after: Some(retry_after), ..refusal }
    }

    /// Our fault.
    #[must_use]
    pub fn internal(correlation_id: impl Into<String>) -> Self {
        let message = "Something went wrong in the server. Send the same call again, with the same request_id and arguments; if it persists, give the operator the correlation id.";
        let refusal = Self::new(Code::Internal, Operation::Unknown, message);
        Self { detail: Some(correlation_id.into().into()), ..refusal }
    }

    /// The same refusal for a read, which has no operation.
    #[must_use]
    pub fn of_read(self) -> Self {
        Self { operation: None, ..self }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What is known of the operation as a whole; `None` for `request_id_reused` and for reads.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        self.operation
    }

    /// How long to wait before the same call is sent again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Of `forbidden`: the scope that the principal lacks.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.detail_of(Code::Forbidden)
    }

    fn detail_of(&self, code: Code) -> Option<&str> {
        self.detail.as_deref().filter(|_| self.code == code)
    }

    /// The row as it is now, as JSON.
    #[must_use]
    pub fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Faulty fields.
    #[must_use]
    pub fn fields(&self) -> &[FieldError] {
        &self.fields
    }

    /// What to do next, in words.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The structured content of a refusal, as JSON text.
    #[must_use]
    pub fn body(&self) -> String {
        let mut out = String::from("{\"error\":{\"code\":");
        write_string(&mut out, self.code.as_str());
        text(&mut out, "message", &self.message);
        text(&mut out, "retry", self.code.retry().as_str());
        if let Some(operation) = self.operation {
            text(&mut out, "operation", operation.as_str());
            if let Operation::Committed(at) = operation {
                text(&mut out, "committed_at", &at.to_string());
            }
        }
        if let Some(wait) = self.retry_after {
            raw(&mut out, "retry_after_ms", &wait.as_millis().to_string());
        }
        if let Some(current) = &self.current {
            raw(&mut out, "current", current);
        }
        if !self.fields.is_empty() {
            raw(&mut out, "fields", &fields(&self.fields));
        }
        if let Some(id) = self.detail_of(Code::Internal) {
            text(&mut out, "correlation_id", id);
        }
        out.push_str("}}");
        out
    }
}

fn raw(out: &mut String, name: &str, json: &str) {
    out.push(',');
    write_string(out, name);
    out.push(':');
    out.push_str(json);
}

fn text(out: &mut String, name: &str, value: &str) {
    let mut json = String::new();
    write_string(&mut json, value);
    raw(out, name, &json);
}

fn fields(fields: &[FieldError]) -> String {
    let one = |field: &FieldError| {
        let mut out = String::from("{\"pointer\":");
        write_string(&mut out, &field.pointer);
        text(&mut out, "message", &field.message);
        out.push('}');
        out
    };
    format!("[{}]", fields.iter().map(one).collect::<Vec<_>>().join(","))
}
