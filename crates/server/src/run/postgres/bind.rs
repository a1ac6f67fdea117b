//! What a call brings, as a value of the type that PostgreSQL gives its place. It travels as text, which PostgreSQL
//! reads; what only it could misread is refused here, with the argument's name.

use std::error::Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use counterfoil::Fault;
use counterfoil::tokio_postgres::types::{Format, IsNull, ToSql, Type};
use counterfoil_core::json::{self, Value, write_string};
use counterfoil_core::{Argument, FieldError, Refusal, Timestamp};
use jiff::civil::{Date, DateTime, Time};

use super::super::context::Given;
use super::execute::Raw;
use crate::kind::Kind;
use crate::plan::Bind;

/// A value, ready to be sent.
#[derive(Debug)]
pub(super) enum Bound {
    Text(Option<String>),
    Raw(Raw),
}

impl ToSql for Bound {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let bytes = match self {
            Self::Text(text) => text.as_deref().map(str::as_bytes),
            Self::Raw(Raw(bytes)) => bytes.as_deref(),
        };
        let Some(bytes) = bytes else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(kind, out)
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Text(_) => Format::Text,
            Self::Raw(_) => Format::Binary,
        }
    }
}

/// `given` as a value of type `kind`.
pub(super) fn bound(
    bind: &Bind,
    given: &Given<'_, Raw>,
    kind: &Type,
    now: Timestamp,
) -> Result<Bound, Fault> {
    let known = || Kind::of(kind).ok_or_else(|| Fault::Broken(format!("the type {kind} cannot be bound")));
    Ok(Bound::Text(match given {
        Given::Earlier(raw) => return Ok(Bound::Raw((*raw).clone())),
        Given::Nothing => None,
        Given::Now => Some(now.to_string()),
        // A word that is none of the column's type is nobody's row.
        Given::Text(word) => Some(text(&known()?, word).map_err(|_| Refusal::resource_unavailable())?),
        Given::Argument(argument) => self::argument(&known()?, argument).map_err(|problem| {
            let pointer = if let Bind::Argument(name) = bind { format!("/{name}") } else { String::new() };
            Refusal::invalid_arguments(vec![FieldError::new(&pointer, problem)])
        })?,
    }))
}

fn argument(kind: &Kind, argument: &Argument) -> Result<Option<String>, &'static str> {
    Ok(Some(match argument {
        Argument::Null => return Ok(None),
        Argument::Boolean(value) => value.to_string(),
        Argument::Integer(value) => integer(kind, *value)?,
        Argument::Number(value) => number(kind, *value)?,
        Argument::Text(value) => text(kind, value)?,
        Argument::Json(value) => {
            if let Kind::List(item) = kind {
                list(item, value)?
            } else {
                value.to_string()
            }
        }
    }))
}

fn integer(kind: &Kind, value: i64) -> Result<String, &'static str> {
    let narrow = *kind == Kind::Integer(16) && i16::try_from(value).is_err();
    let fits = !narrow && (*kind != Kind::Integer(32) || i32::try_from(value).is_ok());
    if fits { Ok(value.to_string()) } else { Err("is beyond what the database stores here") }
}

fn number(kind: &Kind, value: f64) -> Result<String, &'static str> {
    #[expect(clippy::cast_possible_truncation, reason = "what is asked is whether it would be infinite")]
    let lost = *kind == Kind::Float4 && (value as f32).is_infinite();
    if lost {
        Err("is beyond what the database stores here")
    } else {
        Ok(serde_json::Value::from(value).to_string())
    }
}

fn text(kind: &Kind, value: &str) -> Result<String, &'static str> {
    let spelt = |fits: bool, problem: &'static str| if fits { Ok(value.to_owned()) } else { Err(problem) };
    match kind {
        Kind::Json | Kind::Jsonb => {
            let mut out = String::new();
            write_string(&mut out, value);
            Ok(out)
        }
        Kind::Bytes => {
            let bytes = STANDARD.decode(value).map_err(|_| "must be base64")?;
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(format!("\\x{hex}"))
        }
        Kind::Uuid => spelt(uuid(value), "must be a UUID"),
        Kind::Numeric => spelt(decimal(value), "must be a decimal number"),
        Kind::Instant => spelt(instant(value), "must be an RFC 3339 instant, as 2026-11-30T14:00:00Z"),
        Kind::Local => {
            let zoneless = value.parse::<DateTime>().is_ok();
            spelt(zoneless, "must be a date and time without zone, as 2026-11-30T14:00:00")
        }
        Kind::Date => {
            let day = value.len() == 10 && value.parse::<Date>().is_ok();
            spelt(day, "must be a date, as 2026-11-30")
        }
        Kind::Time => spelt(value.parse::<Time>().is_ok(), "must be a time, as 14:00:00"),
        Kind::Boolean | Kind::Integer(_) | Kind::Float4 | Kind::Float8 | Kind::Text | Kind::List(_) => {
            Ok(value.to_owned())
        }
    }
}

/// The last day of the last year is no instant to the library, and a favourite of those who mean never.
fn instant(value: &str) -> bool {
    let last = || value.strip_suffix('Z').is_some_and(|local| local.parse::<DateTime>().is_ok());
    Timestamp::parse(value).is_ok() || last()
}

fn uuid(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let hexadecimal = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(hexadecimal)
}

fn decimal(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all(whole) && all(part)
}

/// A JSON array as PostgreSQL writes arrays. Every item is quoted, so that none can be taken for another.
fn list(item: &Kind, value: &str) -> Result<String, &'static str> {
    let value = json::parse(value.as_bytes(), json::Bounds::default()).map_err(|_| "is no JSON array")?;
    let Value::Array(items) = value else { return Err("must be an array") };
    let mut out = String::from("{");
    for (at, value) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        match listed(item, value)? {
            None => out.push_str("NULL"),
            Some(text) => {
                out.push('"');
                out.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
                out.push('"');
            }
        }
    }
    out.push('}');
    Ok(out)
}

fn listed(kind: &Kind, value: &Value) -> Result<Option<String>, &'static str> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Boolean(value) => value.to_string(),
        Value::String(value) => text(kind, value)?,
        Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let intent = counterfoil_core::Intent::of_json(value)
                .map_err(|_| "holds a value that cannot be stored")?;
            let spelt = intent.text();
            match (kind, spelt.parse::<i64>()) {
                (Kind::Integer(_), Ok(value)) => integer(kind, value)?,
                (Kind::Integer(_), Err(_)) => return Err("holds what is no integer"),
                (_, _) => spelt.to_owned(),
            }
        }
    }))
}
