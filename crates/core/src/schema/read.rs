//! The one pass over a value: validate, fill in defaults, write in canonical form.

use std::fmt::Write as _;

use super::{Kind, Node, NumberBounds, Object, step};
use crate::intent::{Argument, Intent};
use crate::json::{self, Value, member_order};
use crate::refusal::FieldError;
use crate::{limits, number};

/// Reads a tool's arguments.
pub(super) fn intent(root: &Node, value: &Value) -> Result<Intent, Vec<FieldError>> {
    let text = bounded(canonical(root, value)?)?;
    Ok(Intent::new(text, arguments(root, value)))
}

/// Reads a value that no schema types.
pub(super) fn untyped(value: &Value) -> Result<Intent, Vec<FieldError>> {
    let mut pass = Pass::new();
    pass.free(value);
    Ok(Intent::new(bounded(pass.finish()?)?, Vec::new()))
}

fn bounded(text: String) -> Result<String, Vec<FieldError>> {
    if text.len() <= limits::INTENT {
        return Ok(text);
    }
    Err(vec![FieldError::new("", format!("must be at most {} bytes in canonical form", limits::INTENT))])
}

/// Writes one value that must fit `node`.
pub(super) fn canonical(node: &Node, value: &Value) -> Result<String, Vec<FieldError>> {
    let mut pass = Pass::new();
    pass.node(node, value);
    pass.finish()
}

/// Room for the canonical text of most calls.
const USUAL: usize = 256;

/// The state of one pass: what is written so far, where we are, what is wrong.
#[derive(Default)]
struct Pass {
    out: String,
    pointer: String,
    errors: Vec<FieldError>,
}

impl Pass {
    fn new() -> Self {
        Self { out: String::with_capacity(USUAL), ..Self::default() }
    }

    fn finish(self) -> Result<String, Vec<FieldError>> {
        if self.errors.is_empty() { Ok(self.out) } else { Err(self.errors) }
    }

    fn wrong(&mut self, message: impl Into<String>) {
        if self.errors.len() < limits::FIELD_ERRORS {
            self.errors.push(FieldError::new(&self.pointer, message));
        }
    }

