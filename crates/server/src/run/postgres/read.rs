//! A declared read: asked under today's access, answered from one snapshot.

use counterfoil::Fault;
use counterfoil::postgres::Tx;
use counterfoil_core::Refusal;

use super::super::reading::{Asking, Page, one};
use super::execute::{Mode, Next, each, first, prepare_session};
use super::rows;
use super::write::may;
use crate::config::ReadReturns;

/// The structured content of a read, as JSON text.
pub(super) async fn read(tx: &Tx, asking: &Asking) -> Result<String, Fault> {
    prepare_session(tx, &asking.plan, &asking.principal).await?;
    let context = asking.context();
    if !may(tx, &asking.plan, asking.tool.access.as_ref(), &context, Mode::Reading).await? {
        return Err(Refusal::resource_unavailable().into());
    }
    let (query, limit) = (&asking.read.query, asking.plan.limits.result);
    match asking.read.returns {
        ReadReturns::Row => one(first(tx, query, &context, limit, Mode::Reading).await?),
        ReadReturns::Rows(_) => {
            let mut page = Page::new(asking.most());
            each(tx, query, &context, Mode::Reading, |row| {
                let shown = page.row(|out| rows::object(out, row, &query.columns, limit))?;
                Ok(if shown { Next::Go } else { Next::Stop })
            })
            .await?;
            Ok(page.finish())
        }
    }
}
