//! JSON out of a column.

use counterfoil::Fault;
use counterfoil_core::{Intent, Refusal, json};

use crate::plan::Column;

/// JSON from a column: read strictly and written canonically, so that every reader sees the same.
pub(super) fn document(out: &mut String, text: &[u8], column: &Column) -> Result<(), Fault> {
    // Most often the caller's own text: the same call would fail for ever.
    let wrong = |problem: String| {
        let constraint = format!("column `{}` would hold no usable JSON: {problem}", column.name);
        Fault::Refused(Refusal::constraint_violated(&constraint))
    };
    let value =
        json::parse(text, json::Bounds::default()).map_err(|invalid| wrong(invalid.problem.to_string()))?;
    out.push_str(Intent::of_json(&value).map_err(wrong)?.text());
    Ok(())
}
