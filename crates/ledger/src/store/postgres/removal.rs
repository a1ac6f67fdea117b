//! Removing what its windows no longer hold: small transactions, by one server at a time, on the database's clock.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use counterfoil_core::{Refusal, Timestamp};
use deadpool::managed::Object;
use tokio_postgres::types::Type;

use super::Ledger;
use super::doubt::Doubt;
use super::migrate::META;
use super::pool::Manager;
use super::receipts::{instant, now as now_of, timestamp};
use super::retry::{Attempt, Boxed, Setback};
use super::run::{Parameter, Run as _};
use super::tx::Tx;
use crate::fault::Fault;
use crate::record::Whose;
use crate::removal::{
    Bounds, Counted, Look, Overdue, Removal, Removed, Terms, Watch, bare, between, held, judge, judge_once,
    read_mark, tools_of,
};

const TOOLS: &str = include_str!("sql/tools.sql");
const DROP_RESULTS: &str = include_str!("sql/drop_results.sql");
const DELETE_FACTS: &str = include_str!("sql/delete_facts.sql");
const OVERDUE: &str = include_str!("sql/overdue.sql");
const FORGET: &str = include_str!("sql/forget.sql");
const LOCK: &str = include_str!("sql/removal_lock.sql");

impl Removal for Ledger {
    async fn look(&self, watch: Watch) -> Result<Look, Refusal> {
        self.drive(Looking { how: How::Watch(watch) }).await
    }

    async fn look_once(&self, trust: bool) -> Result<Look, Refusal> {
        self.drive(Looking { how: How::Once(trust) }).await
    }

    async fn step(&self, terms: &Arc<Terms>, as_of: Timestamp, bounds: Bounds) -> Result<Removed, Refusal> {
        self.drive(Step { terms: Arc::clone(terms), as_of, bounds }).await
    }

    async fn overdue(&self, terms: &Arc<Terms>, as_of: Timestamp) -> Result<Vec<Overdue>, Refusal> {
        let terms = Arc::clone(terms);
        self.read(move |tx| Box::pin(async move { overdue(tx, &terms, as_of).await })).await
    }

    async fn forget(&self, whose: &Whose, bounds: Bounds) -> Result<u64, Refusal> {
        self.drive(Forgetting { whose: whose.clone(), rows: bounds.rows }).await
    }
}

enum How {
    Watch(Watch),
    Once(bool),
}

/// A look at the clock. Harmless to do again.
struct Looking {
    how: How,
}

impl Attempt for Looking {
    type Answer = Look;

    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<Look, Setback>> {
        Box::pin(async move {
            let mut tx = Tx::new(connection);
            tx.begin_write().await?;
            let Some((mark, now)) = locked(&tx).await? else {
                // Another server is at it: its look is as good, and nothing is to be done here.
                let now = now_of(tx.connection()).await?;
                tx.rollback();
                return Ok(elsewhere(&self.how, now));
            };
            let look = match self.how {
                How::Watch(watch) => judge(mark, now, watch),
                How::Once(trust) => judge_once(mark, now, trust),
            };
            if mark != Some(look.mark) {
                let value = look.mark.micros().to_string();
                tx.execute_typed(META, &[(&"removal", Type::TEXT), (&value, Type::TEXT)]).await?;
            }
            tx.commit(doubt).await?;
            Ok(look)
        })
    }
}

fn elsewhere(how: &How, now: Timestamp) -> Look {
    let watch = match how {
        How::Watch(watch) => *watch,
        How::Once(_) => Watch::default(),
    };
    Look { drift: crate::removal::Drift::Elsewhere, as_of: None, mark: now, now, watch }
}

/// The mark and the database's clock, for the one server that may remove until its transaction ends.
async fn locked(tx: &Tx) -> Result<Option<(Option<Timestamp>, Timestamp)>, Fault> {
    let rows = tx.connection().rows(LOCK, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some((read_mark(row.try_get(0)?), timestamp(row.try_get(1)?))))
}

/// One step. What was removed stays so, and doing it again removes more.
struct Step {
    terms: Arc<Terms>,
    as_of: Timestamp,
    bounds: Bounds,
}

