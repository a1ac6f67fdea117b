//! What the edge (HTTP, stdio, MCP) asks of the engine, and nothing more: which tools there are, and a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use counterfoil_core::json::Value;
use counterfoil_core::{Principal, Refusal, Sources};
use tokio_util::sync::CancellationToken;

/// A tool as `tools/list` shows it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The bare name.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// For models; says how to use the request id.
    pub description: String,
    /// JSON Schema of the arguments, `request_id` among them for writes.
    pub input_schema: serde_json::Map<String, serde_json::Value>,
    /// JSON Schema of the structured content, refusals included.
    pub output_schema: serde_json::Map<String, serde_json::Value>,
    /// What clients may assume.
    pub hints: Hints,
    /// The tool takes request ids.
    pub request_ids: bool,
}

/// MCP's tool annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// Changes nothing.
    pub read_only: bool,
    /// May overwrite or delete.
    pub destructive: bool,
    /// A repeat after the window still cannot act.
    pub idempotent: bool,
}

/// A `tools/call` as the strict reader saw it.
#[derive(Clone)]
pub struct ToolCall {
    /// `tool` or `tool.revision`.
    pub name: String,
    /// `params.arguments`; absent is an empty object.
    pub arguments: Option<Value>,
    /// Where a request id may stand, besides the arguments.
    pub sources: Sources,
    /// Where it is written down what became of a write, for the audit log and the caller's allowance.
    pub noted: Arc<OnceLock<Noted>>,
    /// The caller no longer wants it: a call that has not begun never does. One that has begun runs to its end.
    pub cancelled: CancellationToken,
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It may change something.
    Write,
    /// It looks.
    Read,
}

/// What became of a write, in words that hold no argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The tool.
    pub tool: String,
    /// The request id, shortened; absent if the call was refused before it was known.
    pub request_id: Option<String>,
    /// `committed`, or the code of the refusal.
    pub outcome: &'static str,
    /// It was read from a receipt.
    pub replayed: bool,
}

/// What became of a call.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Structured content as JSON text, and the text for models (a replay's begins with when it was committed).
    Done {
        /// JSON text of the structured content.
        structured: String,
        /// The same for models.
        text: String,
    },
    /// Refused; `Refusal::body` is the structured content.
    Refused(Refusal),
}

/// There is no such tool: a protocol error, not a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such tool")]
pub struct UnknownTool;

/// A future that does not borrow what it was made from longer than its owner lives.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The engine as the edge sees it.
pub trait Tools: Send + Sync + 'static {
    /// The tools that `principal` may see.
    fn list(&self, principal: &Principal) -> Vec<Listed>;

    /// What a call of `name` may do; `None` if there is no such tool.
    fn effect(&self, name: &str) -> Option<Effect>;

    /// Could a call be served now: is the database there, and is it the one that was opened?
    fn ready(&self) -> Pending<'_, bool>;

    /// Runs one call to its end. Dropping the future does not stop a begun call.
    fn call(&self, principal: Arc<Principal>, call: ToolCall) -> Pending<'_, Result<Answer, UnknownTool>>;
}
