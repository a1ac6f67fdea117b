//! One intended operation: what is persisted before it is sent, and never changes.

use std::sync::Arc;

use counterfoil_core::RequestId;
use counterfoil_core::json::{self, Bounds, Value};

use crate::limits;
use crate::words::{Caller, ServerUrl, Tool};

/// How often an operation may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sending {
    /// As often as needed: the server knows it again by its request id.
    Repeatable,
    /// Once: the server knows no request ids, and a second send would be a second effect.
    AtMostOnce,
}

/// The arguments of a call, as JSON text: exactly these bytes are sent, every time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments(Box<str>);

/// Why a text cannot be the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArguments {
    /// Not JSON that can be trusted.
    #[error("the arguments are not JSON")]
    Json(#[source] json::Invalid),
    /// JSON, but no object.
    #[error("the arguments are {0}, not an object")]
    NotAnObject(&'static str),
    /// More than [`limits::ARGUMENTS`].
    #[error("the arguments are larger than {} bytes", limits::ARGUMENTS)]
    TooLarge,
}

impl Arguments {
    /// Checks that `text` is one JSON object within bounds, and keeps it as it is.
    ///
    /// # Errors
    /// [`InvalidArguments`]
    pub fn parse(text: &str) -> Result<Self, InvalidArguments> {
        if text.len() > limits::ARGUMENTS {
            return Err(InvalidArguments::TooLarge);
        }
        match json::parse(text.as_bytes(), Bounds::default()).map_err(InvalidArguments::Json)? {
            Value::Object(_) => Ok(Self(text.trim().into())),
            other @ (Value::Null
            | Value::Boolean(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => Err(InvalidArguments::NotAnObject(other.kind())),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An operation as its caller intends it. It is sent only through the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The caller's name for it.
    pub id: RequestId,
    /// Where it is sent.
    pub server: ServerUrl,
    /// Who we were when it was recorded.
    pub caller: Caller,
    /// What is called.
    pub tool: Tool,
    /// With what.
    pub arguments: Arguments,
    /// How often.
    pub sending: Sending,
}

/// Shared, because a try outlives the call that made it.
pub type Shared = Arc<Operation>;
