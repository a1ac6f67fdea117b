//! The order of a call on this side: on disk, sent, answered, on disk; again within bounds; then one of three
//! answers. One function owns it: [`Client::drive`].

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::json::{self, Value, write_string};
use counterfoil_core::{Code, Epoch, Operation as Known, Reply, RequestId, Timestamp, wire};
use uuid::Uuid;

use crate::answer::{Answer, Away, Lost, Plain, Refused, reply};
use crate::journal::{Begun, Entry, Journal, JournalError, Problem, Recorded, Told, Try};
use crate::limits;
use crate::operation::{Arguments, Operation, Sending};
use crate::retry::{Budget, Policy};
use crate::session::{Listed, NoAnswer, Session};
use crate::state::{Event, State};
use crate::time::Time;
use crate::transport::Transport;
use crate::words::ServerUrl;

/// One server, one identity, one journal.
pub struct Client<T> {
    session: Session<T>,
    server: ServerUrl,
    journal: Arc<Journal>,
    time: Arc<dyn Time>,
    policy: Policy,
    watch: Option<Box<dyn Fn(Progress) + Send + Sync>>,
}

/// What a call is doing, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A try leaves.
    Trying {
        /// The how-manieth, since the operation was recorded.
        number: u32,
    },
    /// The next try waits.
    Waiting {
        /// How long.
        pause: Duration,
        /// Why the last one did not do.
        why: Box<str>,
    },
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done: it committed, now or earlier. A replayed reply is history, not what is there now.
    Replied(Reply),
    /// Answered by a server that knows no request ids.
    Plain(Plain),
    /// Done, and the result is not to be had any more.
    Committed(Option<Timestamp>),
    /// Not done, by a refusal.
    Refused(Refused),
    /// Not done: turned away at the door.
    Away(Away),
    /// Not done, and never will be.
    Voided,
    /// Given up earlier; with tries open, nobody knows.
    Abandoned {
        /// Tries without an answer.
        open: u32,
    },
    /// Nobody knows, or not yet: resume it, void it, or give it up.
    Unknown(Unknown),
}

/// Why nobody knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Unknown {
    /// Tries without an answer. With none it has not been done so far, and may still be resumed.
    pub open: u32,
    /// Why it stays so.
    pub why: Why,
}

/// What kept an operation from its end.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// The bounds of tries or time were reached; the last try ended so.
    Bounds(Box<str>),
    /// An earlier try is open, and a refusal speaks of its own try only.
    Refused(Refused),
    /// An earlier try is open, and this one was turned away.
    Away(Away),
    /// The server knows no request ids: another send could be a second effect.
    AtMostOnce,
    /// The operation is another caller's, or another server's: nothing was sent.
    OtherCaller,
    /// The server was asked to void it, and did not say what became of it.
    NotVoided(NoAnswer),
    /// The refusal could not be written to the journal: a later resume may send the operation again.
    NotWritten(Box<str>),
}

/// The end of a call, a resume or a void.
#[derive(Debug)]
pub struct Report {
    /// The operation's id.
    pub id: RequestId,
    /// What became of it.
    pub outcome: Outcome,
    /// How often it was sent, all in all.
    pub tries: u32,
    /// The journal failed after something was sent: it may know less than this report, and a resume finds out again.
    pub unwritten: Option<JournalError>,
}

impl<T: Transport> Client<T> {
    /// A client over an open session.
    #[must_use]
    pub fn new(
        session: Session<T>,
        server: ServerUrl,
        journal: Arc<Journal>,
        time: Arc<dyn Time>,
        policy: Policy,
    ) -> Self {
        Self { session, server, journal, time, policy, watch: None }
    }

