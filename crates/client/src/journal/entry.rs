//! What the journal holds of one operation.

use counterfoil_core::{Epoch, RequestId, Timestamp};
use rusqlite::Row;

use super::error::{JournalError, Problem};
use crate::operation::{Arguments, Operation, Sending};
use crate::state::State;
use crate::words::{Caller, ServerUrl, Tool};

/// One operation and what became of it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub(super) seq: i64,
    /// What was intended.
    pub operation: Operation,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// Where it stands.
    pub state: State,
    /// How often it was sent.
    pub tries: u32,
    /// The code of the last refusal.
    pub code: Option<String>,
    /// The last answer, as JSON text: a reply if the state says so.
    pub answer: Option<Box<str>>,
    /// When it committed, by the server's clock.
    pub committed_at: Option<Timestamp>,
    /// The history of the server's database that holds it.
    pub epoch: Option<Epoch>,
    /// It had committed, and is not there in this later history of the server's database: a restore undid it.
    pub undone_in: Option<Epoch>,
}

impl Sending {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Sending::Repeatable => "repeatable",
            Sending::AtMostOnce => "at_most_once",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Sending::Repeatable, Sending::AtMostOnce].into_iter().find(|sending| sending.as_str() == word)
    }
}

impl Entry {
    /// Reads a row of the columns that all the statements share.
    pub(super) fn read(row: &Row<'_>) -> Result<Self, JournalError> {
        let damaged = || JournalError::from(Problem::Damaged);
        let text = |name: &str| row.get::<_, String>(name);
        let time = |name: &str| row.get::<_, i64>(name).map(Timestamp::from_micros);
        let epoch = |name: &str| -> Result<Option<Epoch>, JournalError> {
            let epoch = row.get::<_, Option<String>>(name)?;
            epoch.map(|epoch| Epoch::parse(&epoch).map_err(|_| damaged())).transpose()
        };
        let operation = Operation {
            id: RequestId::parse(&text("id")?).map_err(|_| damaged())?,
            server: ServerUrl::parse(&text("server")?).map_err(|_| damaged())?,
            caller: Caller::parse(&text("caller")?).map_err(|_| damaged())?,
            tool: Tool::parse(&text("tool")?).map_err(|_| damaged())?,
            arguments: Arguments::parse(&text("arguments")?).map_err(|_| damaged())?,
            sending: Sending::parse(&text("sending")?).ok_or_else(damaged)?,
        };
        Ok(Self {
            seq: row.get("seq")?,
            operation,
            recorded_at: time("recorded_at")?,
            changed_at: time("changed_at")?,
            state: State::parse(&text("state")?, row.get("open")?).ok_or_else(damaged)?,
            tries: row.get("tries")?,
            code: row.get("code")?,
            answer: row.get::<_, Option<String>>("answer")?.map(String::into),
            committed_at: row.get::<_, Option<i64>>("committed_at")?.map(Timestamp::from_micros),
            epoch: epoch("epoch")?,
            undone_in: epoch("undone_in")?,
        })
    }

    /// It may leave (again): it has not ended, and no try is open at a server that would take a second send for a
    /// second intention.
    #[must_use]
    pub fn sendable(&self) -> bool {
        let harmless = self.operation.sending == Sending::Repeatable || self.state.open() == 0;
        harmless && !self.state.ended()
    }
}

/// One event of an operation's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    /// When.
    pub at: Timestamp,
    /// What, in the words of [`crate::state::Event::as_str`].
    pub event: String,
    /// The refusal's code, if it was one.
    pub code: Option<String>,
}
