//! The answer to a write that committed, now or earlier.

use crate::json::write_string;
use crate::time::Timestamp;
use crate::words::{Epoch, RequestId};

/// A committed result. A replayed one is history: evidence about an operation, not a fresh snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The result's JSON, byte for byte as it was stored.
    pub result: Box<str>,
    /// The operation.
    pub request_id: RequestId,
    /// Read from a receipt, not written by this call.
    pub replayed: bool,
    /// When the operation committed.
    pub committed_at: Timestamp,
    /// The history that holds it.
    pub epoch: Epoch,
    /// The row as it is now, on replays of tools that can read it: JSON, `null` if the row is gone.
    pub current: Option<Box<str>>,
}

impl Reply {
    /// The structured content of a write, as JSON text.
    #[must_use]
    pub fn body(&self) -> String {
        let mut out = String::with_capacity(self.result.len() + 200);
        out.push_str("{\"result\":");
        out.push_str(&self.result);
        out.push_str(",\"request_id\":");
        write_string(&mut out, self.request_id.as_str());
        out.push_str(if self.replayed { ",\"replayed\":true" } else { ",\"replayed\":false" });
        out.push_str(",\"committed_at\":");
        write_string(&mut out, &self.committed_at.to_string());
        out.push_str(",\"epoch\":");
        write_string(&mut out, self.epoch.as_str());
        if let Some(current) = &self.current {
            out.push_str(",\"current\":");
            out.push_str(current);
        }
        out.push('}');
        out
    }
}
