//! The types of PostgreSQL that a tool may bind and return, and how each is written in JSON.

use counterfoil::tokio_postgres::types::{Kind as Made, Type};

use crate::config::{OutputType, Shape};

/// A type that a tool may bind and return. Domains are what they are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    /// Of so many bits.
    Integer(u32),
    Float4,
    Float8,
    Numeric,
    /// Text of any kind, and enums, which are labels.
    Text,
    Uuid,
    /// `timestamp with time zone`
    Instant,
    /// `timestamp without time zone`
    Local,
    Date,
    Time,
    Bytes,
    Json,
    /// As JSON, with a byte of its version in front where it is binary.
    Jsonb,
    List(Box<Kind>),
}

impl Kind {
    /// What `kind` is, if a tool may use it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "types that are made are known by how, others by name"
    )]
    pub(crate) fn of(kind: &Type) -> Option<Self> {
        match kind.kind() {
            Made::Domain(inner) => return Self::of(inner),
            Made::Array(item) => {
                let item = Self::of(item).filter(|item| !matches!(item, Self::List(_)))?;
                return Some(Self::List(Box::new(item)));
            }
            Made::Enum(_) => return Some(Self::Text),
            _ => {}
        }
        Some(match *kind {
            Type::BOOL => Self::Boolean,
            Type::INT2 => Self::Integer(16),
            Type::INT4 => Self::Integer(32),
            Type::INT8 => Self::Integer(64),
            Type::FLOAT4 => Self::Float4,
            Type::FLOAT8 => Self::Float8,
            Type::NUMERIC => Self::Numeric,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => Self::Text,
            Type::UUID => Self::Uuid,
            Type::TIMESTAMPTZ => Self::Instant,
            Type::TIMESTAMP => Self::Local,
            Type::DATE => Self::Date,
            Type::TIME => Self::Time,
            Type::BYTEA => Self::Bytes,
            Type::JSON => Self::Json,
            Type::JSONB => Self::Jsonb,
            _ if kind.name() == "citext" => Self::Text,
            _ => return None,
        })
    }

    /// Can every value of `shape` be one of this type, but for its range and its spelling?
    pub(crate) fn takes(&self, shape: &Shape) -> bool {
        match (self, shape) {
            (Self::Json | Self::Jsonb, _)
            | (Self::Boolean, Shape::Boolean)
            | (Self::Integer(_), Shape::Integer(_))
            | (Self::Float4 | Self::Float8 | Self::Numeric, Shape::Integer(_) | Shape::Number(_))
            | (Self::Numeric, Shape::String { .. }) => true,
            (Self::Text, Shape::Boolean | Shape::Integer(_) | Shape::Number(_)) => true,
            (Self::Text, Shape::String { .. } | Shape::Array { .. } | Shape::Object { .. }) => true,
            (
                Self::Uuid | Self::Instant | Self::Local | Self::Date | Self::Time | Self::Bytes,
                Shape::String { .. },
            ) => true,
            (Self::List(item), Shape::Array { items, .. }) => item.takes(&items.shape),
            (
                Self::Boolean
                | Self::Integer(_)
                | Self::Float4
                | Self::Float8
                | Self::Numeric
                | Self::Uuid
                | Self::Instant
                | Self::Local
                | Self::Date
                | Self::Time
                | Self::Bytes
                | Self::List(_),
                _,
            ) => false,
        }
    }

    /// Can it hold a word of trusted context?
    pub(crate) fn takes_text(&self) -> bool {
        matches!(self, Self::Text | Self::Uuid | Self::Json | Self::Jsonb)
    }

    /// Can a column of this type be written so?
    pub(crate) fn writes(&self, output: OutputType) -> bool {
        let number = matches!(self, Self::Integer(_) | Self::Float4 | Self::Float8 | Self::Numeric);
        match output {
            OutputType::Boolean => *self == Self::Boolean,
            OutputType::Integer => matches!(self, Self::Integer(_)),
            OutputType::Number => number,
            OutputType::String => !matches!(
                self,
                Self::Boolean
                    | Self::Float4
                    | Self::Float8
                    | Self::Bytes
                    | Self::Json
                    | Self::Jsonb
                    | Self::List(_)
            ),
            OutputType::Json => matches!(self, Self::Text | Self::Json | Self::Jsonb),
            OutputType::Bytes => *self == Self::Bytes,
        }
    }

    /// The JSON type of a column of this type, written as `output` says, where that is certain.
    pub(crate) fn json(&self, output: Option<OutputType>) -> Option<&'static str> {
        match (output, self) {
            (Some(OutputType::Json), _) | (None, Self::Json | Self::Jsonb) => None,
            (Some(OutputType::Boolean), _) | (None, Self::Boolean) => Some("boolean"),
            (Some(OutputType::Integer), _) | (None, Self::Integer(_)) => Some("integer"),
            (Some(OutputType::Number), _) | (None, Self::Float4 | Self::Float8) => Some("number"),
            (None, Self::List(_)) => Some("array"),
            (Some(OutputType::String | OutputType::Bytes), _)
            | (
                None,
                Self::Numeric
                | Self::Text
                | Self::Uuid
                | Self::Instant
                | Self::Local
                | Self::Date
                | Self::Time
                | Self::Bytes,
            ) => Some("string"),
        }
    }
}

