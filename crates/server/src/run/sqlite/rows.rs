//! Rows as JSON text: integers exact, blobs in base64, and what SQLite cannot type as the config says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use counterfoil::Fault;
use counterfoil::rusqlite::Row;
use counterfoil::rusqlite::types::ValueRef;
use counterfoil_core::Refusal;
use counterfoil_core::json::write_string;

use super::super::document::document;
use crate::config::OutputType;
use crate::plan::Column;

/// Writes one row as a JSON object, and refuses to grow beyond `limit` bytes.
pub(super) fn object(out: &mut String, row: &Row<'_>, columns: &[Column], limit: usize) -> Result<(), Fault> {
    known(row, columns)?;
    out.push('{');
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(out, &column.name);
        out.push(':');
        value(out, row.get_ref(at)?, column)?;
        if out.len() > limit {
            return Err(Refusal::result_too_large(limit).into());
        }
    }
    out.push('}');
    Ok(())
}

/// The table may have changed since the statement was checked: what comes must be what was planned.
fn known(row: &Row<'_>, columns: &[Column]) -> Result<(), Fault> {
    let names = row.as_ref().column_names();
    if names.len() == columns.len() && names.zip(columns).all(|(name, column)| *name == *column.name) {
        return Ok(());
    }
    Err(Fault::Broken(
        "the columns of a result are no longer those that were checked at start: restart the server".into(),
    ))
}

fn value(out: &mut String, value: ValueRef<'_>, column: &Column) -> Result<(), Fault> {
    let wrong = |what: &str| {
        Err(Fault::Broken(format!(
            "column `{}` holds {what}, which its declared output cannot write",
            column.name
        )))
    };
    match (column.output, value) {
        (_, ValueRef::Null) => out.push_str("null"),
        (Some(OutputType::Boolean), ValueRef::Integer(flag @ (0 | 1))) => {
            out.push_str(if flag == 1 { "true" } else { "false" });
        }
        (Some(OutputType::Boolean), _) => return wrong("no 0 or 1"),
        (Some(OutputType::Json), ValueRef::Text(text)) => return document(out, text, column),
        (Some(OutputType::Json), _) => return wrong("no JSON text"),
        (Some(OutputType::Integer), ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_)) => {
            return wrong("no integer");
        }
        (Some(OutputType::Number), ValueRef::Text(_) | ValueRef::Blob(_)) => return wrong("no number"),
        (Some(OutputType::Bytes), ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_)) => {
            return wrong("no bytes");
        }
        (Some(OutputType::String), ValueRef::Integer(number)) => write_string(out, &number.to_string()),
        (Some(OutputType::String), ValueRef::Real(_) | ValueRef::Blob(_)) => return wrong("no text"),
        (_, ValueRef::Integer(number)) => out.push_str(&number.to_string()),
        (_, ValueRef::Real(number)) if !number.is_finite() => return wrong("an infinite number"),
        (_, ValueRef::Real(number)) => out.push_str(&serde_json::Value::from(number).to_string()),
        (_, ValueRef::Text(text)) => write_string(out, utf8(text, column)?),
        (_, ValueRef::Blob(bytes)) => write_string(out, &STANDARD.encode(bytes)),
    }
    Ok(())
}

fn utf8<'t>(text: &'t [u8], column: &Column) -> Result<&'t str, Fault> {
    std::str::from_utf8(text)
        .map_err(|_| Fault::Broken(format!("column `{}` holds text that is not UTF-8", column.name)))
}
