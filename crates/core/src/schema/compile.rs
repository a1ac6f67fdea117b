//! From JSON Schema to nodes: what the subset allows, and a definite answer to all else.

use regex::RegexBuilder;

use super::{Kind, Node, NumberBounds, Object, Property, read, step};
use crate::json::{Value, member_order};
use crate::{limits, number};

/// A place of a schema and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", if pointer.is_empty() { "the schema" } else { pointer })]
pub struct SchemaError {
    /// JSON pointer (RFC 6901) into the schema; empty for the whole of it.
    pub pointer: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl SchemaError {
    pub(super) fn new(pointer: &str, message: impl Into<String>) -> Self {
        Self { pointer: pointer.to_owned(), message: message.into() }
    }
}

type Compiled<T> = Result<T, SchemaError>;
type Members = [(Box<str>, Value)];

/// Members that every node may have.
const COMMON: [&str; 6] = ["type", "enum", "const", "default", "title", "description"];

pub(super) fn node(schema: &Value, at: &str) -> Compiled<Node> {
    let Value::Object(members) = schema else {
        return Err(SchemaError::new(at, "a schema must be an object"));
    };
    let (name, nullable) = type_of(schema, at)?;
    only_known(members, &name, at)?;
    let kind = kind(&name, schema, at)?;
    let mut node = Node { kind, nullable, allowed: None, default: None };
    node.allowed = allowed(&node, schema, at)?;
    node.default = default(&node, schema, at)?;
    Ok(node)
}

fn type_of(schema: &Value, at: &str) -> Compiled<(String, bool)> {
    let wrong = || SchemaError::new(at, "\"type\" must be one type, or one type and \"null\"");
    match schema.get("type") {
        Some(Value::String(name)) if **name != *"null" => Ok((name.to_string(), false)),
        Some(Value::Array(names)) => {
            let names: Vec<Option<&str>> = names.iter().map(Value::as_str).collect();
            match names.as_slice() {
                [Some(name), Some("null")] | [Some("null"), Some(name)] if *name != "null" => {
                    Ok(((*name).to_owned(), true))
                }
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

fn only_known(members: &Members, kind: &str, at: &str) -> Compiled<()> {
    let own: &[&str] = match kind {
        "boolean" => &[],
        "integer" | "number" => &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
        "string" => &["minLength", "maxLength", "pattern"],
        "array" => &["items", "minItems", "maxItems"],
        "object" => &["properties", "required", "additionalProperties"],
        other => return Err(SchemaError::new(at, format!("there is no type \"{other}\""))),
    };
    match members.iter().find(|(name, _)| !COMMON.contains(&&**name) && !own.contains(&&**name)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(SchemaError::new(at, format!("\"{name}\" is not allowed in a schema of type {kind}")))
        }
    }
}

fn kind(name: &str, schema: &Value, at: &str) -> Compiled<Kind> {
    Ok(match name {
        "boolean" => Kind::Boolean,
        "integer" => integer(schema, at)?,
        "number" => Kind::Number(NumberBounds {
            least: double(schema, "minimum", at)?,
            most: double(schema, "maximum", at)?,
            above: double(schema, "exclusiveMinimum", at)?,
            below: double(schema, "exclusiveMaximum", at)?,
        }),
        "string" => string(schema, at)?,
        "array" => {
            let items = schema.get("items");
            let items = items.ok_or_else(|| SchemaError::new(at, "an array must declare its \"items\""))?;
            let (least, most) = (count(schema, "minItems", at)?, count(schema, "maxItems", at)?);
            let items = Box::new(node(items, &format!("{at}/items"))?);
            Kind::Array { items, least: least.unwrap_or(0), most: most.unwrap_or(usize::MAX) }
        }
        _ => Kind::Object(object(schema, at)?),
    })
}

fn whole(schema: &Value, name: &str, at: &str) -> Compiled<Option<i64>> {
    let wrong = || SchemaError::new(at, format!("\"{name}\" must be a 64-bit integer"));
    match schema.get(name) {
        None => Ok(None),
        Some(Value::Number(spelling)) => number::integer(spelling).map(Some).map_err(|_| wrong()),
        Some(_) => Err(wrong()),
    }
}

fn double(schema: &Value, name: &str, at: &str) -> Compiled<Option<f64>> {
    let wrong = || SchemaError::new(at, format!("\"{name}\" must be a number"));
    match schema.get(name) {
        None => Ok(None),
        Some(Value::Number(spelling)) => number::double(spelling).map(Some).map_err(|_| wrong()),
        Some(_) => Err(wrong()),
    }
}

fn count(schema: &Value, name: &str, at: &str) -> Compiled<Option<usize>> {
    let wrong = |_| SchemaError::new(at, format!("\"{name}\" must not be negative"));
    whole(schema, name, at)?.map(usize::try_from).transpose().map_err(wrong)
}

fn integer(schema: &Value, at: &str) -> Compiled<Kind> {
    let none = || SchemaError::new(at, "no integer fits between these bounds");
    let moved = |name, by| match whole(schema, name, at)? {
        Some(bound) => bound.checked_add(by).map(Some).ok_or_else(none),
        None => Ok(None),
    };
    let least = whole(schema, "minimum", at)?.into_iter().chain(moved("exclusiveMinimum", 1)?).max();
    let most = whole(schema, "maximum", at)?.into_iter().chain(moved("exclusiveMaximum", -1)?).min();
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        return Err(none());
    }
    Ok(Kind::Integer { least, most })
}

fn string(schema: &Value, at: &str) -> Compiled<Kind> {
    let pattern = match schema.get("pattern") {
        None => None,
        Some(Value::String(pattern)) => {
            let regex = RegexBuilder::new(pattern).size_limit(limits::PATTERN).build();
            Some(regex.map_err(|e| SchemaError::new(at, format!("\"pattern\" cannot be used: {e}")))?)
        }
        Some(_) => return Err(SchemaError::new(at, "\"pattern\" must be a string")),
    };
    let (least, most) = (count(schema, "minLength", at)?, count(schema, "maxLength", at)?);
    Ok(Kind::String { least: least.unwrap_or(0), most: most.unwrap_or(usize::MAX), pattern })
}

fn object(schema: &Value, at: &str) -> Compiled<Object> {
    let open = match schema.get("additionalProperties") {
        None | Some(Value::Boolean(false)) => false,
        Some(Value::Boolean(true)) => true,
        Some(_) => return Err(SchemaError::new(at, "\"additionalProperties\" must be true or false")),
    };
    let required = required(schema, at)?;
    let mut properties = Vec::new();
    match schema.get("properties") {
        None => {}
        Some(Value::Object(members)) => {
            for (name, schema) in members {
                let mut pointer = format!("{at}/properties");
                step(&mut pointer, name);
                let node = node(schema, &pointer)?;
                let required = required.contains(&&**name) && node.default.is_none();
                properties.push(Property { name: name.clone(), required, node });
            }
        }
        Some(_) => return Err(SchemaError::new(at, "\"properties\" must be an object")),
    }
    if let Some(name) = required.iter().find(|name| !properties.iter().any(|p| *p.name == ***name)) {
        return Err(SchemaError::new(at, format!("\"{name}\" is required but not declared")));
    }
    properties.sort_by(|a, b| member_order(&a.name, &b.name));
    Ok(Object { properties, open })
}

fn required<'s>(schema: &'s Value, at: &str) -> Compiled<Vec<&'s str>> {
    let wrong = || SchemaError::new(at, "\"required\" must be an array of names");
    match schema.get("required") {
        None => Ok(Vec::new()),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

fn allowed(node: &Node, schema: &Value, at: &str) -> Compiled<Option<Vec<String>>> {
    let values: Vec<&Value> = match (schema.get("enum"), schema.get("const")) {
        (None, None) => return Ok(None),
        (Some(Value::Array(values)), None) if !values.is_empty() => values.iter().collect(),
        (None, Some(value)) => vec![value],
        _ => return Err(SchemaError::new(at, "use a non-empty \"enum\", or \"const\", not both")),
    };
    values.into_iter().map(|value| written(node, value, at)).collect::<Compiled<Vec<_>>>().map(Some)
}

fn default(node: &Node, schema: &Value, at: &str) -> Compiled<Option<Value>> {
    let Some(value) = schema.get("default") else { return Ok(None) };
    written(node, value, at)?;
    Ok(Some(value.clone()))
}

/// A declared value in canonical form: it must itself fit the node.
fn written(node: &Node, value: &Value, at: &str) -> Compiled<String> {
    read::canonical(node, value).map_err(|errors| {
        let first = errors.first().map_or("does not fit", |e| e.message.as_str());
        SchemaError::new(at, format!("a declared value does not fit its own schema: it {first}"))
    })
}

#[cfg(test)]
mod tests {
    use crate::json;
    use crate::schema::Schema;

    #[test]
    fn schemas_outside_the_subset_are_refused_with_their_place() {
        let cases = [
            (r#"{"type":"string"}"#, ""),
            (r#"{"type":["object","null"]}"#, ""),
            (r#"[]"#, ""),
            (r#"{"type":"object","$ref":"x"}"#, ""),
            (r#"{"type":"object","properties":{"a":{}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a":{"type":["string","integer"]}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a":{"type":["string",5,"null"]}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a":{"type":"null"}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a/b":{"type":"text"}}}"#, "/properties/a~1b"),
            (r#"{"type":"object","properties":{"a":{"type":"array"}}}"#, "/properties/a"),
            (
                r#"{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[]}}}}"#,
                "/properties/a/items",
            ),
            (
                r#"{"type":"object","properties":{"a":{"type":"integer","minimum":2,"maximum":1}}}"#,
                "/properties/a",
            ),
            (r#"{"type":"object","properties":{"a":{"type":"integer","minimum":0.5}}}"#, "/properties/a"),
            (
                r#"{"type":"object","properties":{"a":{"type":"integer","exclusiveMinimum":9223372036854775807}}}"#,
                "/properties/a",
            ),
            (
                r#"{"type":"object","properties":{"a":{"type":"integer","exclusiveMaximum":-9223372036854775808}}}"#,
                "/properties/a",
            ),
            (r#"{"type":"object","properties":{"a":{"type":"integer","default":"1"}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a":{"type":"string","enum":[]}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a":{"type":"string","pattern":"(?=a)"}}}"#, "/properties/a"),
            (r#"{"type":"object","properties":{"a":{"type":"string","minLength":-1}}}"#, "/properties/a"),
            (r#"{"type":"object","required":["a"]}"#, ""),
        ];
        for (text, pointer) in cases {
            let value = json::parse(text.as_bytes(), json::Bounds::default()).unwrap();
            assert_eq!(Schema::compile(&value).unwrap_err().pointer, pointer, "{text}");
        }
    }
}