    /// Tells `watch` what a call is doing.
    #[must_use]
    pub fn watched(self, watch: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { watch: Some(Box::new(watch)), ..self }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session<T> {
        &self.session
    }

    /// A new operation of this caller, under a new id unless one is given.
    #[must_use]
    pub fn operation(&self, tool: &Listed, arguments: Arguments, id: Option<RequestId>) -> Operation {
        Operation {
            id: id.unwrap_or_else(|| new_id(self.time.now())),
            server: self.server.clone(),
            caller: self.session.caller().clone(),
            tool: tool.name.clone(),
            arguments,
            sending: tool.sending(),
        }
    }

    /// Calls a tool that changes nothing, and needs no journal: asked again within the bounds while no answer comes.
    ///
    /// # Errors
    /// [`NoAnswer`]: that of the last try.
    pub async fn read(&self, tool: &Listed, arguments: &Arguments) -> Result<Value, NoAnswer> {
        let mut budget = self.policy.start(self.time.elapsed());
        let mut number: u32 = 0;
        loop {
            number = number.saturating_add(1);
            self.tell(Progress::Trying { number });
            let wait = budget.one_try(self.time.elapsed());
            let failure = match self.session.read(&*self.time, tool, arguments.as_str(), wait).await {
                Err(failure) if failure.again() => failure,
                other => return other,
            };
            let Some(pause) = budget.pause(self.time.elapsed(), None) else { return Err(failure) };
            self.tell(Progress::Waiting { pause, why: failure.to_string().into() });
            self.time.sleep(pause).await;
        }
    }

    /// Calls: persists the operation, sends it, and sends it again within the bounds.
    ///
    /// An operation that is in the journal already goes on from where it stands.
    ///
    /// # Errors
    /// The journal failed, and nothing was sent.
    pub async fn call(&self, operation: Operation) -> Result<Report, JournalError> {
        if !self.ours(&operation) {
            return Ok(report(&operation, 0, unknown(0, Why::OtherCaller)));
        }
        let now = self.time.now();
        let begun = self.on_disk(move |journal| journal.begin(now, &operation)).await?;
        self.drive(begun).await
    }

    /// Goes on from a try that is on disk.
    pub(crate) async fn take_up(&self, begun: Begun) -> Result<Report, JournalError> {
        self.drive(begun).await
    }

    /// Takes up an operation that a crash, or a bound, left open: the same id, the same bytes.
    ///
    /// # Errors
    /// The journal failed, and nothing was sent.
    pub async fn resume(&self, entry: &Entry) -> Result<Report, JournalError> {
        if !self.ours(&entry.operation) {
            return Ok(report(&entry.operation, entry.tries, unknown(entry.state.open(), Why::OtherCaller)));
        }
        let begun = self.again(Recorded::from(entry)).await?;
        self.drive(begun).await
    }

    /// Try after try. Each is on disk before it leaves, and what came of it is on disk before the next.
    async fn drive(&self, mut begun: Begun) -> Result<Report, JournalError> {
        let mut budget = self.policy.start(self.time.elapsed());
        loop {
            let attempt = match begun {
                Begun::Send(attempt) => attempt,
                Begun::Stays(entry) => return Ok(self.standing(&entry)),
            };
            let (recorded, number) = (attempt.recorded(), attempt.number());
            self.tell(Progress::Trying { number });
            let wait = budget.one_try(self.time.elapsed());
            let answer = self.session.send(&*self.time, &attempt, wait).await;
            let state = match self.answered(attempt, &answer).await {
                Ok(state) => state,
                Err(error) => return Ok(unwritten(&recorded, number, answer, error)),
            };
            if state.ended() || !self.goes_on(&recorded, &answer) {
                return Ok(report(recorded.operation(), number, outcome(state, answer)));
            }
            match self.pause(&mut budget, &answer) {
                Some(pause) => self.time.sleep(pause).await,
                None => return Ok(self.give_up(&recorded, number, (state, answer)).await),
            }
            begun = match self.again(recorded.clone()).await {
                Ok(begun) => begun,
                Err(error) => return Ok(stuck(&recorded, number, (state, answer), error)),
            };
        }
    }

    fn goes_on(&self, recorded: &Recorded, answer: &Answer) -> bool {
        let lost = matches!(answer, Answer::Lost(_));
        answer.again() && !(lost && recorded.operation().sending == Sending::AtMostOnce)
    }

    fn pause(&self, budget: &mut Budget, answer: &Answer) -> Option<Duration> {
        let pause = budget.pause(self.time.elapsed(), answer.retry_after())?;
        self.tell(Progress::Waiting { pause, why: why(answer) });
        Some(pause)
    }

    /// The bounds are reached. Even where no try is open the operation does not end: its caller is told that it
    /// can be resumed.
    async fn give_up(&self, recorded: &Recorded, tries: u32, last: (State, Answer)) -> Report {
        match self.note(recorded.clone(), Event::Unknown.into()).await {
            Ok(state) => {
                let outcome = unknown(state.open(), Why::Bounds(why(&last.1)));
                report(recorded.operation(), tries, outcome)
            }
            Err(error) => stuck(recorded, tries, last, error),
        }
    }

    /// Makes sure that an operation never commits, or learns that it has.
    ///
    /// # Errors
    /// The journal failed; the server may have voided it, and voiding it again is harmless.
    pub async fn void(&self, entry: &Entry) -> Result<Report, JournalError> {
        let open = entry.state.open();
        let stays = |why| Ok(report(&entry.operation, entry.tries, unknown(open, why)));
        if !self.ours(&entry.operation) {
            return stays(Why::OtherCaller);
        }
        match entry.state {
            State::Replied | State::Committed | State::Voided | State::Refused => {
                return Ok(self.standing(entry));
            }
            State::Ready | State::Sent { .. } | State::Unknown { .. } | State::Abandoned { .. } => {}
        }
        if entry.operation.sending == Sending::AtMostOnce {
            return stays(Why::AtMostOnce);
        }
        let answer = self.session.about(&*self.time, wire::VOID_OPERATION, &question(&entry.operation)).await;
        let told = match answer {
            Ok(answer) => fact(&entry.operation, &answer),
            Err(failure) => return stays(Why::NotVoided(failure)),
        };
        let Some(told) = told else {
            return stays(Why::NotVoided(NoAnswer::Declined("it cannot tell what became of it".into())));
        };
        let recorded = Recorded::from(entry);
        let told = if self.anothers(entry).await? { not_ours(told) } else { told };
        self.note(recorded.clone(), told).await?;
        let entry = self.on_disk(move |journal| journal.entry(&recorded)).await?;
        Ok(self.standing(&entry))
    }

    /// Gives an operation up: it is not sent again by anybody. With tries open, nobody will know what became of it.
    ///
    /// # Errors
    /// The journal failed, or the operation has ended.
    pub async fn abandon(&self, entry: &Entry) -> Result<State, JournalError> {
        self.note(Recorded::from(entry), Event::Abandoned.into()).await
    }

    /// Asks about operations whose replies belong to another history of the server's database than `epoch`, and
    /// marks those that a restore undid. Bounded by [`limits::RECONCILE`]; gives the undone ones.
    ///
    /// # Errors
    /// The journal failed.
    pub async fn undone(&self, epoch: &Epoch) -> Result<Vec<Entry>, JournalError> {
        let (server, caller, here) = (self.server.clone(), self.session.caller().clone(), epoch.clone());
        let page = self
            .on_disk(move |journal| journal.elsewhere((&server, &caller, &here), None, limits::RECONCILE))
            .await?;
        let mut undone = Vec::new();
        for mut entry in page.entries {
            let arguments = question(&entry.operation);
            // One question that is not answered ends the asking; the next call asks again.
            let answer = self.session.about(&*self.time, wire::OPERATION_STATUS, &arguments).await;
            let Ok(answer) = answer else { break };
            let survived = match answer.get("state").and_then(Value::as_str) {
                Some("committed") => true,
                Some("not_committed_so_far" | "voided") => false,
                _ => continue,
            };
            let (copy, here) = (entry.clone(), epoch.clone());
            self.on_disk(move |journal| journal.restored(&copy, &here, survived)).await?;
            if !survived {
                entry.undone_in = Some(epoch.clone());
                undone.push(entry);
            }
        }
        Ok(undone)
    }

    /// What the journal says of an operation that is not sent (again).
    fn standing(&self, entry: &Entry) -> Report {
        let outcome = match entry.state {
            State::Replied => replied(entry),
            State::Committed => Outcome::Committed(entry.committed_at),
            State::Refused => refused(entry),
            State::Voided => Outcome::Voided,
            State::Abandoned { open } => Outcome::Abandoned { open },
            State::Ready | State::Sent { .. } | State::Unknown { .. } => {
                unknown(entry.state.open(), Why::AtMostOnce)
            }
        };
        report(&entry.operation, entry.tries, outcome)
    }

    /// Has a try been told that the id is another operation's? Then so is what the server knows under it.
    async fn anothers(&self, entry: &Entry) -> Result<bool, JournalError> {
        let entry = entry.clone();
        let history = self.on_disk(move |journal| journal.history(&entry)).await?;
        Ok(history.iter().any(|happened| happened.code.as_deref() == Some(Code::RequestIdReused.as_str())))
    }

    fn ours(&self, operation: &Operation) -> bool {
        operation.server == self.server && operation.caller == *self.session.caller()
    }

    fn tell(&self, progress: Progress) {
        if let Some(watch) = &self.watch {
            watch(progress);
        }
    }

    async fn again(&self, recorded: Recorded) -> Result<Begun, JournalError> {
        let now = self.time.now();
        self.on_disk(move |journal| journal.again(now, &recorded)).await
    }

    async fn answered(&self, attempt: Try, answer: &Answer) -> Result<State, JournalError> {
        let (now, told) = (self.time.now(), answer.told());
        self.on_disk(move |journal| journal.answered(now, attempt, &told)).await
    }

    async fn note(&self, recorded: Recorded, told: Told) -> Result<State, JournalError> {
        let now = self.time.now();
        self.on_disk(move |journal| journal.note(now, &recorded, &told)).await
    }

    /// The journal blocks; the runtime must not.
    async fn on_disk<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Journal) -> Result<R, JournalError> + Send + 'static,
    ) -> Result<R, JournalError> {
        let journal = Arc::clone(&self.journal);
        let done = tokio::task::spawn_blocking(move || work(&journal)).await;
        done.unwrap_or_else(|_| Err(Problem::Failed.into()))
    }
}

