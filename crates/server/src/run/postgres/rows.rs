//! Rows as JSON text, by the types that PostgreSQL tells: integers exact, `numeric` with every digit, instants as RFC
//! 3339 in UTC, bytes in base64, documents as they are.

use std::error::Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use counterfoil::Fault;
use counterfoil::tokio_postgres::Row;
use counterfoil::tokio_postgres::types::{FromSql, Type};
use counterfoil_core::Refusal;
use counterfoil_core::json::write_string;
use jiff::Span;
use jiff::civil::Date;

use super::super::document::document;
use crate::config::OutputType;
use crate::kind::Kind;
use crate::plan::Column;

/// A value as it came.
struct Bytes<'r>(Option<&'r [u8]>);

impl<'r> FromSql<'r> for Bytes<'r> {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Writes one row as a JSON object, and refuses to grow beyond `limit` bytes.
pub(super) fn object(out: &mut String, row: &Row, columns: &[Column], limit: usize) -> Result<(), Fault> {
    let names = row.columns();
    if names.len() != columns.len()
        || names.iter().zip(columns).any(|(name, column)| *name.name() != *column.name)
    {
        return Err(Fault::Broken(
            "the columns of a result are no longer those that were checked at start: restart the server"
                .into(),
        ));
    }
    out.push('{');
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(out, &column.name);
        out.push(':');
        match row.try_get(at)? {
            Bytes(None) => out.push_str("null"),
            Bytes(Some(raw)) => {
                let kind = kind(names[at].type_())?;
                value(out, raw, &kind, column).map_err(|unwritten| unwritten.fault(column))?;
            }
        }
        if out.len() > limit {
            return Err(Refusal::result_too_large(limit).into());
        }
    }
    out.push('}');
    Ok(())
}

/// A column's value without quotes, `None` if it is NULL.
pub(super) fn plain(row: &Row, at: usize) -> Result<Option<String>, Fault> {
    let Bytes(Some(raw)) = row.try_get(at)? else { return Ok(None) };
    let column = Column { name: "".into(), output: None, certain: None, json: None };
    let mut out = String::new();
    let kind = kind(row.columns()[at].type_())?;
    value(&mut out, raw, &kind, &column).map_err(|unwritten| unwritten.fault(&column))?;
    Ok(Some(serde_json::from_str::<String>(&out).unwrap_or(out)))
}

fn kind(kind: &Type) -> Result<Kind, Fault> {
    Kind::of(kind)
        .ok_or_else(|| Fault::Broken(format!("a column has become of type {kind}, which has no JSON")))
}

