//! `prune`: how long the slowest call in a hundred takes while a million expired receipts are removed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use counterfoil::removal::{Bounds, Onward, Removal as _, Terms, pass};
use counterfoil::{Clock as _, SystemClock};
use rusqlite::Connection;

use crate::figure::{Round, rounds};
use crate::store::{Edit, Service, create, open, request_id, runtime};

/// Receipts that have expired, at full size.
const EXPIRED: f64 = 1_000_000.0;
/// What one part of one round takes at full size.
const FULL: Duration = Duration::from_millis(600);

/// Ours: calls of one caller, one after the other, while another thread removes expired receipts, as a server does.
///
/// Baseline: the same calls on the same ledger while nobody removes anything.
///
/// Both as the inverse of the 99th percentile of a call, so that the bar of 0.5 is "at most twice as long". Afterwards
/// everything is removed, and a receipt must take the room that it took before, within a fifth.
pub(crate) fn measure(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let path = create(room, "ours.db", 1)?;
    let ledger = open(&path)?;
    let service = Service::new(ledger.clone())?;
    let calls = runtime()?;
    let edit = std::cell::Cell::new(Edit::first(1));
    let call = || -> anyhow::Result<()> {
        ensure!(!calls.block_on(service.call(&request_id(), edit.get()))?, "a fresh call was replayed");
        edit.set(edit.get().next());
        Ok(())
    };
    for _ in 0..2000 {
        call()?;
    }
    let connection = Connection::open(&path)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    let before = room_of_one(&connection)?;
    #[expect(clippy::cast_possible_truncation, reason = "a million at most")]
    stock(&connection, (EXPIRED * (slice.as_secs_f64() / FULL.as_secs_f64()).min(1.0)) as i64)?;
    let remove = |stop: &AtomicBool| -> anyhow::Result<()> {
        let see = |_| if stop.load(Ordering::SeqCst) { Onward::Stop } else { Onward::Go };
        let terms = Arc::new(Terms::new([]));
        let removed = pass(&ledger, &terms, SystemClock.now(), Bounds::default(), see);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(removed).map_err(|refusal| anyhow::anyhow!(refusal.message().to_owned()))
    };
    let ours = || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| remove(&stop));
            let measured = slowest(slice, call);
            stop.store(true, Ordering::SeqCst);
            let removed = remover.join().map_err(|_| anyhow::anyhow!("the remover panicked"))?;
            removed.and(measured)
        })
    };
    let measured = rounds(ours, || slowest(slice, call))?;
    let left: i64 = connection.query_row(LEFT, [], |row| row.get(0))?;
    ensure!(left > 0 || slice < FULL, "the removal was over before the calls were");
    clear(&ledger)?;
    let after = room_of_one(&connection)?;
    ensure!(after < before * 1.2, "a receipt takes {after:.0} bytes and took {before:.0}");
    Ok(measured)
}

/// Removes what is left, in larger steps.
fn clear(ledger: &counterfoil::sqlite::Ledger) -> anyhow::Result<()> {
    let bounds = Bounds { rows: 4096, time: Duration::from_secs(1), rest: Duration::ZERO };
    let removed = async {
        let terms = Arc::new(Terms::new([]));
        while ledger.step(&terms, SystemClock.now(), bounds).await?.more {}
        Ok::<_, counterfoil_core::Refusal>(())
    };
    runtime()?.block_on(removed).map_err(|refusal| anyhow::anyhow!(refusal.message().to_owned()))
}

const LEFT: &str = "SELECT count(*) FROM counterfoil_receipts WHERE committed_at < 2000000";

/// Long over: results of the size that the example's have.
fn stock(connection: &Connection, count: i64) -> anyhow::Result<()> {
    connection.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO counterfoil_receipts
         SELECT 'team-a', 'local', 'alice', 'set_interval', lower(hex(randomblob(16))), 'committed', n, 'v1',
                randomblob(32), '{\"expected_version\":1,\"id\":1,\"interval_minutes\":30}',
                '{\"id\":1,\"interval_minutes\":30,\"version\":2}' FROM n",
        [count],
    )?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

/// Bytes in use, tables and indexes, for each receipt that there is.
fn room_of_one(connection: &Connection) -> anyhow::Result<f64> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0)).map(f64::from);
    let pages = number("PRAGMA page_count")? - number("PRAGMA freelist_count")?;
    let receipts = number("SELECT count(*) FROM counterfoil_receipts")?;
    Ok(pages * number("PRAGMA page_size")? / receipts)
}

/// The inverse of the 99th percentile of `call`, repeated for `slice`: a second divided by it.
fn slowest(slice: Duration, call: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let (start, mut took) = (Instant::now(), Vec::new());
    while start.elapsed() < slice || took.is_empty() {
        let begun = Instant::now();
        call()?;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let at = (took.len() * 99 / 100).min(took.len() - 1);
    Ok(1.0 / took.get(at).copied().unwrap_or(slice).as_secs_f64())
}