/// A UUIDv7: dated, so that servers can tell when they have forgotten it, and not to be guessed.
#[must_use]
pub fn new_id(now: Timestamp) -> RequestId {
    RequestId::uuid_v7(now, Uuid::new_v4().as_u128())
}

fn report(operation: &Operation, tries: u32, outcome: Outcome) -> Report {
    Report { id: operation.id.clone(), outcome, tries, unwritten: None }
}

fn unknown(open: u32, why: Why) -> Outcome {
    Outcome::Unknown(Unknown { open, why })
}

/// The state decides; the answer says what it rests on.
fn outcome(state: State, answer: Answer) -> Outcome {
    let open = state.open();
    match (answer, state) {
        (Answer::Replied(reply), _) => Outcome::Replied(reply),
        (Answer::Plain(plain), _) => Outcome::Plain(plain),
        (answer, State::Replied | State::Committed) => Outcome::Committed(committed_at(&answer)),
        (_, State::Voided) => Outcome::Voided,
        (_, State::Abandoned { open }) => Outcome::Abandoned { open },
        (Answer::Refused(refused), State::Refused) => Outcome::Refused(refused),
        (Answer::Refused(refused), State::Ready | State::Sent { .. } | State::Unknown { .. }) => {
            unknown(open, Why::Refused(refused))
        }
        (Answer::Away(away), State::Refused) => Outcome::Away(away),
        (Answer::Away(away), State::Ready | State::Sent { .. } | State::Unknown { .. }) => {
            unknown(open, Why::Away(away))
        }
        (Answer::Lost(lost), _) => unknown(open, Why::Bounds(lost.why)),
    }
}