/// Why a value was not written.
enum Unwritten {
    /// It has no JSON.
    Is(&'static str),
    Fault(Fault),
}

impl Unwritten {
    fn fault(self, column: &Column) -> Fault {
        match self {
            Self::Is(what) => {
                Fault::Broken(format!("column `{}` holds {what}, which cannot be written", column.name))
            }
            Self::Fault(fault) => fault,
        }
    }
}

const SHORT: Unwritten = Unwritten::Is("fewer bytes than its type has");

fn value(out: &mut String, raw: &[u8], kind: &Kind, column: &Column) -> Result<(), Unwritten> {
    let quoted = column.output == Some(OutputType::String);
    match kind {
        Kind::Boolean => out.push_str(if raw == [0] { "false" } else { "true" }),
        Kind::Integer(bits) => {
            let digits = integer(raw, *bits)?.to_string();
            if quoted { write_string(out, &digits) } else { out.push_str(&digits) }
        }
        Kind::Float4 => {
            let value = f32::from_be_bytes(array(raw)?);
            finite(value.is_finite())?;
            out.push_str(&serde_json::to_string(&value).unwrap_or_default());
        }
        Kind::Float8 => {
            let value = f64::from_be_bytes(array(raw)?);
            finite(value.is_finite())?;
            out.push_str(&serde_json::Value::from(value).to_string());
        }
        Kind::Numeric => {
            let digits = numeric(raw)?;
            match column.output {
                Some(OutputType::Number) if digits.ends_with(|last: char| last.is_ascii_digit()) => {
                    out.push_str(&digits)
                }
                Some(OutputType::Number) => return Err(Unwritten::Is("no finite number")),
                Some(_) | None => write_string(out, &digits),
            }
        }
        Kind::Text if column.output == Some(OutputType::Json) => return json(out, raw, column),
        Kind::Text => write_string(out, utf8(raw)?),
        Kind::Uuid => write_string(out, &uuid(array(raw)?)),
        Kind::Instant => write_string(out, &instant(raw, "Z")?),
        Kind::Local => write_string(out, &instant(raw, "")?),
        Kind::Date => write_string(out, &date(raw)?),
        Kind::Time => write_string(out, &time(i64::from_be_bytes(array(raw)?))),
        Kind::Bytes => write_string(out, &STANDARD.encode(raw)),
        Kind::Json => return json(out, raw, column),
        Kind::Jsonb => return json(out, raw.get(1..).ok_or(SHORT)?, column),
        Kind::List(item) => return list(out, raw, item, column),
    }
    Ok(())
}

fn json(out: &mut String, raw: &[u8], column: &Column) -> Result<(), Unwritten> {
    document(out, raw, column).map_err(Unwritten::Fault)
}

fn finite(is: bool) -> Result<(), Unwritten> {
    if is { Ok(()) } else { Err(Unwritten::Is("an infinite number, or none")) }
}

fn array<const N: usize>(raw: &[u8]) -> Result<[u8; N], Unwritten> {
    raw.try_into().map_err(|_| SHORT)
}

fn integer(raw: &[u8], bits: u32) -> Result<i64, Unwritten> {
    Ok(match bits {
        16 => i16::from_be_bytes(array(raw)?).into(),
        32 => i32::from_be_bytes(array(raw)?).into(),
        _ => i64::from_be_bytes(array(raw)?),
    })
}

fn utf8(raw: &[u8]) -> Result<&str, Unwritten> {
    std::str::from_utf8(raw).map_err(|_| Unwritten::Is("text that is not UTF-8"))
}

fn uuid(raw: [u8; 16]) -> String {
    let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// From where PostgreSQL counts.
const EPOCH: Date = jiff::civil::date(2000, 1, 1);
const DAY: i64 = 86_400_000_000;
const FAR: Unwritten = Unwritten::Is("a day outside of the years 1 to 9999");

/// An instant without its `Z`, and then `zone`.
fn instant(raw: &[u8], zone: &str) -> Result<String, Unwritten> {
    let micros = i64::from_be_bytes(array(raw)?);
    if let Some(infinite) = infinite(micros == i64::MAX, micros == i64::MIN) {
        return Ok(infinite);
    }
    let (day, rest) = (day(micros.div_euclid(DAY))?, time(micros.rem_euclid(DAY)));
    Ok(format!("{day}T{rest}{zone}"))
}

fn date(raw: &[u8]) -> Result<String, Unwritten> {
    let days = i32::from_be_bytes(array(raw)?);
    let infinite = infinite(days == i32::MAX, days == i32::MIN);
    infinite.map_or_else(|| Ok(day(days.into())?.to_string()), Ok)
}

/// The day so many days after the epoch.
fn day(days: i64) -> Result<Date, Unwritten> {
    let span = Span::new().try_days(days).map_err(|_| FAR)?;
    EPOCH.checked_add(span).ok().filter(|day| day.year() > 0).ok_or(FAR)
}

fn infinite(above: bool, below: bool) -> Option<String> {
    let word = if above { Some("infinity") } else { below.then_some("-infinity") };
    word.map(str::to_owned)
}

fn time(micros: i64) -> String {
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    format!("{:02}:{:02}:{:02}.{rest:06}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Big-endian words, read one after the other.
struct Words<'r>(&'r [u8]);

impl<'r> Words<'r> {
    fn take(&mut self, bytes: usize) -> Result<&'r [u8], Unwritten> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<i16, Unwritten> {
        Ok(i16::from_be_bytes(array(self.take(2)?)?))
    }

    fn long(&mut self) -> Result<i32, Unwritten> {
        Ok(i32::from_be_bytes(array(self.take(4)?)?))
    }
}

/// `numeric` with every digit that it was stored with. Its format: how many groups of four decimal digits, the weight
/// of the first, the sign, how many digits stand behind the point, the groups (PostgreSQL, `numeric_send`).
fn numeric(raw: &[u8]) -> Result<String, Unwritten> {
    let mut words = Words(raw);
    let (groups, weight) = (words.short()?, words.short()?);
    let (sign, scale) = (words.short()?.cast_unsigned(), words.short()?);
    match sign {
        0xC000 => return Ok("NaN".to_owned()),
        0xD000 => return Ok("Infinity".to_owned()),
        0xF000 => return Ok("-Infinity".to_owned()),
        _ => {}
    }
    let mut digits = Vec::new();
    for _ in 0..groups {
        digits.push(words.short()?);
    }
    let group = |at: i32| usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
    let weight = i32::from(weight);
    let whole: String = (0..=weight).map(|at| format!("{:04}", group(at))).collect();
    let whole = whole.trim_start_matches('0');
    let scale = usize::try_from(scale).map_err(|_| SHORT)?;
    let behind = i32::try_from(scale.div_ceil(4)).map_err(|_| SHORT)?;
    let part: String = (1..=behind).map(|at| format!("{:04}", group(weight + at))).collect();
    let part = part.get(..scale).ok_or(SHORT)?;
    let minus = if sign == 0x4000 { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    Ok(if scale == 0 { format!("{minus}{whole}") } else { format!("{minus}{whole}.{part}") })
}

/// An array: dimensions, whether there are NULLs, the type of its items, length and lower bound of each dimension, the
/// items with their lengths (PostgreSQL, `array_send`).
fn list(out: &mut String, raw: &[u8], item: &Kind, column: &Column) -> Result<(), Unwritten> {
    let mut words = Words(raw);
    let dimensions = words.long()?;
    let (_nulls, _kind) = (words.long()?, words.long()?);
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(words.long()?);
        let _lower = words.long()?;
    }
    let column = Column { output: None, ..column.clone() };
    if lengths.is_empty() {
        out.push_str("[]");
        return Ok(());
    }
    items(out, &mut words, &lengths, item, &column)
}

fn items(
    out: &mut String,
    words: &mut Words<'_>,
    lengths: &[i32],
    item: &Kind,
    column: &Column,
) -> Result<(), Unwritten> {
    let Some((length, inner)) = lengths.split_first() else {
        return match usize::try_from(words.long()?) {
            Ok(bytes) => value(out, words.take(bytes)?, item, column),
            Err(_) => {
                out.push_str("null");
                Ok(())
            }
        };
    };
    out.push('[');
    for at in 0..*length {
        if at > 0 {
            out.push(',');
        }
        items(out, words, inner, item, column)?;
    }
    out.push(']');
    Ok(())
}
