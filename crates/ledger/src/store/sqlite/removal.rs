//! Removing what its windows no longer hold: small steps through the writer, between calls.

use std::sync::Arc;
use std::time::Instant;

use counterfoil_core::{Refusal, Timestamp};
use rusqlite::Connection;

use super::Ledger;
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
const MARK: &str = "SELECT value FROM counterfoil_meta WHERE name = 'removal'";
const SET_MARK: &str = "UPDATE counterfoil_meta SET value = ?1 WHERE name = 'removal'";

/// Receipts of one statement: the clock is looked at between two of them.
const BATCH: usize = 16;

impl Removal for Ledger {
    async fn look(&self, watch: Watch) -> Result<Look, Refusal> {
        self.write(move |tx| marked(tx, |mark| judge(mark, tx.now(), watch))).await
    }

    async fn look_once(&self, trust: bool) -> Result<Look, Refusal> {
        self.write(move |tx| marked(tx, |mark| judge_once(mark, tx.now(), trust))).await
    }

    async fn step(&self, terms: &Arc<Terms>, as_of: Timestamp, bounds: Bounds) -> Result<Removed, Refusal> {
        let terms = Arc::clone(terms);
        self.write(move |tx| step(tx, &terms, as_of, bounds)).await
    }

    async fn overdue(&self, terms: &Arc<Terms>, as_of: Timestamp) -> Result<Vec<Overdue>, Refusal> {
        self.read(|tx| overdue(tx, terms, as_of))
    }

    async fn forget(&self, whose: &Whose, bounds: Bounds) -> Result<u64, Refusal> {
        let whose = whose.clone();
        self.write(move |tx| {
            let rows = i64::try_from(bounds.rows).unwrap_or(i64::MAX);
            tx.statement();
            let mut statement = tx.prepare_cached(FORGET)?;
            let changed = statement.execute((&whose.subject, &whose.workspace, &whose.issuer, rows))?;
            Ok(changed as u64)
        })
        .await
    }
}

fn marked(tx: &Tx<'_>, judge: impl FnOnce(Option<Timestamp>) -> Look) -> Result<Look, Fault> {
    let mark: String = tx.query_row(MARK, [], |row| row.get(0))?;
    let mark = read_mark(&mark);
    let look = judge(mark);
    if mark != Some(look.mark) {
        tx.execute(SET_MARK, [look.mark.micros().to_string()])?;
    }
    Ok(look)
}

fn step(tx: &Tx<'_>, terms: &Terms, as_of: Timestamp, bounds: Bounds) -> Result<Removed, Fault> {
    let mut left = Left { begun: Instant::now(), rows: bounds.rows, bounds };
    let mut removed = Removed::default();
    for tool in tools(tx)? {
        for part in [held(&tool), bare(&tool)] {
            removed.facts += left.run(tx, DELETE_FACTS, &part, terms.facts_before(&tool, as_of))?;
        }
        removed.results += left.run(tx, DROP_RESULTS, &held(&tool), terms.results_before(&tool, as_of))?;
        if left.spent() {
            return Ok(Removed { more: true, ..removed });
        }
    }
    Ok(removed)
}

/// What is left of a step's bounds.
struct Left {
    begun: Instant,
    rows: usize,
    bounds: Bounds,
}

impl Left {
    fn spent(&self) -> bool {
        self.rows == 0 || self.begun.elapsed() > self.bounds.time
    }

    fn run(&mut self, tx: &Tx<'_>, sql: &str, part: &str, before: Timestamp) -> Result<u64, Fault> {
        let mut total = 0;
        while !self.spent() {
            let batch = self.rows.min(BATCH);
            tx.statement();
            let parameters = (part, before.micros(), i64::try_from(batch).unwrap_or(i64::MAX));
            let changed = tx.prepare_cached(sql)?.execute(parameters)?;
            (total, self.rows) = (total + changed as u64, self.rows - changed);
            if changed < batch {
                break;
            }
        }
        Ok(total)
    }
}

/// The ledger names of all tools that have receipts.
pub(super) fn tools(connection: &Connection) -> Result<Vec<String>, Fault> {
    let mut statement = connection.prepare_cached(TOOLS)?;
    let parts = statement.query_map([], |row| row.get(0))?;
    Ok(tools_of(parts.collect::<Result<Vec<String>, _>>()?))
}

/// What is overdue at the instant `as_of`, tool by tool; a look and no more.
///
/// # Errors
/// The database's own.
pub fn overdue(connection: &Connection, terms: &Terms, as_of: Timestamp) -> Result<Vec<Overdue>, Fault> {
    let count = |part: String, before: Timestamp| -> Result<Counted, Fault> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?));
        let (count, oldest): (i64, _) =
            connection.prepare_cached(OVERDUE)?.query_row((part, before.micros()), read)?;
        // The overdue time of the oldest is its own instant, moved on by what separates `before` from now.
        let by = between(before, as_of);
        Ok((count.unsigned_abs(), oldest.map(|oldest| Timestamp::from_micros(oldest).plus(by))))
    };
    let mut all = Vec::new();
    for tool in tools(connection)? {
        let results = count(held(&tool), terms.results_before(&tool, as_of))?;
        let facts = count(bare(&tool), terms.facts_before(&tool, as_of))?;
        let past = count(held(&tool), terms.facts_before(&tool, as_of))?;
        all.push(Overdue::of(tool, terms, [results, facts, past]));
    }
    Ok(all)
}