fn committed_at(answer: &Answer) -> Option<Timestamp> {
    match answer {
        Answer::Replied(reply) => Some(reply.committed_at),
        Answer::Refused(Refused { operation: Some(Known::Committed(at)), .. }) => Some(*at),
        Answer::Refused(_) | Answer::Plain(_) | Answer::Away(_) | Answer::Lost(_) => None,
    }
}

/// The answer is known and cannot be written. A fact is a fact; a refusal is none while a resume may send again.
fn unwritten(recorded: &Recorded, tries: u32, answer: Answer, error: JournalError) -> Report {
    let outcome = match answer {
        Answer::Replied(reply) => Outcome::Replied(reply),
        Answer::Plain(plain) => Outcome::Plain(plain),
        Answer::Refused(_) | Answer::Away(_) | Answer::Lost(_) => {
            unknown(1, Why::NotWritten(error.to_string().into()))
        }
    };
    Report { unwritten: Some(error), ..report(recorded.operation(), tries, outcome) }
}

/// The journal failed between two tries: nothing more is sent, and what was sent stays as it is on disk.
fn stuck(recorded: &Recorded, tries: u32, (state, last): (State, Answer), error: JournalError) -> Report {
    let outcome = unknown(state.open(), Why::Bounds(why(&last)));
    Report { unwritten: Some(error), ..report(recorded.operation(), tries, outcome) }
}

