//! What is tried again inside, how often, and what is answered when that was not enough.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use counterfoil_core::{Code, Operation, Refusal};
use deadpool::managed::{Object, Pool, PoolError};
use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::doubt::Doubt;
use super::error::{RETRY_AFTER, describe, lost, repeatable};
use super::pool::Manager;
use crate::fault::{Fault, internal};

/// Why an attempt gave no answer.
#[derive(Debug)]
pub(super) enum Setback {
    /// The database undid it for its own reasons (40001, 40P01), or a rival was met half-way.
    Again,
    /// The connection was lost before COMMIT was sent: nothing was written.
    Lost,
    /// COMMIT was sent and its answer did not come.
    Doubt,
    /// A statement failed, or a refusal was decided: nothing was written, and a new look decides.
    Failed(Fault),
}

impl Setback {
    /// The answer where nothing is tried again.
    pub(super) fn into_refusal(self) -> Refusal {
        match self {
            Setback::Failed(fault) => fault.into_refusal(),
            Setback::Again | Setback::Lost => Refusal::busy(RETRY_AFTER),
            Setback::Doubt => Refusal::outcome_unknown(RETRY_AFTER),
        }
    }
}

impl From<Fault> for Setback {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Postgres(error) if lost(&error) => Setback::Lost,
            Fault::Postgres(error) if repeatable(&error) => Setback::Again,
            Fault::Postgres(_)
            | Fault::Refused(_)
            | Fault::Database(_)
            | Fault::Misuse(_)
            | Fault::Broken(_) => Setback::Failed(fault),
        }
    }
}

impl From<tokio_postgres::Error> for Setback {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::from(error).into()
    }
}

impl From<Refusal> for Setback {
    fn from(refusal: Refusal) -> Self {
        Setback::Failed(refusal.into())
    }
}

/// A boxed future: async closures over a borrowed transaction cannot be spawned today, these can.
pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that is done in one transaction, as often as it takes.
pub(super) trait Attempt: Send + 'static {
    type Answer: Send + 'static;

    /// One attempt on a connection. `doubt` is up when an earlier one may have committed.
    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<Self::Answer, Setback>>;
}

/// The bounds of trying.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Attempts at most, unless an outcome is in doubt.
    pub(super) tries: u32,
    /// For all attempts together.
    pub(super) call_wait: Duration,
    /// Calls that may wait for a connection.
    pub(super) queue: usize,
}

/// Where an attempt runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a task of its own: a caller who keeps the future and does not poll it must not keep a transaction open.
    Apart,
    /// Where its caller waits, which costs no task and no waking: for what is one statement, and holds nothing open
    /// between two. Dropped on its way, it goes on in a task of its own.
    Here,
}

/// Runs `attempt` to an answer. A call whose caller goes away while it waits for its first connection never begins;
/// once begun, it goes on whatever its caller does.
pub(super) async fn drive<A: Attempt>(
    pool: Pool<Manager>,
    bounds: Bounds,
    place: Place,
    attempt: A,
) -> Result<A::Answer, Refusal> {
    if pool.status().waiting >= bounds.queue {
        return Err(Refusal::busy(RETRY_AFTER));
    }
    let until = Instant::now() + bounds.call_wait;
    let Ok(first) = timeout_at(until, connection(&pool)).await else {
        return Err(Refusal::busy(RETRY_AFTER));
    };
    let doubt = Arc::<Doubt>::default();
    let up = Arc::clone(&doubt);
    let trying = async move { timeout_at(until, try_on(&pool, first, bounds.tries, attempt, &up)).await };
    let trying: Boxed<'static, _> = Box::pin(AssertUnwindSafe(trying).catch_unwind());
    let told = match place {
        Place::Here => Ok(Begun { trying: Some(trying), runtime: Handle::try_current().ok() }.await),
        Place::Apart => tokio::spawn(trying).await,
    };
    match told {
        Ok(Ok(Ok(answer))) => answer,
        Ok(Err(_)) if !doubt.raised() => Err(internal("a handler panicked when it was dropped")),
        // Out of time, or the runtime is shutting down.
        Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(gave_up(&doubt)),
    }
}

/// A call that runs to its end: if nobody waits for it any more, on the runtime on which it began.
struct Begun<T: Send + 'static> {
    trying: Option<Boxed<'static, T>>,
    runtime: Option<Handle>,
}

impl<T: Send + 'static> Future for Begun<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(trying) = &mut self.trying else { return Poll::Pending };
        let polled = trying.as_mut().poll(context);
        if polled.is_ready() {
            self.trying = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Begun<T> {
    fn drop(&mut self) {
        if let (Some(trying), Some(runtime)) = (self.trying.take(), self.runtime.take()) {
            drop(runtime.spawn(trying));
        }
    }
}

async fn try_on<A: Attempt>(
    pool: &Pool<Manager>,
    first: Result<Object<Manager>, Setback>,
    tries: u32,
    mut attempt: A,
    doubt: &Doubt,
) -> Result<A::Answer, Refusal> {
    let (mut tried, mut next) = (0, first);
    loop {
        let setback = match next {
            Ok(connection) => match attempt.once(connection, doubt).await {
                Ok(answer) => return Ok(answer),
                Err(setback) => setback,
            },
            Err(setback) => setback,
        };
        if let Setback::Failed(fault) = setback {
            return Err(definite(fault.into_refusal(), doubt));
        }
        tried += 1;
        if tried >= tries && !doubt.raised() {
            return Err(Refusal::busy(RETRY_AFTER));
        }
        tokio::time::sleep(pause(tried)).await;
        next = connection(pool).await;
    }
}

/// "Not now" about a try that may have committed is "unknown"; and so is "not so far" about one that may not have come
/// to its receipt yet.
fn definite(refusal: Refusal, doubt: &Doubt) -> Refusal {
    let passing = matches!(refusal.code(), Code::Busy | Code::Internal);
    let early = refusal.operation() == Some(Operation::NotCommittedSoFar);
    if (passing && doubt.raised()) || (early && doubt.open()) {
        Refusal::outcome_unknown(RETRY_AFTER)
    } else {
        refusal
    }
}

fn gave_up(doubt: &Doubt) -> Refusal {
    if doubt.raised() { Refusal::outcome_unknown(RETRY_AFTER) } else { Refusal::busy(RETRY_AFTER) }
}

/// A connection, within the pool's own time limits.
pub(super) async fn connection(pool: &Pool<Manager>) -> Result<Object<Manager>, Setback> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => {
            tracing::warn!(error = describe(&error), "no connection to the database");
            Setback::Lost
        }
        PoolError::Timeout(_) | PoolError::Closed => Setback::Failed(Refusal::busy(RETRY_AFTER).into()),
        PoolError::NoRuntimeSpecified => Setback::Failed(Fault::Misuse("the pool has no runtime")),
        PoolError::PostCreateHook(_) => Setback::Lost,
    })
}

/// Longer each time, and never the same for two rivals.
pub(super) fn pause(tried: u32) -> Duration {
    let most = (2_u64 << tried.min(8)).min(500);
    Duration::from_millis(rand::random_range(0..=most))
}
