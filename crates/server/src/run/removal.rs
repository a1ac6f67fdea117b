//! Removing what is over while the server runs: a look at the clock every minute, small steps, and a gauge.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use counterfoil::removal::{Bounds, Drift, Onward, Removal, Removed, SKEW, Terms, Watch, pass};
use counterfoil_core::{Refusal, Timestamp};
use tokio::task::AbortHandle;

use crate::plan::{Kind, Plan};

/// How often removal looks at the clock.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Before the first look: a server that comes and goes does no harm.
    pub first: Duration,
    /// Between two looks. The library counts them as minutes.
    pub every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), every: Duration::from_secs(60) }
    }
}

/// What removal has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Results and intents that went, since the start.
    pub results: u64,
    /// Receipts that went as a whole, since the start.
    pub facts: u64,
    /// When what has been overdue the longest should have gone; `None`: nothing is overdue.
    pub overdue_since: Option<Timestamp>,
    /// The clock is not believed, and nothing is removed beyond what all servers agree on.
    pub distrusted: bool,
}

/// Stops when it is dropped; a step that has begun is finished.
#[derive(Debug)]
pub(super) struct Remover {
    gauge: Arc<Mutex<Gauge>>,
    task: AbortHandle,
}

impl Remover {
    /// Starts, on the current runtime.
    pub(super) fn start<R: Removal + Clone + 'static>(ledger: R, plan: &Plan, pace: Pace) -> Self {
        let gauge = Arc::default();
        let state = State { ledger, terms: Arc::new(terms(plan)), gauge: Arc::clone(&gauge), pace };
        let task = tokio::spawn(state.run()).abort_handle();
        Self { gauge, task }
    }

    pub(super) fn gauge(&self) -> Gauge {
        *self.gauge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn terms(plan: &Plan) -> Terms {
    let declared = plan.tools.iter().filter_map(|tool| match &tool.kind {
        Kind::Write(write) => Some((write.contract.ledger_name.clone(), write.contract.windows)),
        Kind::Read(_) => None,
    });
    Terms::new(declared)
}

struct State<R> {
    ledger: R,
    terms: Arc<Terms>,
    gauge: Arc<Mutex<Gauge>>,
    pace: Pace,
}

impl<R: Removal> State<R> {
    async fn run(self) {
        tokio::time::sleep(self.pace.first).await;
        let (mut watch, mut told, mut last) = (Watch::default(), Drift::Steady, None);
        let mut failed = None;
        loop {
            match self.round(watch, &mut told, &mut last).await {
                Ok(next) => (watch, failed) = (next, None),
                Err(refusal) if failed.replace(refusal.code()) != Some(refusal.code()) => {
                    let code = refusal.code().as_str();
                    tracing::warn!(code, "removal could not go on, and will try again");
                }
                Err(_) => {}
            }
            tokio::time::sleep(self.pace.every).await;
        }
    }

    async fn round(
        &self,
        watch: Watch,
        told: &mut Drift,
        last: &mut Option<(Timestamp, Instant)>,
    ) -> Result<Watch, Refusal> {
        let look = self.ledger.look(watch).await?;
        let mut watch = look.watch;
        if jumped(last.replace((look.now, Instant::now())), look.now) {
            watch.jump();
        }
        tell(look.drift, told);
        self.update(|gauge| gauge.distrusted = matches!(look.drift, Drift::Ahead(_) | Drift::Behind(_)));
        if let Some(as_of) = look.as_of {
            pass(&self.ledger, &self.terms, as_of, Bounds::default(), |removed| self.count(removed)).await?;
            let overdue = self.ledger.overdue(&self.terms, as_of).await?;
            self.update(|gauge| gauge.overdue_since = overdue.iter().filter_map(|one| one.since).min());
            let undeclared = overdue.iter().filter(|one| !self.terms.declares(&one.tool)).count();
            tracing::debug!(gauge = ?self.gauge(), undeclared, "removal");
        }
        Ok(watch)
    }

    fn count(&self, removed: Removed) -> Onward {
        self.update(|gauge| {
            gauge.results += removed.results;
            gauge.facts += removed.facts;
        });
        Onward::Go
    }

    fn update(&self, change: impl FnOnce(&mut Gauge)) {
        change(&mut self.gauge.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn gauge(&self) -> Gauge {
        *self.gauge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the clock moved by something else than the time that has passed?
fn jumped(last: Option<(Timestamp, Instant)>, now: Timestamp) -> bool {
    last.is_some_and(|(then, at)| {
        let expected = then.plus(at.elapsed());
        now > expected.plus(SKEW) || now < expected.minus(SKEW)
    })
}

/// Once, when it changes.
fn tell(drift: Drift, told: &mut Drift) {
    if std::mem::discriminant(&drift) == std::mem::discriminant(told) {
        return;
    }
    *told = drift;
    match drift {
        Drift::Steady => tracing::info!("removal goes on: the clock is believed"),
        Drift::First | Drift::Elsewhere => {}
        Drift::Ahead(by) => tracing::warn!(
            seconds = by.as_secs(),
            "the clock is ahead of the last removal: nothing is removed early. If it is right, this passes by itself \
             after a while, or with `counterfoil receipts prune --trust-clock`"
        ),
        Drift::Behind(by) => tracing::warn!(
            seconds = by.as_secs(),
            "the clock is behind that of the last removal: it went back, or another server's is ahead"
        ),
    }
}
