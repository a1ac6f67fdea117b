//! The heart: a receipt, or none, becomes an answer. Steps 8 and 9 of a write call, pure.

use crate::contract::{Call, Fresh, Reading};
use crate::receipt::{Committed, Receipt};
use crate::refusal::Refusal;
use crate::time::{DAY, Timestamp};
use crate::words::RequestId;

/// What follows from what the ledger remembers of a request id.
#[derive(Debug, PartialEq)]
pub enum Decision<'c, 'r> {
    /// Nothing is known: the call may write.
    Fresh(&'c Reading),
    /// It committed: this is its result.
    Replay(&'r Committed, &'r str),
    /// This try writes nothing.
    Refuse(Refusal),
}

/// Judges `call` by its receipt at the instant `now`: the database's clock where it has one.
///
/// Knows nothing of access, which has been asked before.
#[must_use]
pub fn decide<'c, 'r>(receipt: Option<&'r Receipt>, call: &'c Call, now: Timestamp) -> Decision<'c, 'r> {
    match receipt {
        None => absent(call, now),
        Some(Receipt::Voided) => Decision::Refuse(Refusal::request_id_voided()),
        Some(Receipt::Committed(committed)) => present(committed, call, now),
    }
}

fn present<'c, 'r>(committed: &'r Committed, call: &'c Call, now: Timestamp) -> Decision<'c, 'r> {
    match call.under(&committed.revision) {
        Some(reading) if reading.fingerprint == committed.fingerprint => kept(committed, call, now),
        Some(_) => Decision::Refuse(Refusal::request_id_reused()),
        None => Decision::Refuse(other_revision(committed, call)),
    }
}

/// Receipts of a revision that does not read this call.
fn other_revision(committed: &Committed, call: &Call) -> Refusal {
    match &call.fresh {
        // The live schema refuses these arguments, so what it once committed were others.
        Fresh::Misfit(live, _) if *live == committed.revision => Refusal::request_id_reused(),
        Fresh::Misfit(..) | Fresh::Live(_) | Fresh::Pinned => Refusal::revision_changed(committed.at),
    }
}

/// By the clock, and not by whether the result was pruned yet.
fn kept<'c, 'r>(committed: &'r Committed, call: &'c Call, now: Timestamp) -> Decision<'c, 'r> {
    let within = now <= committed.at.plus(call.windows.keep);
    match &committed.result {
        Some(result) if within => Decision::Replay(committed, result),
        Some(_) | None => Decision::Refuse(Refusal::result_expired(committed.at)),
    }
}

fn absent<'c, 'r>(call: &'c Call, now: Timestamp) -> Decision<'c, 'r> {
    // First, because where the fact may be gone nobody can say "not committed so far".
    if let Some(refusal) = dated(&call.request_id, call.windows.remember, now) {
        return Decision::Refuse(refusal);
    }
    match &call.fresh {
        Fresh::Pinned => Decision::Refuse(Refusal::revision_retired()),
        Fresh::Misfit(_, verdict) => Decision::Refuse((**verdict).clone()),
        Fresh::Live(reading) => Decision::Fresh(reading),
    }
}

/// Step 9: an id that carries its own time is refused where its fact may be gone, and where it comes from the
/// future, which would outlive every removal.
#[must_use]
pub fn dated(id: &RequestId, remember: std::time::Duration, now: Timestamp) -> Option<Refusal> {
    let made = id.dated()?;
    if made < now.minus(remember) {
        Some(Refusal::id_expired())
    } else if made > now.plus(DAY) {
        Some(Refusal::invalid_request_id("dates itself more than a day ahead"))
    } else {
        None
    }
}

/// Between which instants an id may commit, as [`dated`] judges it: for a store that must judge where no program can,
/// inside one statement. An id without a time in it may commit at any.
#[must_use]
pub fn commits_between(id: &RequestId, remember: std::time::Duration) -> (Timestamp, Timestamp) {
    let made = id.dated();
    let from = made.map_or(Timestamp::from_micros(i64::MIN), |made| made.minus(DAY));
    let until = made.map_or(Timestamp::from_micros(i64::MAX), |made| made.plus(remember));
    (from, until)
}
