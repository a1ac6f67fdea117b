//! When results and facts may go, and by which clock: judged purely. The stores do the removing, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_core::time::DAY;
use counterfoil_core::{Refusal, Timestamp, ToolName, Windows};

use crate::record::Whose;

/// How far apart the clocks of two servers may be without anything being said. Nothing is removed before its window
/// has been over for this long.
pub const SKEW: Duration = Duration::from_secs(300);

/// The longest time without a removal that is taken for a pause. What looks like more is a clock that has jumped until
/// an operator says otherwise.
pub const PAUSE: Duration = Duration::from_secs(32 * 86_400);

/// Looks at the clock, one a minute, in which no other server has moved the mark before a pause is believed.
const QUIET: u32 = 10;
/// As [`QUIET`], after the clock was seen to jump: a day.
const QUIET_AFTER_A_JUMP: u32 = 1440;

/// How long receipts last, by the ledger name of their tool.
#[derive(Debug, Clone)]
pub struct Terms {
    tools: BTreeMap<String, Windows>,
    longest: Windows,
}

impl Terms {
    /// Those of the `declared` tools. Receipts of all others last as long as the longest of these and of the default:
    /// a tool that is not declared today may be again tomorrow.
    pub fn new(declared: impl IntoIterator<Item = (ToolName, Windows)>) -> Self {
        let (mut tools, mut longest) = (BTreeMap::new(), Windows::default());
        for (tool, windows) in declared {
            longest.keep = longest.keep.max(windows.keep);
            longest.remember = longest.remember.max(windows.remember);
            tools.insert(tool.as_str().to_owned(), windows);
        }
        Self { tools, longest }
    }

    /// How long receipts of `tool` last.
    #[must_use]
    pub fn windows(&self, tool: &str) -> Windows {
        self.tools.get(tool).copied().unwrap_or(self.longest)
    }

    /// Is it among the declared?
    #[must_use]
    pub fn declares(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }

    /// Results of `tool` from before this instant may go.
    #[must_use]
    pub fn results_before(&self, tool: &str, as_of: Timestamp) -> Timestamp {
        as_of.minus(self.windows(tool).keep).minus(SKEW)
    }

    /// Facts and voids of `tool` from before this instant may go: a day later than `remember`, because an id may date
    /// itself a day ahead, so that it is refused by its date before its fact is gone.
    #[must_use]
    pub fn facts_before(&self, tool: &str, as_of: Timestamp) -> Timestamp {
        as_of.minus(self.windows(tool).remember).minus(DAY).minus(SKEW)
    }
}

/// How much one step may do.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Receipts at most.
    pub rows: usize,
    /// No new batch after this long.
    pub time: Duration,
    /// Rest after it, at least; and never less than four times what it took.
    pub rest: Duration,
}

impl Default for Bounds {
    /// For removal beside calls, with which a step shares a commit. Found by trying against the figure `prune` (the
    /// slowest call in a hundred takes at most twice as long as without removal). What size, rest and checkpoints of
    /// the log each contribute has not been measured.
    fn default() -> Self {
        Self { rows: 64, time: Duration::from_millis(2), rest: Duration::from_millis(25) }
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Receipts whose result and intent went.
    pub results: u64,
    /// Receipts that went as a whole, voids among them.
    pub facts: u64,
    /// More is overdue.
    pub more: bool,
    /// Another server is at it: nothing was done.
    pub elsewhere: bool,
}

/// What is overdue of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// By its ledger name.
    pub tool: String,
    /// Whether the terms name it.
    pub declared: bool,
    /// Receipts whose result and intent may go, and whose fact stays.
    pub results: u64,
    /// Receipts that may go as a whole.
    pub facts: u64,
    /// When the longest overdue of them should have gone.
    pub since: Option<Timestamp>,
}

/// How many receipts, and since when the oldest of them is overdue.
pub(crate) type Counted = (u64, Option<Timestamp>);

impl Overdue {
    /// From what a store counts: receipts with results and facts without one that are over, and those with results whose
    /// fact is over too.
    pub(crate) fn of(tool: String, terms: &Terms, [results, facts, past]: [Counted; 3]) -> Self {
        let since = [results.1, facts.1, past.1].into_iter().flatten().min();
        let declared = terms.declares(&tool);
        Self { tool, declared, results: results.0.saturating_sub(past.0), facts: facts.0 + past.0, since }
    }
}

/// What a server remembers between two looks at the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watch {
    mark: Option<Timestamp>,
    quiet: u32,
    jumped: bool,
}

impl Watch {
    /// The clock has moved by something else than the time that has passed.
    pub fn jump(&mut self) {
        (self.jumped, self.quiet) = (true, 0);
    }
}

/// What a look at the clock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// It agrees with the steps before.
    Steady,
    /// There was no step before.
    First,
    /// It is so far behind: it went back, or the server of the last step is ahead.
    Behind(Duration),
    /// It is so far ahead: nothing was removed for so long, it jumped, or another server is behind.
    Ahead(Duration),
    /// Another server is removing at this moment, and looks at it.
    Elsewhere,
}