fn why(answer: &Answer) -> Box<str> {
    match answer {
        Answer::Replied(_) | Answer::Plain(_) => "answered".into(),
        Answer::Refused(refused) => refused.code.as_str().into(),
        Answer::Away(away) => away.why.clone(),
        Answer::Lost(Lost { code: Some(code), .. }) => code.as_str().into(),
        Answer::Lost(lost) => lost.why.clone(),
    }
}

/// A reply from the journal is history, whoever was told it first.
fn replied(entry: &Entry) -> Outcome {
    let stored = entry.answer.as_deref().unwrap_or("null");
    if entry.operation.sending == Sending::AtMostOnce {
        return Outcome::Plain(Plain::of(stored));
    }
    let bounds = json::Bounds { nesting: limits::ANSWER_NESTING, values: limits::ANSWER_VALUES };
    let value = json::parse(stored.as_bytes(), bounds);
    match value.ok().as_ref().and_then(|value| reply(value, &entry.operation.id)) {
        Some(reply) => Outcome::Replied(Reply { replayed: true, ..reply }),
        None if Plain::looks_like(stored) => Outcome::Plain(Plain::of(stored)),
        None => Outcome::Committed(entry.committed_at),
    }
}

fn refused(entry: &Entry) -> Outcome {
    let stored =
        entry.answer.as_deref().and_then(|text| json::parse(text.as_bytes(), json::Bounds::default()).ok());
    match stored.as_ref().and_then(Refused::read) {
        Some(refused) => Outcome::Refused(refused),
        None => Outcome::Away(Away { why: "it was turned away".into(), again: false, retry_after: None }),
    }
}

/// What committed under the id was another operation, and keeps this one from it for ever: as good as a void.
fn not_ours(told: Told) -> Told {
    match told.event {
        Event::Replied | Event::Refused { known: Some(Known::Committed(_)), .. } => Event::Voided.into(),
        Event::Recorded
        | Event::Sent
        | Event::Refused {
            known: Some(Known::Voided | Known::NotCommittedSoFar | Known::Unknown) | None,
            ..
        }
        | Event::Unknown
        | Event::Voided
        | Event::Abandoned => told,
    }
}

/// `{tool, operation}`. A pinned name asks about the tool itself.
fn question(operation: &Operation) -> String {
    let tool = operation.tool.as_str();
    let mut out = String::from("{\"tool\":");
    write_string(&mut out, tool.split_once('.').map_or(tool, |(tool, _)| tool));
    out.push_str(",\"operation\":");
    write_string(&mut out, operation.id.as_str());
    out.push('}');
    out
}

/// What a built-in tool's answer says for certain.
fn fact(operation: &Operation, answer: &Value) -> Option<Told> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    if text("request_id")? != operation.id.as_str() {
        return None;
    }
    match text("state")? {
        "voided" => Some(Event::Voided.into()),
        "committed" => {
            let at = Timestamp::parse(text("committed_at")?).ok()?;
            let epoch = Epoch::parse(text("epoch")?).ok()?;
            let event = Event::Refused { known: Some(Known::Committed(at)), again: false };
            let reply = answer.get("result").map(|result| Reply {
                result: json::text(result).into(),
                request_id: operation.id.clone(),
                replayed: true,
                committed_at: at,
                epoch: epoch.clone(),
                current: None,
            });
            let event = if reply.is_some() { Event::Replied } else { event };
            let answer = reply.map(|reply| reply.body().into());
            Some(Told { answer, committed_at: Some(at), epoch: Some(epoch), ..event.into() })
        }
        _ => None,
    }
}
