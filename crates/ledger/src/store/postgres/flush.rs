//! A call of a declared tool: everything it needs in one flush, and one more where that did not decide it.

use counterfoil_core::{Call, Decision, Reading, Receipt, Refusal, Reply, Timestamp, decide};
use futures_util::future::join4;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::attempt::{Handler, answered, judge};
use super::declared::{Composed, Form, NOT_GIVEN, TOO_LARGE, UNCHANGED, Values};
use super::doubt::Doubt;
use super::error::{RETRY_AFTER, lost, missing, of_receipts, raced, raised, repeatable};
use super::list::several;
use super::pool::{Connection, Planning};
use super::receipts::{Words, fault_of_ours, instant, receipt, timestamp};
use super::retry::Setback;
use super::turn::{Receipts, bounded};
use super::tx::{COMMIT, Tx};
use crate::fault::Fault;
use crate::key::Key;
use crate::rule::same_operation;

/// What the one statement came to, where it gave no reply.
pub(super) enum Met {
    /// Not to be told here: somebody's trigger has raised it, and it matters whose.
    Unclear,
    /// It is over for this try.
    Over(Setback),
    /// Nothing is written, for this reason; a new look comes first.
    Verdict(Verdict),
}

/// Why nothing is written, if no receipt says otherwise.
pub(super) enum Verdict {
    /// No row fitted the conditions of this statement.
    Unchanged(usize),
    /// More rows than one.
    Many,
    /// The result is larger than the ledger keeps.
    TooLarge,
    /// Access, or the time in the request id, did not pass.
    NotGiven,
    /// Anything else.
    Fault(Fault),
}

/// What a look tells.
enum Looked {
    /// A receipt, or a rule, has answered. What is answered from a receipt must be durable.
    Answered { answer: Result<Reply, Refusal>, receipt: bool },
    /// The call may write; the row as it is now.
    Fresh(Option<Box<str>>),
}

pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// Steps 6 to 12 of a call whose handler has declared its write. `None`: nothing is written, and the handler's steps
/// decide.
pub(super) async fn at_once(
    receipts: &Receipts,
    call: &Call,
    handler: &mut dyn Handler,
    tx: &mut Tx,
    doubt: &Doubt,
    retry: bool,
) -> Option<Result<Reply, Setback>> {
    // One statement knows one reading of the arguments.
    let reading = call.live().filter(|_| call.retired.is_empty())?;
    let values = handler.declared()?;
    bounded(reading).ok()?;
    if retry && !doubt.raised() {
        match look(receipts, call, &values, tx).await {
            Ok(Looked::Fresh(_)) => {}
            Ok(answered) => return Some(told(answered, tx, doubt).await),
            Err(Setback::Failed(_)) => return None,
            Err(setback) => return Some(Err(setback)),
        }
    }
    let written = match &values.declared.write {
        Form::Single(one) => write(receipts, call, reading, &values, one, tx, doubt).await,
        Form::List(list) => several(receipts, call, reading, &values, list, tx, doubt).await,
    };
    let met = match written {
        Ok(reply) => return Some(Ok(reply)),
        Err(Met::Unclear) => return None,
        Err(Met::Over(setback)) => return Some(Err(setback)),
        Err(Met::Verdict(verdict)) => verdict,
    };
    drop(values);
    Some(again(receipts, call, handler, tx, doubt, met).await)
}

/// Nothing was written, and why that is: not before receipt and access have been read again.
async fn again(
    receipts: &Receipts,
    call: &Call,
    handler: &mut dyn Handler,
    tx: &mut Tx,
    doubt: &Doubt,
    verdict: Verdict,
) -> Result<Reply, Setback> {
    let looked = match handler.declared() {
        // An older try may be waited for, and that takes steps.
        Some(values) if !doubt.raised() => look(receipts, call, &values, tx).await,
        Some(_) | None => {
            let fault = fault_of(verdict, handler, None, receipts.result_limit);
            return judge(receipts, call, handler, tx, fault, doubt).await;
        }
    };
    match looked {
        Ok(Looked::Fresh(_)) if matches!(verdict, Verdict::NotGiven) => Err(Setback::Again),
        Ok(Looked::Fresh(current)) => {
            let fault = fault_of(verdict, handler, current, receipts.result_limit);
            Err(fault.into())
        }
        Ok(answered) => told(answered, tx, doubt).await,
        Err(Setback::Failed(_)) => {
            let fault = fault_of(verdict, handler, None, receipts.result_limit);
            judge(receipts, call, handler, tx, fault, doubt).await
        }
        Err(setback) => Err(setback),
    }
}