/// A look at the clock: what it found, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// What was found.
    pub drift: Drift,
    /// What is overdue by this instant may go now; `None`: nothing may.
    pub as_of: Option<Timestamp>,
    /// The new mark.
    pub mark: Timestamp,
    /// The clock that was looked at.
    pub now: Timestamp,
    /// To be given to the next look.
    pub watch: Watch,
}

/// Judges the clock `now` by the `mark` that the last step of any server left.
///
/// A lower mark is always safe, so it is believed at once. A higher one is believed only where nobody contradicts it:
/// a server whose clock is right would have moved the mark in the meantime.
#[must_use]
pub fn judge(mark: Option<Timestamp>, now: Timestamp, watch: Watch) -> Look {
    let Some(mark) = mark else {
        return Look { drift: Drift::First, as_of: None, mark: now, now, watch: seen(watch, now) };
    };
    if now.plus(SKEW) < mark {
        let drift = Drift::Behind(between(now, mark));
        return Look { drift, as_of: None, mark: now, now, watch: seen(watch, now) };
    }
    if now <= mark.plus(SKEW) {
        let watch = Watch { mark: Some(now), quiet: 0, jumped: watch.jumped };
        return Look { drift: Drift::Steady, as_of: Some(now), mark: now, now, watch };
    }
    let quiet = if watch.mark == Some(mark) { watch.quiet.saturating_add(1) } else { 0 };
    let enough = if watch.jumped { QUIET_AFTER_A_JUMP } else { QUIET };
    if quiet >= enough && now <= mark.plus(PAUSE) {
        let watch = Watch { mark: Some(now), quiet: 0, jumped: false };
        return Look { drift: Drift::Steady, as_of: Some(now), mark: now, now, watch };
    }
    let watch = Watch { mark: Some(mark), quiet, jumped: watch.jumped };
    Look { drift: Drift::Ahead(between(mark, now)), as_of: Some(mark), mark, now, watch }
}

/// Judges the clock for an operator's one command: a pause is believed at once, anything more only if `trust`.
#[must_use]
pub fn judge_once(mark: Option<Timestamp>, now: Timestamp, trust: bool) -> Look {
    let watch = Watch { mark, quiet: QUIET, jumped: false };
    let believed = Look { drift: Drift::Steady, as_of: Some(now), mark: now, now, watch };
    if trust || mark.is_none() { believed } else { judge(mark, now, watch) }
}

fn seen(watch: Watch, mark: Timestamp) -> Watch {
    Watch { mark: Some(mark), quiet: 0, jumped: watch.jumped }
}

/// Zero if `later` is the earlier.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::from_micros(later.micros().saturating_sub(earlier.micros()).max(0).unsigned_abs())
}

/// The part of the age index with what `tool` still holds.
pub(crate) fn held(tool: &str) -> String {
    format!("+{tool}")
}

/// The part with its bare facts and voids.
pub(crate) fn bare(tool: &str) -> String {
    format!("-{tool}")
}

/// The tools of the parts, each once.
pub(crate) fn tools_of(parts: Vec<String>) -> Vec<String> {
    let tools: BTreeSet<String> = parts.iter().filter_map(|part| part.get(1..)).map(str::to_owned).collect();
    tools.into_iter().collect()
}

/// As it stands in the database.
pub(crate) fn read_mark(value: &str) -> Option<Timestamp> {
    value.parse().ok().filter(|micros| *micros != 0).map(Timestamp::from_micros)
}

/// A ledger that removes.
pub trait Removal: Send + Sync {
    /// Looks at the clock, and moves the mark that all servers share. Once a minute, say.
    fn look(&self, watch: Watch) -> impl Future<Output = Result<Look, Refusal>> + Send;

    /// As [`Removal::look`], for an operator's one command; `trust` believes the clock whatever it says.
    fn look_once(&self, trust: bool) -> impl Future<Output = Result<Look, Refusal>> + Send;

    /// Removes some of what is overdue at the instant `as_of`, in one transaction.
    fn step(
        &self,
        terms: &Arc<Terms>,
        as_of: Timestamp,
        bounds: Bounds,
    ) -> impl Future<Output = Result<Removed, Refusal>> + Send;

    /// What is overdue at the instant `as_of`, tool by tool.
    fn overdue(
        &self,
        terms: &Arc<Terms>,
        as_of: Timestamp,
    ) -> impl Future<Output = Result<Vec<Overdue>, Refusal>> + Send;

    /// Removes some of the results and intents of a person, and keeps the facts; tells how many. None: all are gone.
    fn forget(&self, whose: &Whose, bounds: Bounds) -> impl Future<Output = Result<u64, Refusal>> + Send;
}

/// Rest between two steps, in times of the last one's length: calls have the database four fifths of the time.
const REST: u32 = 4;

