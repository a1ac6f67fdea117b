//! From a request to a [`Call`]: scope, request id and arguments, judged in this order and before anything is
//! looked up (steps 2 to 5 of a write call).

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::intent::Intent;
use crate::json::Value;
use crate::refusal::{FieldError, Refusal};
use crate::schema::Schema;
use crate::wire;
use crate::words::{Principal, RequestId, Revision, Scope, ToolName};

/// How long a result can be replayed, and how long the bare fact is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Results are replayable this long.
    pub keep: Duration,
    /// The fact that they committed, this long. Not shorter than `keep`.
    pub remember: Duration,
}

impl Default for Windows {
    /// 30 days and one year.
    fn default() -> Self {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        Self { keep: days(30), remember: days(365) }
    }
}

/// Which request ids a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdForm {
    /// Any request id.
    #[default]
    Any,
    /// Lower-case hyphenated UUIDs only, for callers that would pick `edit-1` twice.
    Uuid,
}

/// What a write tool promises and demands.
#[derive(Debug, Clone)]
pub struct Contract {
    /// The name that never changes: it stands in receipt key, fingerprint and void.
    pub ledger_name: ToolName,
    /// What the principal must hold.
    pub scope: Scope,
    /// The live revision.
    pub revision: Revision,
    /// Its input.
    pub schema: Schema,
    /// Earlier revisions, which serve replays only.
    pub retired: Vec<(Revision, Schema)>,
    /// Which request ids are taken.
    pub ids: IdForm,
    /// How long receipts last.
    pub windows: Windows,
    /// Whether receipts keep the arguments, and not only their fingerprint.
    pub store_intent: bool,
}

/// Where a request id may stand. All that are present must agree, byte for byte.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `_meta["dev.counterfoil/request-id"]`.
    pub meta: Option<Value>,
    /// Every `Idempotency-Key` header, as it came.
    pub headers: Vec<Box<[u8]>>,
    /// `params.idempotencyKey`.
    pub member: Option<Value>,
}

/// The arguments as one revision reads them.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Which revision.
    pub revision: Revision,
    /// What it makes of the arguments.
    pub intent: Intent,
    /// Of ledger name and intent.
    pub fingerprint: Fingerprint,
}

impl Reading {
    /// Reads `intent` as `revision` of the tool named `ledger_name`.
    #[must_use]
    pub fn new(ledger_name: &ToolName, revision: Revision, intent: Intent) -> Self {
        let fingerprint = Fingerprint::of(ledger_name, &intent);
        Self { revision, intent, fingerprint }
    }
}

/// May this call write if there is no receipt?
#[derive(Debug, Clone, PartialEq)]
pub enum Fresh {
    /// Yes, as the live revision reads it.
    Live(Reading),
    /// No: the arguments fit retired schemas only. Holds the live revision and its verdict.
    Misfit(Revision, Box<Refusal>),
    /// No: the call pins a retired revision.
    Pinned,
}

/// One intended operation, checked as far as that goes without looking anything up.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Who calls.
    pub principal: Arc<Principal>,
    /// The tool's ledger name.
    pub tool: ToolName,
    /// Which operation.
    pub request_id: RequestId,
    /// What may run.
    pub fresh: Fresh,
    /// The arguments as retired revisions read them.
    pub retired: Vec<Reading>,
    /// How long its receipt lasts.
    pub windows: Windows,
    /// Whether its receipt keeps the arguments, and not only their fingerprint.
    pub store_intent: bool,
}

impl Call {
    /// A call of a tool without retired revisions: what a service with handlers of its own makes.
    #[must_use]
    pub fn new(
        principal: Arc<Principal>,
        tool: ToolName,
        revision: Revision,
        request_id: RequestId,
        intent: Intent,
    ) -> Self {
        let live = Reading::new(&tool, revision, intent);
        let (fresh, retired, windows) = (Fresh::Live(live), Vec::new(), Windows::default());
        Self { principal, tool, request_id, fresh, retired, windows, store_intent: true }
    }

    /// What its receipt keeps of `reading`'s arguments.
    #[must_use]
    pub fn stored<'r>(&self, reading: &'r Reading) -> Option<&'r str> {
        self.store_intent.then(|| reading.intent.text())
    }

    /// What may be written, if anything may.
    #[must_use]
    pub fn live(&self) -> Option<&Reading> {
        if let Fresh::Live(reading) = &self.fresh { Some(reading) } else { None }
    }

    /// The arguments as `revision` reads them, if it is known here and they fit.
    #[must_use]
    pub fn under(&self, revision: &Revision) -> Option<&Reading> {
        self.live().into_iter().chain(&self.retired).find(|reading| reading.revision == *revision)
    }
}