impl Attempt for Step {
    type Answer = Removed;

    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<Removed, Setback>> {
        Box::pin(async move {
            let mut tx = Tx::new(connection);
            tx.begin_write().await?;
            if locked(&tx).await?.is_none() {
                tx.rollback();
                return Ok(Removed { elsewhere: true, ..Removed::default() });
            }
            let removed = self.remove(&tx).await?;
            tx.commit(doubt).await?;
            Ok(removed)
        })
    }
}

impl Step {
    async fn remove(&self, tx: &Tx) -> Result<Removed, Fault> {
        let (begun, mut left) = (Instant::now(), self.bounds.rows);
        let mut removed = Removed::default();
        for tool in tools(tx).await? {
            let mut facts = 0;
            for part in [held(&tool), bare(&tool)] {
                let before = self.terms.facts_before(&tool, self.as_of);
                let gone = some(tx, DELETE_FACTS, part, before, left).await?;
                left = left.saturating_sub(usize::try_from(gone).unwrap_or(usize::MAX));
                facts += gone;
            }
            let before = self.terms.results_before(&tool, self.as_of);
            let results = some(tx, DROP_RESULTS, held(&tool), before, left).await?;
            left = left.saturating_sub(usize::try_from(results).unwrap_or(usize::MAX));
            (removed.results, removed.facts) = (removed.results + results, removed.facts + facts);
            if left == 0 || begun.elapsed() > self.bounds.time {
                return Ok(Removed { more: results + facts > 0 || left == 0, ..removed });
            }
        }
        Ok(removed)
    }
}

async fn some(
    tx: &Tx,
    sql: &'static str,
    part: String,
    before: Timestamp,
    rows: usize,
) -> Result<u64, Fault> {
    let (before, rows) = (instant(before), i64::try_from(rows).unwrap_or(i64::MAX));
    let parameters: [Parameter<'_>; 3] =
        [(&part, Type::TEXT), (&before, Type::TIMESTAMPTZ), (&rows, Type::INT8)];
    Ok(tx.execute_typed(sql, &parameters).await?)
}

async fn tools(tx: &Tx) -> Result<Vec<String>, Fault> {
    let rows = tx.connection().rows(TOOLS, &[]).await?;
    Ok(tools_of(rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?))
}

async fn overdue(tx: &Tx, terms: &Terms, as_of: Timestamp) -> Result<Vec<Overdue>, Fault> {
    let mut all = Vec::new();
    for tool in tools(tx).await? {
        let results = count(tx, held(&tool), terms.results_before(&tool, as_of), as_of).await?;
        let facts = count(tx, bare(&tool), terms.facts_before(&tool, as_of), as_of).await?;
        let past = count(tx, held(&tool), terms.facts_before(&tool, as_of), as_of).await?;
        all.push(Overdue::of(tool, terms, [results, facts, past]));
    }
    Ok(all)
}

async fn count(tx: &Tx, part: String, before: Timestamp, as_of: Timestamp) -> Result<Counted, Fault> {
    let instant = instant(before);
    let parameters: [Parameter<'_>; 2] = [(&part, Type::TEXT), (&instant, Type::TIMESTAMPTZ)];
    let rows = tx.connection().rows(OVERDUE, &parameters).await?;
    let row = rows.first().ok_or_else(|| Fault::Broken("a count told nothing".into()))?;
    let (count, oldest): (i64, Option<SystemTime>) = (row.try_get(0)?, row.try_get(1)?);
    // The overdue time of the oldest is its own instant, moved on by what separates `before` from now.
    let by = between(before, as_of);
    Ok((count.unsigned_abs(), oldest.map(|oldest| timestamp(oldest).plus(by))))
}

/// Some of a person's results and intents. Doing it again forgets more.
struct Forgetting {
    whose: Whose,
    rows: usize,
}

impl Attempt for Forgetting {
    type Answer = u64;

    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<u64, Setback>> {
        Box::pin(async move {
            let mut tx = Tx::new(connection);
            tx.begin_write().await?;
            let rows = i64::try_from(self.rows).unwrap_or(i64::MAX);
            let Whose { subject, workspace, issuer } = &self.whose;
            let parameters: [Parameter<'_>; 4] =
                [(subject, Type::TEXT), (workspace, Type::TEXT), (issuer, Type::TEXT), (&rows, Type::INT8)];
            let forgotten = tx.execute_typed(FORGET, &parameters).await?;
            tx.commit(doubt).await?;
            Ok(forgotten)
        })
    }
}