impl Kind {
    /// SQL that writes a value `{}` of this type, which is `of`, byte for byte as we write it; where the database writes
    /// it otherwise (doubles, documents, padded text), there is none.
    pub(crate) fn sql(&self, of: &Type, output: Option<OutputType>) -> Option<String> {
        let quoted = |text: &str| Some(format!("'\"' || {text} || '\"'"));
        match self {
            Self::Boolean => Some("({})::text".to_owned()),
            Self::Integer(_) if output == Some(OutputType::String) => quoted("({})::text"),
            Self::Integer(_) => Some("({})::text".to_owned()),
            Self::Numeric if output == Some(OutputType::Number) => None,
            Self::Numeric | Self::Uuid => quoted("({})::text"),
            Self::Text if output == Some(OutputType::Json) || *of == Type::BPCHAR => None,
            Self::Text => Some("to_json(({})::text)::text".to_owned()),
            Self::Instant => quoted(&dated("({}) AT TIME ZONE 'UTC'", "YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"")),
            Self::Local => quoted(&dated("({})", "YYYY-MM-DD\"T\"HH24:MI:SS.US")),
            Self::Date => quoted(&dated("({})", "YYYY-MM-DD")),
            Self::Time => quoted("to_char(({})::time, 'HH24:MI:SS.US')"),
            Self::Bytes => quoted("translate(encode(({}), 'base64'), E'\\n', '')"),
            Self::Float4 | Self::Float8 | Self::Json | Self::Jsonb | Self::List(_) => None,
        }
    }
}

/// SQL that writes an instant or a date. One outside of the years 1 to 9999 has no RFC 3339: the division is by zero,
/// and undoes the call.
fn dated(value: &str, form: &str) -> String {
    format!(
        "CASE WHEN NOT isfinite({value}) THEN ({{}})::text \
         WHEN extract(year FROM {value}) BETWEEN 1 AND 9999 THEN to_char({value}, '{form}') \
         ELSE (1 / (extract(year FROM {value}) - extract(year FROM {value})))::text END"
    )
}

/// The name of a type as SQL that means it and no other, whatever the search path says.
pub(crate) fn spelt(kind: &Type) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    format!("{}.{}", quoted(kind.schema()), quoted(kind.name()))
}

/// Its name as people know it.
#[expect(clippy::wildcard_enum_match_arm, reason = "only arrays have a name that says so little")]
pub(crate) fn said(kind: &Type) -> String {
    match kind.kind() {
        Made::Array(item) => format!("{}[]", said(item)),
        _ => kind.name().to_owned(),
    }
}
