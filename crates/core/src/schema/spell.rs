//! What a schema promises, spelled in one fixed way: it is stored when a revision is first served and compared ever
//! after, so that no spelling here may change.

use std::fmt::{Display, Write as _};

use regex::Regex;

use super::{Kind, Node, NumberBounds, Object, Property, read};
use crate::json::write_string;
use crate::number;

/// `required integer at least 1 at most 1440`
pub(super) fn property(property: &Property) -> String {
    let mut out = String::from(if property.required { "required " } else { "optional " });
    node(&mut out, &property.node);
    out
}

/// Everything that decides what a node accepts and how it is written; titles and descriptions do not.
fn node(out: &mut String, node: &Node) {
    out.push_str(node.kind.name());
    if node.nullable {
        out.push_str(" or null");
    }
    kind(out, &node.kind);
    if let Some(allowed) = &node.allowed {
        let mut allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        allowed.sort_unstable();
        words(out, "one of", Some(format!("[{}]", allowed.join(","))));
    }
    if let Some(default) = &node.default {
        // Validated at compile time: a default that cannot be written does not exist.
        words(out, "default", read::canonical(node, default).ok());
    }
}

fn kind(out: &mut String, kind: &Kind) {
    match kind {
        Kind::Boolean => {}
        Kind::Integer { least, most } => {
            words(out, "at least", *least);
            words(out, "at most", *most);
        }
        Kind::Number(bounds) => number(out, bounds),
        Kind::String { least, most, pattern } => {
            lengths(out, *least, *most);
            words(out, "matching", pattern.as_ref().map(quoted));
        }
        Kind::Array { items, least, most } => {
            lengths(out, *least, *most);
            out.push_str(" of ");
            node(out, items);
        }
        Kind::Object(object) => members(out, object),
    }
}

fn number(out: &mut String, bounds: &NumberBounds) {
    words(out, "at least", bounds.least.map(number::shortest));
    words(out, "at most", bounds.most.map(number::shortest));
    words(out, "more than", bounds.above.map(number::shortest));
    words(out, "less than", bounds.below.map(number::shortest));
}

fn lengths(out: &mut String, least: usize, most: usize) {
    words(out, "length at least", Some(least).filter(|least| *least > 0));
    words(out, "length at most", Some(most).filter(|most| *most < usize::MAX));
}

fn members(out: &mut String, object: &Object) {
    out.push_str(if object.open { " with others {" } else { " {" });
    for (at, property) in object.properties.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_string(out, &property.name);
        out.push_str(": ");
        out.push_str(&self::property(property));
    }
    out.push('}');
}

fn words(out: &mut String, words: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        let _infallible = write!(out, " {words} {value}");
    }
}

fn quoted(pattern: &Regex) -> String {
    let mut out = String::new();
    write_string(&mut out, pattern.as_str());
    out
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use crate::json;

    #[test]
    fn contracts_are_spelled_so_for_ever() {
        let cases = [
            (
                r#"{"type":"integer","minimum":1,"maximum":1440,"description":"minutes"}"#,
                "integer at least 1 at most 1440",
            ),
            (r#"{"type":"integer","exclusiveMinimum":1}"#, "integer at least 2"),
            (r#"{"type":["boolean","null"],"default":null}"#, "boolean or null default null"),
            (r#"{"type":"number","exclusiveMinimum":0,"maximum":1e2}"#, "number at most 100 more than 0"),
            (
                r#"{"type":"string","minLength":1,"maxLength":9,"pattern":"^\"a"}"#,
                r#"string length at least 1 length at most 9 matching "^\"a""#,
            ),
            (r#"{"type":"string","enum":["b","a"],"default":"a"}"#, r#"string one of ["a","b"] default "a""#),
            (
                r#"{"type":"array","maxItems":3,"items":{"type":"string"}}"#,
                "array length at most 3 of string",
            ),
            (
                r#"{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer"}},"required":["a"]}"#,
                r#"object {"a": required integer, "b": optional string}"#,
            ),
            (r#"{"type":"object","additionalProperties":true}"#, "object with others {}"),
        ];
        for (member, expected) in cases {
            let text = format!(r#"{{"type":"object","properties":{{"x":{member}}},"required":["x"]}}"#);
            let value = json::parse(text.as_bytes(), json::Bounds::default()).unwrap();
            let (_, spelled) = Schema::compile(&value).unwrap().contract().remove(0);
            let presence = if member.contains("default") { "optional" } else { "required" };
            assert_eq!(spelled, format!("{presence} {expected}"), "{member}");
        }
    }
}