fn fault_of(verdict: Verdict, handler: &mut dyn Handler, current: Option<Box<str>>, limit: usize) -> Fault {
    match verdict {
        Verdict::Unchanged(statement) => handler.unmet(statement, current).into(),
        Verdict::Many => Refusal::precondition_failed(None).into(),
        Verdict::TooLarge => Refusal::result_too_large(limit).into(),
        // It passes now: another try would tell.
        Verdict::NotGiven => Refusal::busy(RETRY_AFTER).into(),
        Verdict::Fault(fault) => fault,
    }
}

async fn told(looked: Looked, tx: &mut Tx, doubt: &Doubt) -> Result<Reply, Setback> {
    match looked {
        Looked::Answered { answer, receipt } if !receipt || tx.fenced() => answer.map_err(Setback::from),
        Looked::Answered { answer, .. } => match tx.begin_write().await {
            Ok(()) => answered(tx, answer, doubt).await,
            Err(fault) => Err(fault.into()),
        },
        Looked::Fresh(_) => Err(Setback::Again),
    }
}

/// Access, write, receipt and commit, in one flush.
async fn write(
    receipts: &Receipts,
    call: &Call,
    reading: &Reading,
    values: &Values<'_>,
    one: &Composed,
    tx: &mut Tx,
    doubt: &Doubt,
) -> Result<Reply, Met> {
    let key = Key::from(call);
    let words = Words::of(&key);
    let (revision, intent) = (reading.revision.as_str(), call.stored(reading));
    let fingerprint = reading.fingerprint.as_bytes().as_slice();
    let (from, until) = decide::commits_between(&call.request_id, call.windows.remember);
    let (from, until) = (instant(from), instant(until));
    let mut own: Vec<Value<'_>> = words.values().collect();
    own.extend([&revision as Value<'_>, &fingerprint, &intent, &from, &until]);
    let before = doubt.begun();
    let sent = send(tx, one, &own, values, Planning::AsEver).await;
    let unreplicated = tx.connection().unreplicated();
    let rows = match sent {
        Ok(rows) if !unreplicated => rows,
        Ok(_) => return Err(Met::Over(Setback::Doubt)),
        Err(Fault::Postgres(error)) if lost(&error) => return Err(Met::Over(Setback::Doubt)),
        Err(fault) => {
            doubt.back(before);
            return Err(met(fault));
        }
    };
    doubt.settled();
    tx.connection().fence();
    let read = |row: &Row| Ok((timestamp(row.try_get(0)?), row.try_get::<_, &str>(1)?.into()));
    match rows.first().map(read) {
        Some(Ok((committed_at, result))) => Ok(receipts.fresh(call, committed_at, result)),
        Some(Err(error)) => Err(met(Fault::Postgres(error))),
        None => Err(met(Fault::Broken("a receipt was swallowed by a trigger or rule".into()))),
    }
}

/// What an error of the one statement says. It has undone everything.
fn met(fault: Fault) -> Met {
    let Fault::Postgres(error) = fault else { return Met::Verdict(Verdict::Fault(fault)) };
    if repeatable(&error) {
        return Met::Over(Setback::Again);
    }
    if raised(&error) {
        return Met::Unclear;
    }
    Met::Verdict(match missing(&error) {
        Some(UNCHANGED) => Verdict::Unchanged(0),
        Some(NOT_GIVEN) => Verdict::NotGiven,
        Some(TOO_LARGE) => Verdict::TooLarge,
        _ if raced(&error) => Verdict::Many,
        _ if of_receipts(&error) => Verdict::Fault(fault_of_ours(error)),
        _ => Verdict::Fault(error.into()),
    })
}

/// Steps 7 to 9 in one statement and one snapshot.
async fn look(receipts: &Receipts, call: &Call, values: &Values<'_>, tx: &mut Tx) -> Result<Looked, Setback> {
    let key = Key::from(call);
    let words = Words::of(&key);
    let own: Vec<Value<'_>> = words.values().collect();
    let rows = send(tx, &values.declared.look, &own, values, Planning::ByIndex).await?;
    let row = rows.first().ok_or_else(|| Fault::Broken("a look-up told nothing".into()))?;
    let seen = Seen::of(row)?;
    let same = same_operation(seen.receipt.as_ref(), call).is_some();
    if !(if same { seen.replayable } else { seen.allowed }) {
        return Ok(Looked::Answered { answer: Err(Refusal::resource_unavailable()), receipt: false });
    }
    let known = seen.receipt.is_some();
    let shown = values.declared.shows_current
        && seen.current.as_ref().is_none_or(|row| row.len() <= receipts.result_limit);
    let current = seen.current.filter(|_| shown);
    Ok(match decide(seen.receipt.as_ref(), call, seen.now) {
        Decision::Fresh(_) => Looked::Fresh(current),
        Decision::Refuse(refusal) => Looked::Answered { answer: Err(refusal), receipt: known },
        Decision::Replay(committed, result) => {
            let reply = receipts.replay(call, committed, result);
            Looked::Answered { answer: Ok(Reply { current, ..reply }), receipt: true }
        }
    })
}

/// The look's one row.
struct Seen {
    now: Timestamp,
    allowed: bool,
    replayable: bool,
    receipt: Option<Receipt>,
    current: Option<Box<str>>,
}

impl Seen {
    fn of(row: &Row) -> Result<Self, Fault> {
        let (member, rule): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
        let replay: Option<bool> = row.try_get(3)?;
        let allowed = member && rule;
        Ok(Self {
            now: timestamp(row.try_get(0)?),
            allowed,
            replayable: member && replay.unwrap_or(rule),
            receipt: receipt(row, 4)?,
            current: row.try_get::<_, Option<&str>>(9)?.filter(|_| allowed).map(Into::into),
        })
    }
}

/// Sends one statement: alone and in a transaction of its own where that is enough; between BEGIN and COMMIT, in the
/// same flush, where settings must hold for it alone.
async fn send(
    tx: &mut Tx,
    composed: &Composed,
    own: &[Value<'_>],
    values: &Values<'_>,
    planning: Planning,
) -> Result<Vec<Row>, Fault> {
    let missing = || Fault::Misuse("a declared tool is called with too few values");
    let parameters = composed.values(own, &values.values).ok_or_else(missing)?;
    let session = match &values.declared.session {
        None => None,
        Some(session) => Some((session, session.values(&[], &values.values).ok_or_else(missing)?)),
    };
    let bracket = session.is_some() || !tx.keeps_statements();
    tx.opened();
    tx.connection().plan(planning);
    let sent = if bracket {
        bracketed(tx, (composed, parameters), session).await
    } else {
        query(tx.connection(), (composed, parameters)).await
    };
    match &sent {
        // Severed, when the transaction is dropped.
        Err(error) if lost(error) => {}
        Err(_) if bracket => tx.rollback(),
        Ok(_) | Err(_) => tx.closed(),
    }
    Ok(sent?)
}

pub(super) type Bound<'a, 'v> = (&'a Composed, Vec<Value<'v>>);

/// One statement: kept where the connection keeps any, and otherwise unnamed and typed.
pub(super) async fn query(
    connection: &Connection,
    (composed, parameters): Bound<'_, '_>,
) -> Result<Vec<Row>, Error> {
    if connection.keeps() {
        let statement = connection.statement(composed).await?;
        return connection.wrapper.query(&statement, &parameters).await;
    }
    let typed: Vec<_> = parameters.into_iter().zip(composed.types.iter().cloned()).collect();
    connection.wrapper.query_typed(&composed.sql, &typed).await
}

async fn bracketed(
    tx: &Tx,
    statement: Bound<'_, '_>,
    session: Option<Bound<'_, '_>>,
) -> Result<Vec<Row>, Error> {
    let connection = tx.connection();
    for composed in session.iter().map(|(session, _)| *session).chain([statement.0]) {
        connection.prepare(composed).await?;
    }
    let begin = connection.beginning("BEGIN ISOLATION LEVEL READ COMMITTED");
    let set = async {
        match session {
            Some(session) => query(connection, session).await.map(drop),
            None => Ok(()),
        }
    };
    let wrapper = &connection.wrapper;
    let (begun, set, rows, committed) = join4(
        wrapper.batch_execute(&begin),
        set,
        query(connection, statement),
        wrapper.batch_execute(COMMIT),
    )
    .await;
    begun?;
    set?;
    let rows = rows?;
    committed?;
    Ok(rows)
}
