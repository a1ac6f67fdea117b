//! What the steps of a case are made of. Every step is a connection of its own, unless it says otherwise.

use std::sync::Barrier;

use super::{Stage, Subject};
use crate::{Answer, Ask, Done, Refused, Row, Who};

/// A subject, and how often to repeat a race.
pub struct Scene<'a> {
    subject: &'a dyn Subject,
    /// How often a race is run.
    pub races: usize,
}

impl std::fmt::Debug for Scene<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("races", &self.races).finish_non_exhaustive()
    }
}

impl<'a> Scene<'a> {
    pub(super) fn new(subject: &'a dyn Subject, races: usize) -> Self {
        Self { subject, races }
    }

    /// The database.
    #[must_use]
    pub fn stage(&self) -> &dyn Stage {
        self.subject.stage()
    }

    /// Calls on a new connection.
    #[must_use]
    pub fn call(&self, who: Who, ask: &Ask) -> Answer {
        self.subject.connect(who).call(ask)
    }

    /// The call commits, and its reply is lost.
    pub fn lost(&self, who: Who, ask: &Ask) {
        self.subject.connect(who).lose(ask);
    }

    /// The call commits now.
    pub fn fresh(&self, who: Who, ask: &Ask) -> Done {
        let done = self.call(who, ask).done();
        assert!(!done.replayed, "{ask:?} should be fresh: {done:?}");
        done
    }

    /// The call committed earlier, as `then`.
    pub fn replayed(&self, who: Who, ask: &Ask, then: &Done) {
        let done = self.call(who, ask).done();
        assert_eq!(done, Done { replayed: true, ..then.clone() });
    }

    /// The call is refused with `code`, and with the advice that goes with it.
    pub fn refused(&self, who: Who, ask: &Ask, code: &str) {
        refused_with(self.call(who, ask), code, ask);
    }

    /// The row `id` is so.
    pub fn row(&self, id: i64, workspace: &str, interval: i64, version: i64) {
        let expected = Row { workspace: workspace.to_owned(), interval, version };
        assert_eq!(self.stage().row(id), Some(expected), "row {id}");
    }

    /// There are so many receipts.
    pub fn receipts(&self, expected: i64) {
        assert_eq!(self.stage().receipts(), expected, "receipts");
    }

    /// Two calls on two connections, released at the same instant, again and again; `asks` makes the pair of each
    /// round and `judge` gets both answers.
    pub fn race(
        &self,
        who: Who,
        asks: impl Fn(usize) -> (Ask, Ask) + Sync,
        judge: impl Fn(usize, Answer, Answer),
    ) {
        let start = Barrier::new(2);
        let run = |pick: fn((Ask, Ask)) -> Ask| {
            let mut caller = self.subject.connect(who);
            let round = |round| {
                let ask = pick(asks(round));
                start.wait();
                caller.call(&ask)
            };
            (0..self.races).map(round).collect::<Vec<_>>()
        };
        let (left, right) = std::thread::scope(|scope| {
            let left = scope.spawn(|| run(|pair| pair.0));
            let right = run(|pair| pair.1);
            (left.join().unwrap(), right)
        });
        for (round, (left, right)) in left.into_iter().zip(right).enumerate() {
            judge(round, left, right);
        }
    }
}

/// The answer is a refusal with `code` and the advice that goes with it.
pub fn refused_with(answer: Answer, code: &str, ask: &Ask) -> Refused {
    let refused = answer.refused();
    assert_eq!(refused.code, code, "{ask:?}: {}", refused.error);
    let (retry, operation) = advice(code);
    assert_eq!(refused.retry, retry, "{ask:?}: {}", refused.error);
    assert_eq!(refused.operation.as_deref(), operation, "{ask:?}: {}", refused.error);
    refused
}

/// What to do after each refusal of these cases, and what is known of the operation.
fn advice(code: &str) -> (&'static str, Option<&'static str>) {
    match code {
        "forbidden" | "resource_unavailable" => ("no", Some("unknown")),
        "request_id_required" | "invalid_request_id" | "invalid_arguments" => ("corrected", Some("unknown")),
        "request_id_reused" => ("new_id", None),
        "version_conflict" => ("new_id", Some("not_committed_so_far")),
        "internal" => ("same_id", Some("unknown")),
        other => panic!("no case knows what to do after {other}"),
    }
}
