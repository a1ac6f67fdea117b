//! A declared read: asked under today's access, answered from one snapshot.

use counterfoil::Fault;
use counterfoil::sqlite::Tx;
use counterfoil_core::Refusal;

use super::super::reading::{Asking, Page, one};
use super::execute::{Next, each, first};
use super::rows;
use super::write::may;
use crate::config::ReadReturns;

/// The structured content of a read, as JSON text.
pub(super) fn read(tx: &Tx<'_>, asking: &Asking) -> Result<String, Fault> {
    let context = asking.context();
    if !may(tx, &asking.plan, asking.tool.access.as_ref(), &context)? {
        return Err(Refusal::resource_unavailable().into());
    }
    let (query, limit) = (&asking.read.query, asking.plan.limits.result);
    match asking.read.returns {
        ReadReturns::Row => one(first(tx, query, &context, limit)?),
        ReadReturns::Rows(_) => {
            let mut page = Page::new(asking.most());
            each(tx, query, &context, |row| {
                let shown = page.row(|out| rows::object(out, row, &query.columns, limit))?;
                Ok(if shown { Next::Go } else { Next::Stop })
            })?;
            Ok(page.finish())
        }
    }
}
