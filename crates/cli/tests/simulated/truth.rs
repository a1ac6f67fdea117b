//! What the database holds in the end, and what a life's story must agree with.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use counterfoil::rusqlite::Connection;
use counterfoil_client::client::{Outcome, Report};
use counterfoil_client::journal::Entry;
use counterfoil_client::state::State;

use super::life::Life;

/// The receipts and the rows.
pub(crate) struct Truth {
    receipts: HashMap<String, Receipt>,
    versions: HashMap<i64, i64>,
    by_row: HashMap<i64, Vec<String>>,
}

/// `None` is a void.
type Receipt = Option<Done>;

#[derive(Debug)]
struct Done {
    result: String,
    version: i64,
}

impl Truth {
    pub(crate) fn read(database: &Path) -> Self {
        let connection = Connection::open(database).unwrap();
        let (mut receipts, mut by_row) = (HashMap::new(), HashMap::<i64, Vec<String>>::new());
        let mut statement =
            connection.prepare("SELECT request_id, result, state FROM counterfoil_receipts").unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let (id, result): (String, Option<String>) = (row.get(0).unwrap(), row.get(1).unwrap());
            assert_eq!(result.is_some(), row.get::<_, String>(2).unwrap() == "committed");
            let done = result.map(|result| {
                let value: serde_json::Value = serde_json::from_str(&result).unwrap();
                by_row.entry(value["id"].as_i64().unwrap()).or_default().push(id.clone());
                Done { version: value["version"].as_i64().unwrap(), result }
            });
            assert!(receipts.insert(id, done).is_none());
        }
        let mut statement = connection.prepare("SELECT id, version FROM automations").unwrap();
        let versions = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        Self { receipts, versions: versions.map(Result::unwrap).collect(), by_row }
    }

    /// Every operation committed once, or was refused, or is unknown with its id; and nothing else was done.
    pub(crate) fn check(&self, life: &Life) {
        let (seed, entries) = (life.seed, life.entries());
        assert!(entries.len() <= life.intended, "seed {seed}: more operations than were wanted: {entries:?}");
        let mut known: BTreeSet<&str> = entries.iter().map(|entry| entry.operation.id.as_str()).collect();
        assert_eq!(known.len(), entries.len(), "seed {seed}: an id twice");
        known.extend(life.rivals.iter().map(String::as_str));
        let done = self.by_row.get(&life.row).map(Vec::as_slice).unwrap_or_default();
        for id in done {
            assert!(known.contains(&**id), "seed {seed}: {id} was done and nobody has written it down");
        }
        let versions: BTreeSet<i64> =
            done.iter().map(|id| self.receipts[id].as_ref().unwrap().version).collect();
        let expected: BTreeSet<i64> = (2..=self.versions[&life.row]).collect();
        assert_eq!((done.len(), versions), (expected.len(), expected), "seed {seed}: each edit once");
        entries.iter().for_each(|entry| self.written(seed, entry));
        life.told.iter().for_each(|report| self.told(seed, report));
    }

    fn receipt(&self, id: &str) -> Option<&Receipt> {
        self.receipts.get(id)
    }

    /// What the journal says is so.
    fn written(&self, seed: u64, entry: &Entry) {
        let receipt = self.receipt(entry.operation.id.as_str());
        let holds = match entry.state {
            State::Replied => committed(receipt, entry.answer.as_deref()),
            State::Committed => matches!(receipt, Some(Some(_))),
            // A void that came late finds it refused.
            State::Refused => !matches!(receipt, Some(Some(_))),
            State::Voided => matches!(receipt, Some(None)),
            State::Ready | State::Sent { .. } | State::Unknown { .. } | State::Abandoned { .. } => true,
        };
        assert!(holds, "seed {seed}: the journal is wrong, the receipt is {receipt:?}: {entry:?}");
    }

    /// What the caller was told is so, now and for ever.
    fn told(&self, seed: u64, report: &Report) {
        let receipt = self.receipt(report.id.as_str());
        let holds = match &report.outcome {
            Outcome::Replied(reply) => committed(receipt, Some(&reply.result)),
            Outcome::Committed(_) => matches!(receipt, Some(Some(_))),
            Outcome::Refused(_) | Outcome::Away(_) => !matches!(receipt, Some(Some(_))),
            Outcome::Voided => matches!(receipt, Some(None)),
            Outcome::Unknown(_) => true,
            Outcome::Plain(_) | Outcome::Abandoned { .. } => false,
        };
        assert!(holds, "seed {seed}: told was what is not so, the receipt is {receipt:?}: {report:?}");
    }
}

fn committed(receipt: Option<&Receipt>, said: Option<&str>) -> bool {
    matches!(receipt, Some(Some(done)) if said.is_some_and(|said| said.contains(&done.result)))
}
