//! Receipts as an operator sees them, the same of every store.

use std::collections::BTreeSet;

use counterfoil_core::{
    Fingerprint, Issuer, Principal, Receipt, RequestId, Subject, Timestamp, ToolName, Workspace,
};

/// A receipt as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The tenant.
    pub workspace: Workspace,
    /// Who vouches for the subject.
    pub issuer: Issuer,
    /// Whose operation.
    pub subject: Subject,
    /// The tool's ledger name.
    pub tool: ToolName,
    /// Which operation.
    pub request_id: RequestId,
    /// When it committed or was voided.
    pub at: Timestamp,
    /// What became of it.
    pub receipt: Receipt,
    /// The recorded intent, if it is kept.
    pub intent: Option<Box<str>>,
}

impl Record {
    /// Whose operation it is, without any scope.
    #[must_use]
    pub fn principal(&self) -> Principal {
        Principal {
            issuer: self.issuer.clone(),
            subject: self.subject.clone(),
            workspace: self.workspace.clone(),
            scopes: BTreeSet::new(),
        }
    }

    /// Do its parts fit together: the fingerprint is that of the intent, the result is JSON?
    ///
    /// # Errors
    /// What does not fit; quotes nothing of it.
    pub fn sound(&self) -> Result<(), String> {
        let Receipt::Committed(committed) = &self.receipt else { return Ok(()) };
        if let Some(intent) = &self.intent
            && Fingerprint::of_text(&self.tool, intent) != committed.fingerprint
        {
            return Err("the fingerprint is not that of the intent".into());
        }
        let json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if committed.result.as_deref().is_some_and(|result| !json(result)) {
            return Err("the result is not JSON".into());
        }
        Ok(())
    }
}

/// What there is of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// By its ledger name.
    pub tool: String,
    /// Operations that committed.
    pub committed: u64,
    /// Those of them whose result is still there.
    pub held: u64,
    /// Operations that were voided.
    pub voided: u64,
    /// Of intents and results, in bytes.
    pub bytes: u64,
    /// When the oldest was written.
    pub oldest: Option<Timestamp>,
    /// When the newest was written.
    pub newest: Option<Timestamp>,
}

/// The two states of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It committed.
    Committed,
    /// It never will.
    Voided,
}

impl State {
    /// The word in the database and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Committed => "committed",
            State::Voided => "voided",
        }
    }
}

/// Which receipts to list; what is `None` does not narrow.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this workspace.
    pub workspace: Option<String>,
    /// Of this subject.
    pub subject: Option<String>,
    /// Of this tool, by its ledger name.
    pub tool: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// Whose request id begins so.
    pub prefix: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// After so many.
    pub offset: usize,
}

/// What became of an attempt to void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Void {
    /// It is void, now or since earlier.
    Voided,
    /// It had committed already.
    Committed(Timestamp),
}

/// Whose results and intents are to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whose {
    /// The person.
    pub subject: String,
    /// In this workspace alone, if it is said.
    pub workspace: Option<String>,
    /// As this issuer names people, if it is said.
    pub issuer: Option<String>,
}
