//! Replies are evidence about operations, not snapshots: which of two is newer, without overwriting the newer one.

use counterfoil_core::json::{self, Value};
use counterfoil_core::{Epoch, Reply};

/// What a caller holds of a row: its version, and the history it was read in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The version.
    pub version: i64,
    /// The history of the server's database.
    pub epoch: Epoch,
}

/// How a reply stands to what the caller holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The reply is newer: take it.
    Newer,
    /// It is the version the caller holds.
    Same,
    /// It is older: keep what is held.
    Older,
    /// It belongs to another history (a restore came between): versions do not compare. Read the row again.
    OtherHistory,
    /// It has no such version. Read the row again.
    Unversioned,
}

/// Compares the row in a reply's result with what is held, by the integer member `column`.
#[must_use]
pub fn compare(held: &Held, reply: &Reply, column: &str) -> Standing {
    if held.epoch != reply.epoch {
        return Standing::OtherHistory;
    }
    match version(&reply.result, column) {
        None => Standing::Unversioned,
        Some(version) if version > held.version => Standing::Newer,
        Some(version) if version == held.version => Standing::Same,
        Some(_) => Standing::Older,
    }
}

/// The integer member `column` of a row as JSON text.
#[must_use]
pub fn version(row: &str, column: &str) -> Option<i64> {
    let row = json::parse(row.as_bytes(), json::Bounds::default()).ok()?;
    let Some(Value::Number(spelled)) = row.get(column) else { return None };
    spelled.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::{RequestId, Timestamp};

    #[test]
    fn a_replay_never_stands_above_what_is_newer() {
        let epoch = |name| Epoch::parse(name).unwrap();
        let held = Held { version: 3, epoch: epoch("one") };
        let cases = [
            ("{\"version\":4}", "one", Standing::Newer),
            ("{\"version\":3}", "one", Standing::Same),
            ("{\"version\":2}", "one", Standing::Older),
            ("{\"version\":9}", "two", Standing::OtherHistory),
            ("{\"version\":\"4\"}", "one", Standing::Unversioned),
            ("{}", "one", Standing::Unversioned),
            ("null", "one", Standing::Unversioned),
        ];
        for (result, history, expected) in cases {
            let reply = Reply {
                result: result.into(),
                request_id: RequestId::parse("edit-42").unwrap(),
                replayed: true,
                committed_at: Timestamp::from_micros(0),
                epoch: epoch(history),
                current: None,
            };
            assert_eq!(compare(&held, &reply, "version"), expected, "{result} in {history}");
        }
    }
}
