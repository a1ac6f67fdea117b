//! Arguments from `key=value` pairs, typed by the tool's schema.

use counterfoil_core::json::{self, Bounds, Value};

use crate::operation::{Arguments, InvalidArguments};

/// Why the pairs are no arguments of the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// No `=` in it.
    #[error("{0:?} is not of the form key=value")]
    NotAPair(String),
    /// The tool has no such argument.
    #[error("the tool has no argument {name:?}; it has: {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// Given twice.
    #[error("the argument {0:?} is given twice")]
    Twice(String),
    /// Not of its type.
    #[error("the argument {name:?} must be {expected}")]
    Type {
        /// Which.
        name: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The schema does not say of which type it is.
    #[error("the type of the argument {0:?} is not plain from the tool's schema: give it in a JSON file")]
    Untyped(String),
    /// The whole is no arguments.
    #[error(transparent)]
    Whole(#[from] InvalidArguments),
}

/// The arguments of a tool: the members of `base`, an object, if it is given, and one member a pair.
///
/// # Errors
/// [`Misfit`] names the pair.
pub fn typed(schema: &Value, base: Option<&str>, pairs: &[String]) -> Result<Arguments, Misfit> {
    let Some(base) = base else { return merge(schema, Vec::new(), pairs) };
    let whole = Arguments::parse(base)?;
    if pairs.is_empty() {
        return Ok(whole);
    }
    match json::parse(base.as_bytes(), Bounds::default()).map_err(InvalidArguments::Json)? {
        Value::Object(members) => merge(schema, members, pairs),
        other @ (Value::Null | Value::Boolean(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(InvalidArguments::NotAnObject(other.kind()).into())
        }
    }
}

fn merge(schema: &Value, mut members: Vec<(Box<str>, Value)>, pairs: &[String]) -> Result<Arguments, Misfit> {
    for pair in pairs {
        let (name, text) = pair.split_once('=').ok_or_else(|| Misfit::NotAPair(pair.clone()))?;
        if members.iter().any(|(other, _)| **other == *name) {
            return Err(Misfit::Twice(name.to_owned()));
        }
        members.push((name.into(), value(schema, name, text)?));
    }
    Ok(Arguments::parse(&json::text(&Value::Object(members)))?)
}

fn value(schema: &Value, name: &str, text: &str) -> Result<Value, Misfit> {
    let node = property(schema, name)?;
    let types = types(node);
    if types.is_empty() {
        return Err(Misfit::Untyped(name.to_owned()));
    }
    if types.contains(&"null") && text == "null" {
        return Ok(Value::Null);
    }
    let mut kinds = types.into_iter().filter(|kind| *kind != "null");
    match (kinds.next(), kinds.next()) {
        (Some(kind), None) => of_kind(name, kind, text),
        _ => Err(Misfit::Untyped(name.to_owned())),
    }
}

fn property<'s>(schema: &'s Value, name: &str) -> Result<&'s Value, Misfit> {
    let properties = schema.get("properties");
    properties.and_then(|properties| properties.get(name)).ok_or_else(|| Misfit::Unknown {
        name: name.to_owned(),
        known: match properties {
            Some(Value::Object(members)) => {
                members.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ")
            }
            _ => String::new(),
        },
    })
}

fn types(node: &Value) -> Vec<&str> {
    match node.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A number keeps its spelling, so that no digit is lost.
fn of_kind(name: &str, kind: &str, text: &str) -> Result<Value, Misfit> {
    let parsed = || json::parse(text.as_bytes(), Bounds::default()).ok();
    let wrong = |expected| Misfit::Type { name: name.to_owned(), expected };
    let only = |expected, fits: fn(&Value) -> bool| parsed().filter(fits).ok_or(wrong(expected));
    match kind {
        "string" => Ok(Value::String(text.into())),
        "integer" | "number" => only("a number", |value| matches!(value, Value::Number(_))),
        "boolean" => only("true or false", |value| matches!(value, Value::Boolean(_))),
        "array" => only("a JSON array", |value| matches!(value, Value::Array(_))),
        "object" => only("a JSON object", |value| matches!(value, Value::Object(_))),
        _ => Err(Misfit::Untyped(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"id":{"type":"integer"},"ratio":{"type":"number"},
        "name":{"type":"string"},"on":{"type":"boolean"},"tags":{"type":"array"},"more":{"type":"object"},
        "note":{"type":["string","null"]},"any":{},"either":{"type":["string","integer"]}}}"#;

    fn check(base: Option<&str>, pairs: &[&str], expected: Result<&str, &str>) {
        let schema = json::parse(SCHEMA.as_bytes(), Bounds::default()).unwrap();
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        let got = typed(&schema, base, &pairs);
        match (&got, expected) {
            (Ok(arguments), Ok(text)) => assert_eq!(arguments.as_str(), text, "{pairs:?}"),
            (Err(misfit), Err(part)) => assert!(misfit.to_string().contains(part), "{misfit}"),
            _ => panic!("{base:?} {pairs:?}: {got:?}"),
        }
    }

    #[test]
    fn pairs_are_typed_by_the_schema() {
        check(None, &[], Ok("{}"));
        check(None, &["id=9007199254740993"], Ok(r#"{"id":9007199254740993}"#));
        check(None, &["ratio=1.10", "on=true"], Ok(r#"{"ratio":1.10,"on":true}"#));
        check(None, &["name=1", "note="], Ok(r#"{"name":"1","note":""}"#));
        check(None, &["note=null", "name=null"], Ok(r#"{"note":null,"name":"null"}"#));
        check(None, &["name=a=b"], Ok(r#"{"name":"a=b"}"#));
        check(None, &["tags=[1, \"x\"]", "more={\"a\": 1}"], Ok(r#"{"tags":[1,"x"],"more":{"a":1}}"#));
        check(Some(r#"{"id": 1}"#), &[], Ok(r#"{"id": 1}"#));
        check(Some(r#"{"any": 1}"#), &["id=2"], Ok(r#"{"any":1,"id":2}"#));
        check(Some(r#"{"id": 1}"#), &["id=2"], Err("twice"));
        check(None, &["id=1", "id=1"], Err("twice"));
        check(None, &["id"], Err("key=value"));
        check(None, &["id=x"], Err("must be a number"));
        check(None, &["id=\"1\""], Err("must be a number"));
        check(None, &["on=yes"], Err("true or false"));
        check(None, &["tags={}"], Err("JSON array"));
        check(None, &["any=1"], Err("not plain"));
        check(None, &["either=1"], Err("not plain"));
        check(None, &["idd=1"], Err("it has: id, ratio"));
        check(Some("[1]"), &[], Err("an array, not an object"));
        check(Some("{"), &[], Err("not JSON"));
        check(Some(r#"{"a":1,"a":2}"#), &[], Err("not JSON"));
    }
}
