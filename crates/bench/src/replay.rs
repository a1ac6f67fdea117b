//! `sqlite_replay`: what a replay costs beside the look-up it cannot do without.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use rusqlite::Connection;
use tokio::task::JoinSet;

use crate::figure::{Round, per_second, rounds};
use crate::group::FIND;
use crate::store::{
    Edit, ISSUER, SUBJECT, Service, TOOL, WORKSPACE, connect, create, open, request_id, runtime,
};

/// Callers at once: threads, on both sides.
const CALLERS: usize = 8;
/// Automations, each changed once.
const PAST: i64 = 10_000;
/// Calls between two looks at the clock.
const STRIDE: usize = 16;

/// A call that has committed.
type Past = (String, Edit);

/// Ours: 8 threads replay calls that have committed, each through the whole order: canonical intent, one read
/// transaction for receipt and access, the judgement, the reply.
///
/// Baseline: 8 threads, each with a connection of its own to the same file and one prepared statement, look the same
/// receipts up by their key and read them, in autocommit. They ask for no access and judge nothing.
pub(crate) fn measure(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let path = create(room, "ours.db", PAST)?;
    let service = Service::new(open(&path)?)?;
    let past = tokio::runtime::Builder::new_multi_thread().build()?.block_on(commit(&service))?;
    let mut connections = (0..CALLERS).map(|_| connect(&path)).collect::<anyhow::Result<Vec<_>>>()?;
    let ours = || {
        let callers = (0..CALLERS).map(|_| replayer(&service)).collect::<anyhow::Result<_>>()?;
        threads(callers, slice, &past)
    };
    let baseline = || threads(connections.iter_mut().map(reader).collect(), slice, &past);
    rounds(ours, baseline)
}

/// Commits one call an automation.
async fn commit(service: &Service) -> anyhow::Result<Vec<Past>> {
    let mut calls = JoinSet::new();
    let mut past = Vec::new();
    for id in 1..=PAST {
        let service = service.clone();
        calls.spawn(async move {
            let (id, edit) = (request_id(), Edit::first(id));
            let replayed = service.call(&id, edit).await?;
            ensure!(!replayed, "a fresh call was replayed");
            Ok((id, edit))
        });
        // Fewer than may wait at once.
        if calls.len() == 512 {
            past.extend(calls.join_next().await.transpose()?.transpose()?);
        }
    }
    while let Some(call) = calls.join_next().await {
        past.push(call??);
    }
    Ok(past)
}

fn replayer(service: &Service) -> anyhow::Result<impl Caller> {
    let (runtime, service) = (runtime()?, service.clone());
    let replay = async move |share: Share<'_>| {
        let mut made = 0;
        for (id, edit) in share.calls() {
            ensure!(service.call(id, *edit).await?, "a replay was fresh");
            made += 1;
        }
        Ok(made)
    };
    Ok(move |share: Share<'_>| runtime.block_on(replay(share)))
}

/// A look-up that holds its prepared statement for as long as it is called.
fn reader(connection: &mut Connection) -> impl Caller {
    move |share: Share<'_>| {
        let mut find = connection.prepare(FIND)?;
        let mut made = 0;
        for (id, _) in share.calls() {
            let result = find.query_row((WORKSPACE, ISSUER, SUBJECT, TOOL, &**id), |row| {
                row.get_ref(2)?.as_blob()?;
                row.get::<_, String>(4)
            })?;
            ensure!(!result.is_empty(), "a receipt has no result");
            made += 1;
        }
        Ok(made)
    }
}

/// One caller's part of a slice: tells how many calls it made.
trait Caller: FnOnce(Share<'_>) -> anyhow::Result<u32> + Send {}

impl<C: FnOnce(Share<'_>) -> anyhow::Result<u32> + Send> Caller for C {}

/// Which calls a caller replays, over and over, and until when.
struct Share<'p> {
    past: &'p [Past],
    end: Instant,
}

impl<'p> Share<'p> {
    /// Looks at the clock once in a stride.
    fn calls(&self) -> impl Iterator<Item = &'p Past> {
        let end = self.end;
        let timely = move |first: &mut bool, stride: &'p [Past]| {
            let go = std::mem::take(first) || Instant::now() < end;
            go.then_some(stride)
        };
        self.past.chunks(STRIDE).cycle().scan(true, timely).flatten()
    }
}

/// Calls a second of all callers together, each on a thread of its own and with a share of the past of its own.
fn threads<C: Caller>(callers: Vec<C>, slice: Duration, past: &[Past]) -> anyhow::Result<f64> {
    let start = Instant::now();
    let shares = past.chunks(past.len().div_ceil(callers.len()));
    let shares = shares.map(|past| Share { past, end: start + slice });
    let made = std::thread::scope(|scope| {
        let running: Vec<_> = callers
            .into_iter()
            .zip(shares)
            .map(|(caller, share)| scope.spawn(move || caller(share)))
            .collect();
        let ended =
            running.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a caller panicked"))?);
        ended.sum::<anyhow::Result<u32>>()
    })?;
    Ok(per_second(made, start))
}
