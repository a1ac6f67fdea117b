//! One call of a declared read, and the answer that its rows come to.

use std::sync::Arc;

use counterfoil::Fault;
use counterfoil_core::{Intent, Principal, Refusal};

use super::context::Context;
use crate::config::ReadReturns;
use crate::plan::{Plan, Read, Tool};

/// One call of a declared read.
pub(super) struct Asking {
    pub plan: Arc<Plan>,
    pub tool: Arc<Tool>,
    pub read: Arc<Read>,
    pub principal: Arc<Principal>,
    pub intent: Intent,
}

impl Asking {
    pub(super) fn context<V>(&self) -> Context<'_, V> {
        Context { intent: Some(&self.intent), ..Context::of(&self.principal) }
    }

    /// How many rows the answer may have.
    pub(super) fn most(&self) -> usize {
        match self.read.returns {
            ReadReturns::Row => 1,
            ReadReturns::Rows(most) => usize::try_from(most).unwrap_or(usize::MAX),
        }
    }
}

/// The structured content of a read, as it grows.
#[derive(Debug)]
pub(super) struct Page {
    out: String,
    rows: usize,
    most: usize,
    truncated: bool,
}

impl Page {
    pub(super) fn new(most: usize) -> Self {
        Self { out: String::from("{\"result\":["), rows: 0, most, truncated: false }
    }

    /// Shows one more row, unless there are enough; says whether it was shown. `write` appends it.
    pub(super) fn row(
        &mut self,
        write: impl FnOnce(&mut String) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        if self.rows == self.most {
            self.truncated = true;
            return Ok(false);
        }
        if self.rows > 0 {
            self.out.push(',');
        }
        self.rows += 1;
        write(&mut self.out)?;
        Ok(true)
    }

    pub(super) fn finish(mut self) -> String {
        self.out.push_str(if self.truncated { "],\"truncated\":true}" } else { "],\"truncated\":false}" });
        self.out
    }
}

/// The structured content of a read of one row, which must be there.
pub(super) fn one(row: Option<String>) -> Result<String, Fault> {
    let row = row.ok_or_else(Refusal::resource_unavailable)?;
    Ok(format!("{{\"result\":{row}}}"))
}
