//! The way to a server, as the client sees it: one message out, one answer or a fault back. Tests put a lossy one in
//! its place.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A future that does not borrow what it was made from longer than its owner lives.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One JSON-RPC message. Made only by [`crate::session`]: that of a call from a [`crate::journal::Try`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) method: &'static str,
    pub(crate) name: Option<Box<str>>,
    pub(crate) version: Option<Box<str>>,
    pub(crate) body: String,
}

impl Message {
    /// The JSON-RPC id; a notification has none, and no answer.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        self.id
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method
    }

    /// The tool, of a call.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The protocol version in use, once it is known.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The message, as JSON text.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status, 200 on other ways.
    pub status: u16,
    /// The JSON-RPC answer, as JSON text; whatever else a server sent on the way is left out.
    pub body: Vec<u8>,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
}

/// No answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection: not one byte of the message left.
    NotSent,
    /// The message may have arrived.
    Lost(Loss),
}

/// How an answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection broke.
    Broken,
    /// It took too long.
    Late,
    /// It was larger than [`crate::limits::ANSWER`].
    TooLarge,
    /// It could not be understood.
    Rubbish,
    /// Somebody on the way said that it failed (an HTTP status of 500 or above).
    Failed(u16),
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Broken => f.write_str("the connection broke before the answer"),
            Loss::Late => f.write_str("the answer took too long"),
            Loss::TooLarge => f.write_str("the answer was too large"),
            Loss::Rubbish => f.write_str("the answer could not be understood"),
            Loss::Failed(status) => write!(f, "the server, or one before it, answered HTTP {status}"),
        }
    }
}

/// A way to one server.
pub trait Transport: Send + Sync + 'static {
    /// Sends one message and waits for its answer; a notification is answered by an empty body.
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>>;

    /// Forgets the session that a server of an older revision had given us; whether there was one.
    fn forget_session(&self) -> bool {
        false
    }
}
