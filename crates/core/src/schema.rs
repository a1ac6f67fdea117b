//! The subset of JSON Schema in which every node has one type, and the one pass that validates a value, fills in
//! its defaults and writes it in canonical form.
//!
//! Allowed: `type` (one, optionally with `"null"`), `enum`, `const`, bounds, `pattern`, `items`, `properties`,
//! `required`, `additionalProperties = true`, `default`, `title`, `description`. All else is refused at compile
//! time, so that every value has a definite type and thereby one canonical spelling.

mod compile;
mod read;
mod spell;

use regex::Regex;

use crate::intent::Intent;
use crate::json::{self, Value};
use crate::refusal::FieldError;

pub use compile::SchemaError;

/// A tool's input, compiled.
#[derive(Debug, Clone)]
pub struct Schema {
    root: Node,
}

/// One place of a schema.
#[derive(Debug, Clone)]
struct Node {
    kind: Kind,
    nullable: bool,
    /// Canonical texts of `enum` and `const`, if declared.
    allowed: Option<Vec<String>>,
    /// The declared default, validated and canonical.
    default: Option<Value>,
}

#[derive(Debug, Clone)]
enum Kind {
    Boolean,
    Integer { least: Option<i64>, most: Option<i64> },
    Number(NumberBounds),
    String { least: usize, most: usize, pattern: Option<Regex> },
    Array { items: Box<Node>, least: usize, most: usize },
    Object(Object),
}

#[derive(Debug, Clone, Default)]
struct NumberBounds {
    least: Option<f64>,
    most: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
}

#[derive(Debug, Clone)]
struct Object {
    /// In canonical member order.
    properties: Vec<Property>,
    /// Unnamed members are allowed, typed by their spelling.
    open: bool,
}

#[derive(Debug, Clone)]
struct Property {
    name: Box<str>,
    required: bool,
    node: Node,
}

impl Schema {
    /// Compiles the JSON Schema of a tool's input: an object.
    ///
    /// # Errors
    /// [`SchemaError`] names the place and what is wrong there.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let root = compile::node(schema, "")?;
        match (&root.kind, root.nullable) {
            (Kind::Object(_), false) => Ok(Self { root }),
            _ => Err(SchemaError::new("", "a tool's input must be of type \"object\"")),
        }
    }

    /// Validates `arguments` and writes them in canonical form, in one pass.
    ///
    /// # Errors
    /// Every faulty field, by JSON pointer.
    pub fn read(&self, arguments: &Value) -> Result<Intent, Vec<FieldError>> {
        read::intent(&self.root, arguments)
    }

    /// Names of the top-level members.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.object().map(|object| object.properties.iter()).into_iter().flatten().map(|p| &*p.name)
    }

    /// Does the schema declare the top-level member `name`?
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.members().any(|member| member == name)
    }

    /// The type of the top-level member `name`: `"integer"`, `"string"`…
    #[must_use]
    pub fn type_of(&self, name: &str) -> Option<&'static str> {
        let property = self.object()?.properties.iter().find(|p| *p.name == *name)?;
        Some(property.node.kind.name())
    }

    /// What two schemas must share to be the same contract, in canonical text: types, bounds, defaults, and no
    /// titles or descriptions. Each top-level member stands alone, so that a change can be named.
    #[must_use]
    pub fn contract(&self) -> Vec<(String, String)> {
        let Some(object) = self.object() else { return Vec::new() };
        let member = |p: &Property| (p.name.to_string(), spell::property(p));
        let mut members: Vec<_> = object.properties.iter().map(member).collect();
        if object.open {
            members.push(("(unnamed members)".into(), "allowed".into()));
        }
        members
    }

    fn object(&self) -> Option<&Object> {
        if let Kind::Object(object) = &self.root.kind { Some(object) } else { None }
    }
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::Integer { .. } => "integer",
            Kind::Number(_) => "number",
            Kind::String { .. } => "string",
            Kind::Array { .. } => "array",
            Kind::Object(_) => "object",
        }
    }
}

/// Values that no schema types: integers where they are spelled as such, doubles otherwise, and the two never alike
/// (`1` and `1.0` differ).
impl Intent {
    /// The intent of a handler that has no schema of ours: any serialisable value, typed by its spelling.
    ///
    /// # Errors
    /// Says why the value is not one JSON document within bounds (a 64-bit unsigned integer beyond `i64`, say).
    pub fn of<T: serde::Serialize>(value: &T) -> Result<Self, String> {
        let text = serde_json::to_string(value).map_err(|e| e.to_string())?;
        let value = json::parse(text.as_bytes(), json::Bounds::default()).map_err(|e| e.to_string())?;
        Self::of_json(&value)
    }

    /// As [`Intent::of`], for a value that was read already.
    ///
    /// # Errors
    /// As [`Intent::of`].
    pub fn of_json(value: &Value) -> Result<Self, String> {
        read::untyped(value).map_err(|faults| {
            let fault = faults.first().map(|fault| format!("{} {}", fault.pointer, fault.message));
            fault.unwrap_or_default().trim_start().to_owned()
        })
    }
}

/// Adds one step to a JSON pointer (RFC 6901, section 3).
fn step(pointer: &mut String, name: &str) {
    pointer.push('/');
    for c in name.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}