/// Removes all that is overdue at the instant `as_of`, step by step with rests between, and shows each step to `see`
/// until that says stop. Every step is whole in itself: what is cut short goes on next time.
///
/// # Errors
/// What a step met; what went before it stays done.
pub async fn pass<R: Removal>(
    ledger: &R,
    terms: &Arc<Terms>,
    as_of: Timestamp,
    bounds: Bounds,
    mut see: impl FnMut(Removed) -> Onward + Send,
) -> Result<(), Refusal> {
    loop {
        let begun = Instant::now();
        let removed = ledger.step(terms, as_of, bounds).await?;
        if see(removed) == Onward::Stop || !removed.more {
            return Ok(());
        }
        tokio::time::sleep(bounds.rest.max(begun.elapsed() * REST)).await;
    }
}

/// Whether a pass goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onward {
    /// With the next step.
    Go,
    /// Later.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;
    const DAY: i64 = 86_400_000_000;
    const T: i64 = 1_796_000_000_000_000;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(T + micros)
    }

    /// The marks that other servers leave before each look, and what the looks find.
    fn check(what: &str, looks: &[(Option<i64>, i64, bool)], wanted: (Drift, Option<i64>)) {
        let (mut mark, mut watch, mut last) = (Some(at(0)), Watch::default(), None);
        for (other, now, jumped) in looks {
            mark = other.map_or(mark, |other| Some(at(other)));
            if *jumped {
                watch.jump();
            }
            let look = judge(mark, at(*now), watch);
            (mark, watch, last) = (Some(look.mark), look.watch, Some(look));
        }
        let look = last.unwrap();
        assert_eq!((look.drift, look.as_of), (wanted.0, wanted.1.map(at)), "{what}");
    }

    #[test]
    fn time_is_believed_only_where_nobody_contradicts_it() {
        let ahead = |micros: i64| Drift::Ahead(Duration::from_micros(micros.unsigned_abs()));
        let behind = |micros: i64| Drift::Behind(Duration::from_micros(micros.unsigned_abs()));
        check("a minute later", &[(None, MINUTE, false)], (Drift::Steady, Some(MINUTE)));
        check("a little behind", &[(None, -MINUTE, false)], (Drift::Steady, Some(-MINUTE)));
        check("back a day", &[(None, -DAY, false)], (behind(DAY), None));
        let back = [(None, -DAY, false), (None, MINUTE - DAY, false)];
        check("back a day, and on from there", &back, (Drift::Steady, Some(MINUTE - DAY)));
        check("forward a year", &[(None, 365 * DAY, false)], (ahead(365 * DAY), Some(0)));
        let year: Vec<_> = (0..5000).map(|minute| (None, 365 * DAY + minute * MINUTE, false)).collect();
        check("forward a year, for days", &year, (ahead(365 * DAY + 4999 * MINUTE), Some(0)));
        let pause: Vec<_> = (0..11).map(|minute| (None, DAY + minute * MINUTE, false)).collect();
        check("after a pause of a day, not yet", &pause[..10], (ahead(DAY + 9 * MINUTE), Some(0)));
        check("after a pause of a day", &pause, (Drift::Steady, Some(DAY + 10 * MINUTE)));
        let jump: Vec<_> = (0..60).map(|minute| (None, DAY + minute * MINUTE, minute == 0)).collect();
        check("a jump of a day that was seen", &jump, (ahead(DAY + 59 * MINUTE), Some(0)));
        let two: Vec<_> =
            (0..5000).map(|minute| (Some(minute * MINUTE), DAY + minute * MINUTE, false)).collect();
        check("an hour beside a server whose clock is right", &two, (ahead(DAY), Some(4999 * MINUTE)));
    }

    #[test]
    fn an_operator_may_be_sure() {
        let cases = [
            (None, 0, false, Drift::Steady, Some(0)),
            (Some(0), 31 * DAY, false, Drift::Steady, Some(31 * DAY)),
            (Some(0), 33 * DAY, false, Drift::Ahead(Duration::from_secs(33 * 86_400)), Some(0)),
            (Some(0), 33 * DAY, true, Drift::Steady, Some(33 * DAY)),
            (Some(0), -DAY, false, Drift::Behind(Duration::from_secs(86_400)), None),
            (Some(0), -DAY, true, Drift::Steady, Some(-DAY)),
        ];
        for (mark, now, trust, clock, as_of) in cases {
            let look = judge_once(mark.map(at), at(now), trust);
            assert_eq!((look.drift, look.as_of), (clock, as_of.map(at)), "{now} {trust}");
        }
    }

    #[test]
    fn nothing_goes_before_its_window_is_over() {
        let tool = |name| ToolName::parse(name).unwrap();
        let days = |days: u64| Duration::from_secs(days * 86_400);
        let terms = Terms::new([(tool("short"), Windows { keep: days(1), remember: days(2) })]);
        assert_eq!(terms.results_before("short", at(0)), at(-DAY - 5 * MINUTE));
        assert_eq!(terms.facts_before("short", at(0)), at(-3 * DAY - 5 * MINUTE));
        assert_eq!(terms.facts_before("gone", at(0)), at(-366 * DAY - 5 * MINUTE), "the longest there is");
        assert!(terms.declares("short") && !terms.declares("gone"));
    }
}
