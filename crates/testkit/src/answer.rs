//! What is answered, read from the structured content, so that every entry point is held to the same words.

use counterfoil_core::{Refusal, Reply};
use serde_json::Value;
use serde_json::value::RawValue;

/// The structured content of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It committed, now or earlier.
    Done(Done),
    /// This try wrote nothing.
    Refused(Refused),
}

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The result, byte for byte as it came.
    pub result: String,
    /// Read from a receipt.
    pub replayed: bool,
    /// The operation.
    pub request_id: String,
    /// When it committed.
    pub committed_at: String,
    /// The history that holds it.
    pub epoch: String,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// The stable code.
    pub code: String,
    /// What to do next.
    pub retry: String,
    /// What is known of the operation as a whole.
    pub operation: Option<String>,
    /// The whole of `error`.
    pub error: Value,
}

impl Answer {
    /// Reads structured content; anything that is neither a reply nor a refusal is a failed test.
    #[must_use]
    pub fn of(body: &str) -> Self {
        #[derive(serde::Deserialize)]
        struct Spelled<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        let broken = |error: serde_json::Error| -> ! { panic!("{error}: {body}") };
        let spelled: Spelled<'_> = serde_json::from_str(body).unwrap_or_else(|error| broken(error));
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| broken(error));
        let text = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
        let must = |of: &Value, name: &str| text(of, name).unwrap_or_else(|| panic!("no {name} in {of}"));
        if let Some(error) = body.get("error") {
            return Answer::Refused(Refused {
                code: must(error, "code"),
                retry: must(error, "retry"),
                operation: text(error, "operation"),
                error: error.clone(),
            });
        }
        Answer::Done(Done {
            result: spelled.result.map_or("null", RawValue::get).to_owned(),
            replayed: body["replayed"].as_bool().unwrap_or_else(|| panic!("no replayed in {body}")),
            request_id: must(&body, "request_id"),
            committed_at: must(&body, "committed_at"),
            epoch: must(&body, "epoch"),
        })
    }

    /// The reply, or a failed test.
    #[must_use]
    pub fn done(self) -> Done {
        match self {
            Answer::Done(done) => done,
            Answer::Refused(refused) => panic!("refused: {}", refused.error),
        }
    }

    /// The refusal, or a failed test.
    #[must_use]
    pub fn refused(self) -> Refused {
        match self {
            Answer::Refused(refused) => refused,
            Answer::Done(done) => panic!("not refused: {done:?}"),
        }
    }
}

impl From<Result<Reply, Refusal>> for Answer {
    fn from(answer: Result<Reply, Refusal>) -> Self {
        Answer::of(&answer.map_or_else(|refusal| refusal.body(), |reply| reply.body()))
    }
}