impl Contract {
    /// Steps 2 to 5: scope, request id, arguments, intent.
    ///
    /// # Errors
    /// The first step that refuses; `operation` is unknown in all of them.
    pub fn admit(
        &self,
        principal: &Arc<Principal>,
        pin: Option<&Revision>,
        sources: &Sources,
        mut arguments: Value,
    ) -> Result<Call, Refusal> {
        self.authorise(principal)?;
        let argument = arguments.remove(wire::REQUEST_ID_ARGUMENT);
        let request_id = self.request_id(argument.as_ref(), sources)?;
        let (fresh, retired) = self.read(pin, &arguments)?;
        Ok(Call {
            principal: Arc::clone(principal),
            tool: self.ledger_name.clone(),
            request_id,
            fresh,
            retired,
            windows: self.windows,
            store_intent: self.store_intent,
        })
    }

    /// Step 2: the principal holds the tool's scope.
    ///
    /// # Errors
    /// `forbidden`.
    pub fn authorise(&self, principal: &Principal) -> Result<(), Refusal> {
        if principal.scopes.contains(&self.scope) {
            Ok(())
        } else {
            Err(Refusal::forbidden(self.scope.as_str()))
        }
    }

    /// Step 3: the request id from its sources.
    fn request_id(&self, argument: Option<&Value>, sources: &Sources) -> Result<RequestId, Refusal> {
        let mut found: Option<String> = None;
        for id in present(argument, sources) {
            let id = id.map_err(|problem| Refusal::invalid_request_id(&problem))?;
            match &found {
                Some(other) if *other != id => {
                    return Err(Refusal::invalid_request_id("differs between two places of this call"));
                }
                _ => found = Some(id),
            }
        }
        let id = found.ok_or_else(Refusal::request_id_required)?;
        let id = RequestId::parse(&id)
            .map_err(|_| Refusal::invalid_request_id("must be 1 to 64 characters of A-Z a-z 0-9 _ -"))?;
        match self.ids {
            IdForm::Uuid if !id.is_uuid() => Err(Refusal::invalid_request_id("must be a lower-case UUID")),
            IdForm::Uuid | IdForm::Any => Ok(id),
        }
    }

    /// Steps 4 and 5: the arguments against the live schema, or the pinned one, and every retired one.
    fn read(&self, pin: Option<&Revision>, arguments: &Value) -> Result<(Fresh, Vec<Reading>), Refusal> {
        let allowed = |revision: &Revision| pin.is_none_or(|pin| pin == revision);
        let read = |revision: &Revision, schema: &Schema| {
            schema.read(arguments).map(|intent| Reading::new(&self.ledger_name, revision.clone(), intent))
        };
        let retired = self.retired.iter().filter(|(revision, _)| allowed(revision));
        let readings: Vec<_> = retired.map(|(revision, schema)| read(revision, schema)).collect();
        if !allowed(&self.revision) {
            let faults = readings.iter().find_map(|reading| reading.as_ref().err().cloned());
            let retired: Vec<Reading> = readings.into_iter().flatten().collect();
            return if retired.is_empty() { Err(misfit(faults)) } else { Ok((Fresh::Pinned, retired)) };
        }
        let retired: Vec<Reading> = readings.into_iter().flatten().collect();
        match read(&self.revision, &self.schema) {
            Ok(live) => Ok((Fresh::Live(live), retired)),
            Err(fields) if retired.is_empty() => Err(Refusal::invalid_arguments(fields)),
            Err(fields) => {
                let verdict = Box::new(Refusal::invalid_arguments(fields));
                Ok((Fresh::Misfit(self.revision.clone(), verdict), retired))
            }
        }
    }
}

/// A pin that names no revision known here has no faults of its own.
fn misfit(faults: Option<Vec<FieldError>>) -> Refusal {
    let unknown = || vec![FieldError::new("", "names a revision that this tool does not have")];
    Refusal::invalid_arguments(faults.unwrap_or_else(unknown))
}

/// Every source that is present, each as text or as what is wrong with it.
fn present<'a>(
    argument: Option<&'a Value>,
    sources: &'a Sources,
) -> impl Iterator<Item = Result<String, String>> + 'a {
    let values = [argument, sources.meta.as_ref(), sources.member.as_ref()].into_iter().flatten();
    let texts = values.map(|value| {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| format!("must be a string, not {}", value.kind()))
    });
    texts.chain(header(&sources.headers))
}

/// `Idempotency-Key`: bare, or the quoted string of the IETF draft; repeated or with parameters it is invalid.
fn header(headers: &[Box<[u8]>]) -> Option<Result<String, String>> {
    let wrong =
        || Err("in the Idempotency-Key header must stand once, bare or quoted, without parameters".into());
    let value = match headers {
        [] => return None,
        [value] => value,
        _ => return Some(wrong()),
    };
    let Ok(text) = std::str::from_utf8(value) else { return Some(wrong()) };
    let text = text.trim_matches([' ', '\t']);
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = inner.unwrap_or(text);
    if bare.contains(['"', ';', ',']) { Some(wrong()) } else { Some(Ok(bare.to_owned())) }
}