    fn within<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.pointer.len();
        step(&mut self.pointer, name);
        let got = read(self);
        self.pointer.truncate(length);
        got
    }

    fn node(&mut self, node: &Node, value: &Value) {
        let (start, faults) = (self.out.len(), self.errors.len());
        if node.nullable && matches!(value, Value::Null) {
            self.out.push_str("null");
        } else {
            self.typed(&node.kind, value);
        }
        // What is faulty already has no canonical text that could be listed.
        if let Some(allowed) = &node.allowed
            && self.errors.len() == faults
            && !allowed.iter().any(|text| *text == self.out[start..])
        {
            self.wrong("must be one of the listed values");
        }
    }

    fn typed(&mut self, kind: &Kind, value: &Value) {
        match (kind, value) {
            (Kind::Boolean, Value::Boolean(value)) => self.boolean(*value),
            (Kind::Integer { least, most }, Value::Number(spelling)) => self.integer(*least, *most, spelling),
            (Kind::Number(bounds), Value::Number(spelling)) => self.number(bounds, spelling),
            (Kind::String { least, most, pattern }, Value::String(text)) => {
                self.length(text.chars().count(), (*least, *most), "characters");
                if pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
                    self.wrong("must match the pattern");
                }
                json::write_string(&mut self.out, text);
            }
            (Kind::Array { items, least, most }, Value::Array(values)) => {
                self.length(values.len(), (*least, *most), "items");
                self.array(items, values);
            }
            (Kind::Object(object), Value::Object(members)) => self.object(object, members),
            (kind, value) => {
                let (name, got) = (kind.name(), value.kind());
                let article = if name.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
                self.wrong(format!("must be {article} {name}, not {got}"));
            }
        }
    }

    fn integer(&mut self, least: Option<i64>, most: Option<i64>, spelling: &str) {
        let value = match number::integer(spelling) {
            Ok(value) => value,
            Err(problem) => return self.wrong(problem),
        };
        if let Some(least) = least.filter(|least| value < *least) {
            self.wrong(format!("must be at least {least}"));
        }
        if let Some(most) = most.filter(|most| value > *most) {
            self.wrong(format!("must be at most {most}"));
        }
        let _infallible = write!(self.out, "{value}");
    }

    fn number(&mut self, bounds: &NumberBounds, spelling: &str) {
        let value = match number::double(spelling) {
            Ok(value) => value,
            Err(problem) => return self.wrong(problem),
        };
        let checks = [
            (bounds.least, value >= bounds.least.unwrap_or(value), "at least"),
            (bounds.most, value <= bounds.most.unwrap_or(value), "at most"),
            (bounds.above, bounds.above.is_none_or(|bound| value > bound), "more than"),
            (bounds.below, bounds.below.is_none_or(|bound| value < bound), "less than"),
        ];
        for (bound, fits, words) in checks {
            if let (Some(bound), false) = (bound, fits) {
                self.wrong(format!("must be {words} {bound}"));
            }
        }
        self.out.push_str(&number::shortest(value));
    }

    fn length(&mut self, length: usize, (least, most): (usize, usize), unit: &str) {
        if length < least {
            self.wrong(format!("must have at least {least} {unit}"));
        }
        if length > most {
            self.wrong(format!("must have at most {most} {unit}"));
        }
    }

    fn array(&mut self, items: &Node, values: &[Value]) {
        self.list(values, |pass, value| pass.node(items, value));
    }

    fn list(&mut self, values: &[Value], read: impl Fn(&mut Self, &Value)) {
        self.out.push('[');
        for (at, value) in values.iter().enumerate() {
            // A few bytes of items can stand for many bytes of defaults: stop as soon as the bound is passed.
            if self.out.len() > limits::INTENT {
                break;
            }
            self.separate(at);
            self.within(&at.to_string(), |pass| read(pass, value));
        }
        self.out.push(']');
    }

    fn separate(&mut self, written: usize) {
        if written > 0 {
            self.out.push(',');
        }
    }

    fn object(&mut self, object: &Object, members: &[(Box<str>, Value)]) {
        let mut unnamed = self.unnamed(object, members).into_iter().peekable();
        let mut written = 0;
        self.out.push('{');
        for property in &object.properties {
            while let Some((name, value)) = unnamed.next_if(|(n, _)| member_order(n, &property.name).is_lt())
            {
                self.unnamed_member(&mut written, name, value);
            }
            let given = members.iter().find(|(name, _)| *name == property.name).map(|(_, value)| value);
            match given.or(property.node.default.as_ref()) {
                Some(value) => {
                    self.name(&mut written, &property.name);
                    self.within(&property.name, |pass| pass.node(&property.node, value));
                }
                None if property.required => self.within(&property.name, |pass| pass.wrong("is required")),
                None => {}
            }
        }
        for (name, value) in unnamed {
            self.unnamed_member(&mut written, name, value);
        }
        self.out.push('}');
    }

    /// Members that the schema does not name, in canonical order; faults unless the object is open.
    fn unnamed<'v>(
        &mut self,
        object: &Object,
        members: &'v [(Box<str>, Value)],
    ) -> Vec<(&'v str, &'v Value)> {
        let named = |name: &str| {
            object.properties.binary_search_by(|property| member_order(&property.name, name)).is_ok()
        };
        let rest = members.iter().filter(|(name, _)| !named(name));
        let mut rest: Vec<_> = rest.map(|(name, value)| (&**name, value)).collect();
        rest.sort_by(|(a, _), (b, _)| member_order(a, b));
        if !object.open {
            for (name, _) in rest.drain(..) {
                self.within(name, |pass| pass.wrong("is not an argument of this tool"));
            }
        }
        rest
    }

    fn name(&mut self, written: &mut usize, name: &str) {
        self.separate(*written);
        *written += 1;
        json::write_string(&mut self.out, name);
        self.out.push(':');
    }

    fn unnamed_member(&mut self, written: &mut usize, name: &str, value: &Value) {
        self.name(written, name);
        self.within(name, |pass| pass.free(value));
    }

    /// A value that no schema types.
    fn free(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Boolean(value) => self.boolean(*value),
            Value::Number(spelling) => self.free_number(spelling),
            Value::String(text) => json::write_string(&mut self.out, text),
            Value::Array(values) => self.list(values, Self::free),
            Value::Object(members) => self.object(&Object { properties: Vec::new(), open: true }, members),
        }
    }

    /// Typed by its spelling, and written so that reading it again finds the same type.
    fn free_number(&mut self, spelling: &str) {
        if number::spelled_whole(spelling) {
            return self.integer(None, None, spelling);
        }
        let start = self.out.len();
        self.number(&NumberBounds::default(), spelling);
        if number::spelled_whole(&self.out[start..]) {
            self.out.push_str(".0");
        }
    }

    fn boolean(&mut self, value: bool) {
        self.out.push_str(if value { "true" } else { "false" });
    }
}

/// The top-level members as SQL binds them; the value has been validated.
fn arguments(root: &Node, value: &Value) -> Vec<(Box<str>, Argument)> {
    let Kind::Object(object) = &root.kind else { return Vec::new() };
    let bound = |property: &super::Property| {
        let given = value.get(&property.name).or(property.node.default.as_ref());
        let argument = given.map_or(Argument::Null, |value| argument(&property.node, value));
        (property.name.clone(), argument)
    };
    object.properties.iter().map(bound).collect()
}

fn argument(node: &Node, value: &Value) -> Argument {
    match (&node.kind, value) {
        (_, Value::Null) => Argument::Null,
        (_, Value::Boolean(value)) => Argument::Boolean(*value),
        (Kind::Integer { .. }, Value::Number(spelling)) => {
            number::integer(spelling).map_or(Argument::Null, Argument::Integer)
        }
        (_, Value::Number(spelling)) => number::double(spelling).map_or(Argument::Null, Argument::Number),
        (_, Value::String(text)) => Argument::Text(text.clone()),
        (_, Value::Array(_) | Value::Object(_)) => {
            let text = canonical(node, value).unwrap_or_default();
            Argument::Json(text.into())
        }
    }
}
