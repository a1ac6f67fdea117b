//! A declared read: asked under today's access, answered from one snapshot.

use counterfoil::Fault;
use counterfoil::sqlite::Tx;
use counterfoil_core::{Intent, Principal, Refusal};

use super::execute::{Context, Next, each, first};
use super::rows;
use super::write::may;
use crate::config::ReadReturns;
use crate::plan::{Plan, Read, Tool};

/// The structured content of a read, as JSON text.
pub(super) fn read(
    tx: &Tx<'_>,
    plan: &Plan,
    tool: &Tool,
    read: &Read,
    principal: &Principal,
    intent: &Intent,
) -> Result<String, Fault> {
    let context = Context { intent: Some(intent), ..Context::of(principal) };
    if !may(tx, plan, tool.access.as_ref(), &context)? {
        return Err(Refusal::resource_unavailable().into());
    }
    match read.returns {
        ReadReturns::Row => {
            let row = first(tx, &read.query, &context, plan.limits.result)?;
            let row = row.ok_or_else(Refusal::resource_unavailable)?;
            Ok(format!("{{\"result\":{row}}}"))
        }
        ReadReturns::Rows(most) => {
            many(tx, plan, read, &context, usize::try_from(most).unwrap_or(usize::MAX))
        }
    }
}

fn many(tx: &Tx<'_>, plan: &Plan, read: &Read, context: &Context<'_>, most: usize) -> Result<String, Fault> {
    let (mut out, mut seen, mut truncated) = (String::from("{\"result\":["), 0, false);
    each(tx, &read.query, context, |row| {
        if seen == most {
            truncated = true;
            return Ok(Next::Stop);
        }
        if seen > 0 {
            out.push(',');
        }
        seen += 1;
        rows::object(&mut out, row, &read.query.columns, plan.limits.result)?;
        Ok(Next::Go)
    })?;
    out.push_str(if truncated { "],\"truncated\":true}" } else { "],\"truncated\":false}" });
    Ok(out)
}
