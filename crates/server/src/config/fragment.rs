//! `[tools.NAME.input]`: what a tool takes, as fragments of JSON Schema.
//!
//! A fragment is read here and judged by the core, whose schema is the one that will read arguments: what a
//! default, an `enum` or a `pattern` may be is decided in one place. This room adds where it stands in the file.

use counterfoil_core::json::{self, Bounds as JsonBounds};
use counterfoil_core::{FieldError, Schema};
use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::names::{TOOL_KEYS, is_reserved, parameter_name};
use super::reader::{Node, Table, boolean, choice, count, every, integer, list, nearest, text};

use super::{Spanned, maybe};
use crate::diagnostics::{Diagnostic, Report, Span};

/// A value written in the file: a default, or one of an `enum`.
pub type Literal = Spanned<Value>;

/// What a tool takes.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Where it was written, if it was.
    pub span: Option<Span>,
    /// The arguments, in the order of the file.
    pub members: Vec<Member>,
}

/// A named place: an argument, or a member of an object.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: Spanned<String>,
    /// Whether it must be given.
    pub required: bool,
    /// What it holds.
    pub fragment: Fragment,
}

/// The schema of one place.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Where it was written.
    pub span: Span,
    /// Type, and what only that type can say.
    pub shape: Shape,
    /// Whether `null` is a value too.
    pub nullable: bool,
    /// A title for people.
    pub title: Option<Spanned<String>>,
    /// What the model is told.
    pub description: Option<Spanned<String>>,
    /// `enum`
    pub choices: Option<Vec<Literal>>,
    /// `const`
    pub constant: Option<Literal>,
    /// `default`
    pub default: Option<Literal>,
}

/// A type and its own keywords.
#[derive(Clone, Debug)]
pub enum Shape {
    /// `true` or `false`.
    Boolean,
    /// A 64-bit integer.
    Integer(Bounds<i64>),
    /// A double.
    Number(Bounds<f64>),
    /// Text.
    String {
        /// In code points.
        min_length: Option<Spanned<u32>>,
        /// In code points.
        max_length: Option<Spanned<u32>>,
        /// A regular expression, not anchored.
        pattern: Option<Spanned<String>>,
    },
    /// A list.
    Array {
        /// What every item is.
        items: Box<Fragment>,
        /// Fewest items.
        min_items: Option<Spanned<u32>>,
        /// Most items.
        max_items: Option<Spanned<u32>>,
    },
    /// An object.
    Object {
        /// The named members.
        properties: Vec<Member>,
        /// Whether others are allowed.
        open: bool,
    },
}

/// Bounds of a number.
#[derive(Clone, Debug)]
pub struct Bounds<T> {
    /// At least.
    pub minimum: Option<Spanned<T>>,
    /// At most.
    pub maximum: Option<Spanned<T>>,
    /// More than.
    pub exclusive_minimum: Option<Spanned<T>>,
    /// Less than.
    pub exclusive_maximum: Option<Spanned<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::String => "string",
            Type::Array => "array",
            Type::Object => "object",
        }
    }
}

const TYPES: [(&str, Type); 6] = [
    ("boolean", Type::Boolean),
    ("integer", Type::Integer),
    ("number", Type::Number),
    ("string", Type::String),
    ("array", Type::Array),
    ("object", Type::Object),
];

/// Keywords that only some types have.
const KEYWORDS: [(&str, &[Type]); 13] = [
    ("minimum", &[Type::Integer, Type::Number]),
    ("maximum", &[Type::Integer, Type::Number]),
    ("exclusiveMinimum", &[Type::Integer, Type::Number]),
    ("exclusiveMaximum", &[Type::Integer, Type::Number]),
    ("minLength", &[Type::String]),
    ("maxLength", &[Type::String]),
    ("pattern", &[Type::String]),
    ("items", &[Type::Array]),
    ("minItems", &[Type::Array]),
    ("maxItems", &[Type::Array]),
    ("properties", &[Type::Object]),
    ("required", &[Type::Object]),
    ("additionalProperties", &[Type::Object]),
];

const ONE_TYPE: &str =
    "every value has one type, so that it has one spelling; declare that type, or two inputs";
const IN_PLACE: &str = "write the schema out in place";
const NO_CONDITIONS: &str = "conditions between inputs belong into the statement, or into `access`";
const LEFT_OUT: &str = "leave it out, and let the statement or the table's constraints judge";

/// Keywords of JSON Schema that have no place here, and what to do instead.
const REFUSED: [(&str, &str); 27] = [
    ("$ref", IN_PLACE),
    ("$dynamicRef", IN_PLACE),
    ("$defs", IN_PLACE),
    ("definitions", IN_PLACE),
    ("$id", "leave it out"),
    ("$schema", "leave it out"),
    ("$comment", "write a TOML comment"),
    ("anyOf", ONE_TYPE),
    ("oneOf", ONE_TYPE),
    ("allOf", "write all the keywords in one fragment"),
    ("not", NO_CONDITIONS),
    ("if", NO_CONDITIONS),
    ("then", NO_CONDITIONS),
    ("else", NO_CONDITIONS),
    ("dependentRequired", NO_CONDITIONS),
    ("dependentSchemas", NO_CONDITIONS),
    ("format", "say it as a `pattern`, which is checked"),
    ("multipleOf", LEFT_OUT),
    ("uniqueItems", LEFT_OUT),
    ("contains", LEFT_OUT),
    ("minContains", LEFT_OUT),
    ("maxContains", LEFT_OUT),
    ("minProperties", LEFT_OUT),
    ("maxProperties", LEFT_OUT),
    ("prefixItems", "declare one type of `items`, or an object with named members"),
    ("patternProperties", "name the members, or write `additionalProperties = true`"),
    ("propertyNames", "name the members, or write `additionalProperties = true`"),
];

const TYPE_HELP: &str =
    "add `type = \"string\"`, or \"integer\", \"number\", \"boolean\", \"array\", \"object\"";

/// Where a fragment stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is an argument: required unless it says otherwise.
    Argument,
    /// It is within an argument, where JSON Schema's own `required` rules.
    Inner,
}

/// Reads `[tools.NAME.input]`.
pub(super) fn input(report: &mut Report, node: &Node<'_>) -> Option<Input> {
    let arguments = Table::open(report, node, "`input`")?.into_entries();
    let members: Vec<Option<Member>> = arguments.iter().map(|node| argument(report, node)).collect();
    Some(Input { span: Some(node.span()), members: members.into_iter().collect::<Option<_>>()? })
}

fn argument(report: &mut Report, node: &Node<'_>) -> Option<Member> {
    let name = argument_name(report, node);
    if !node.value().is_table() {
        let fault = node.mismatch("a table such as `{ type = \"integer\" }`");
        report.push(if TOOL_KEYS.contains(&node.name.as_str()) {
            fault.help(format!("if it is the tool's own `{0}`, put it above `[tools.NAME.input]`", node.name))
        } else {
            fault
        });
        return None;
    }
    let (fragment, optional) = fragment(report, node, Place::Argument)?;
    let required = !optional && fragment.default.is_none();
    Some(Member { name: name?, required, fragment })
}

fn argument_name(report: &mut Report, node: &Node<'_>) -> Option<Spanned<String>> {
    match parameter_name(&node.name) {
        Ok(()) => Some(Spanned::new(node.name.clone(), node.key.clone())),
        Err(problem) => {
            let fault =
                Diagnostic::error(format!("the input `{}` {problem}", node.name)).at(node.key.clone(), "");
            report.push(if is_reserved(&node.name) {
                let name = node.name.to_ascii_lowercase();
                fault.help(format!(
                    "`:{name}` is bound from trusted context, never from arguments; choose another name"
                ))
            } else {
                fault.help("a statement binds it as `:NAME`")
            });
            None
        }
    }
}

/// Reads a fragment, and whether it says `optional = true`.
fn fragment(report: &mut Report, node: &Node<'_>, place: Place) -> Option<(Fragment, bool)> {
    let mut table = Table::open(report, node, format!("`{}`", node.name))?;
    let kind =
        if refused(report, &mut table) { table.optional("type") } else { table.required("type", TYPE_HELP) };
    let kind = kind.and_then(|node| type_of(report, &node));
    let title = table.optional("title");
    let title = maybe(report, title, text);
    let description = table.optional("description");
    let description = maybe(report, description, text);
    let choices = table.optional("enum");
    let choices = maybe(report, choices, self::choices);
    let constant = table.optional("const");
    let constant = maybe(report, constant, literal);
    let default = table.optional("default");
    let default = maybe(report, default, literal);
    let optional = optional(report, &mut table, place);
    let shape = match kind {
        Some((kind, _)) => shape(report, &mut table, kind),
        None => {
            table.know(&KEYWORDS.map(|(name, _)| name));
            None
        }
    };
    table.finish(report);
    let fragment = Fragment {
        span: node.span(),
        shape: shape?,
        nullable: kind?.1,
        title: title?,
        description: description?,
        choices: choices?,
        constant: constant?,
        default: default?,
    };
    fragment.judged(report, &node.name).then_some((fragment, optional?))
}

/// Answers the keywords that have no place here; says whether one of them stands for the type.
fn refused(report: &mut Report, table: &mut Table<'_>) -> bool {
    let mut typed = false;
    for (keyword, instead) in REFUSED {
        let found = table.refuse(report, keyword, |node| {
            Diagnostic::error(format!("`{keyword}` is not part of input schemas"))
                .at(node.key.clone(), "")
                .help(instead)
        });
        typed |= found && [IN_PLACE, ONE_TYPE].contains(&instead);
    }
    typed
}

/// Reads one type, or one type and `"null"`.
fn type_of(report: &mut Report, node: &Node<'_>) -> Option<(Type, bool)> {
    if !node.value().is_array() {
        return choice(report, node, &TYPES).map(|kind| (kind.value, false));
    }
    let items = list(report, node)?;
    let null = |item: &&Node<'_>| item.value().as_str() == Some("null");
    let (nulls, types): (Vec<&Node<'_>>, Vec<&Node<'_>>) = items.iter().partition(null);
    match (nulls.as_slice(), types.as_slice()) {
        ([_], [one]) => choice(report, one, &TYPES).map(|kind| (kind.value, true)),
        _ => {
            let message = "`type` must be one type, or a list of one type and \"null\"";
            report.push(node.fault(message, "").help(ONE_TYPE));
            None
        }
    }
}

fn optional(report: &mut Report, table: &mut Table<'_>, place: Place) -> Option<bool> {
    if place == Place::Inner {
        table.refuse(report, "optional", |node| {
            Diagnostic::error("`optional` is for the arguments themselves")
                .at(node.key.clone(), "")
                .help("within an object, members are optional unless `required` names them")
        });
        return Some(false);
    }
    let default = table.optional("default");
    let node = table.optional("optional");
    let optional = maybe(report, node, boolean)?;
    if let (Some(default), Some(optional)) = (default, &optional) {
        report.push(
            Diagnostic::error("an input with a `default` is never absent")
                .at(optional.span.clone(), "so this says nothing")
                .at(default.key, "")
                .help("remove one of the two"),
        );
    }
    Some(optional.is_some_and(|optional| optional.value))
}

fn choices(report: &mut Report, node: &Node<'_>) -> Option<Vec<Literal>> {
    let choices = every(report, node, literal)?;
    if choices.is_empty() {
        report.push(node.fault("`enum` allows no value", ""));
        return None;
    }
    Some(choices)
}

/// Reads any value that JSON can hold.
fn literal(report: &mut Report, node: &Node<'_>) -> Option<Literal> {
    let value = match node.value() {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(_) => Value::from(integer(report, node)?.value),
        DeValue::Float(_) => Value::from(number(report, node)?.value),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(_) => {
            report.push(node.mismatch("a value of JSON").help("JSON has no dates: put it into quotes"));
            return None;
        }
        DeValue::Array(_) => {
            let items = every(report, node, literal)?;
            Value::Array(items.into_iter().map(|item| item.value).collect())
        }
        DeValue::Table(_) => {
            let members = Table::open(report, node, "")?.into_entries();
            let member = |member: &Node<'_>| Some((member.name.clone(), literal(report, member)?.value));
            let members: Vec<Option<(String, Value)>> = members.iter().map(member).collect();
            Value::Object(members.into_iter().collect::<Option<_>>()?)
        }
    };
    Some(Spanned::new(value, node.span()))
}

/// Reads a double, which may be written without a fraction.
fn number(report: &mut Report, node: &Node<'_>) -> Option<Spanned<f64>> {
    let written = match (node.value().as_integer(), node.value().as_float()) {
        (Some(whole), _) if whole.radix() == 10 => whole.as_str(),
        (_, Some(float)) => float.as_str(),
        (Some(_) | None, None) => {
            report.push(node.mismatch("a number"));
            return None;
        }
    };
    let value = written.parse::<f64>().ok().filter(|value| value.is_finite());
    if value.is_none() {
        report.push(node.fault(format!("{} must be a finite number", node.said()), ""));
    }
    value.map(|value| Spanned::new(value, node.span()))
}

fn shape(report: &mut Report, table: &mut Table<'_>, kind: Type) -> Option<Shape> {
    for (keyword, _) in KEYWORDS.iter().filter(|(_, types)| !types.contains(&kind)) {
        table.refuse(report, keyword, |node| {
            Diagnostic::error(format!("`{keyword}` has no meaning for type \"{}\"", kind.name()))
                .at(node.key.clone(), "")
                .help(own_keywords(kind))
        });
    }
    match kind {
        Type::Boolean => Some(Shape::Boolean),
        Type::Integer => self::bounds(report, table, integer).map(Shape::Integer),
        Type::Number => self::bounds(report, table, number).map(Shape::Number),
        Type::String => string(report, table),
        Type::Array => array(report, table),
        Type::Object => object(report, table),
    }
}

fn own_keywords(kind: Type) -> String {
    let own = KEYWORDS.iter().filter(|(_, types)| types.contains(&kind));
    let own: Vec<String> = own.map(|(name, _)| format!("`{name}`")).collect();
    if own.is_empty() {
        format!("type \"{}\" has no bounds; remove it", kind.name())
    } else {
        format!("type \"{}\" takes {}", kind.name(), own.join(", "))
    }
}

fn bounds<T>(
    report: &mut Report,
    table: &mut Table<'_>,
    read: fn(&mut Report, &Node<'_>) -> Option<Spanned<T>>,
) -> Option<Bounds<T>> {
    let mut bound = |name| {
        let node = table.optional(name);
        maybe(report, node, |report, node| read(report, node))
    };
    let (minimum, maximum) = (bound("minimum"), bound("maximum"));
    let (above, below) = (bound("exclusiveMinimum"), bound("exclusiveMaximum"));
    Some(Bounds {
        minimum: minimum?,
        maximum: maximum?,
        exclusive_minimum: above?,
        exclusive_maximum: below?,
    })
}

/// Reads a pair such as `minLength` and `maxLength`.
fn sizes(
    report: &mut Report,
    table: &mut Table<'_>,
    names: [&'static str; 2],
) -> Option<[Option<Spanned<u32>>; 2]> {
    let [least, most] = names.map(|name| {
        let node = table.optional(name);
        maybe(report, node, |report, node| count(report, node, 0..=i64::from(u32::MAX)))
    });
    let (least, most) = (least?, most?);
    if let (Some(min), Some(max)) = (&least, &most)
        && min.value > max.value
    {
        let message = format!("`{}` is more than `{}`: nothing fits", names[0], names[1]);
        report.push(Diagnostic::error(message).at(min.span.clone(), "").at(max.span.clone(), ""));
    }
    Some([least, most])
}

fn string(report: &mut Report, table: &mut Table<'_>) -> Option<Shape> {
    let sizes = sizes(report, table, ["minLength", "maxLength"]);
    let pattern = table.optional("pattern");
    let pattern = maybe(report, pattern, text);
    let [min_length, max_length] = sizes?;
    Some(Shape::String { min_length, max_length, pattern: pattern? })
}

fn array(report: &mut Report, table: &mut Table<'_>) -> Option<Shape> {
    let items = table.required("items", "say what the items are: `items = { type = \"string\" }`");
    let items = items.and_then(|node| fragment(report, &node, Place::Inner));
    let [min_items, max_items] = sizes(report, table, ["minItems", "maxItems"])?;
    Some(Shape::Array { items: Box::new(items?.0), min_items, max_items })
}

const CLOSED_HELP: &str = "members that are not named are refused; `additionalProperties = true` lets any in";

fn object(report: &mut Report, table: &mut Table<'_>) -> Option<Shape> {
    let properties = table.optional("properties");
    let properties = maybe(report, properties, self::properties);
    let required = table.optional("required");
    let required = maybe(report, required, |report, node| every(report, node, text));
    let open = table.optional("additionalProperties");
    let open = maybe(report, open, |report, node| {
        if node.value().is_table() {
            report.push(node.mismatch("true or false").help(CLOSED_HELP));
            return None;
        }
        boolean(report, node)
    });
    let (properties, open) = (properties?, open?.is_some_and(|open| open.value));
    if properties.is_none() && !open {
        let diagnostic = Diagnostic::error(format!("{} is an object without `properties`", table.what()));
        let span = table.span().unwrap_or_default();
        report.push(diagnostic.at(span, "").help(CLOSED_HELP));
    }
    let mut properties = properties.unwrap_or_default();
    require(report, &mut properties, &required?.unwrap_or_default());
    Some(Shape::Object { properties, open })
}

fn properties(report: &mut Report, node: &Node<'_>) -> Option<Vec<Member>> {
    let members = Table::open(report, node, "`properties`")?.into_entries();
    let member = |node: &Node<'_>| {
        let (fragment, _) = fragment(report, node, Place::Inner)?;
        let name = Spanned::new(node.name.clone(), node.key.clone());
        Some(Member { name, required: false, fragment })
    };
    let members: Vec<Option<Member>> = members.iter().map(member).collect();
    members.into_iter().collect()
}

fn require(report: &mut Report, properties: &mut [Member], required: &[Spanned<String>]) {
    for name in required {
        match properties.iter_mut().find(|member| *member.name == name.value) {
            Some(member) => member.required = true,
            None => report.push(not_a_property(properties, name)),
        }
    }
}

fn not_a_property(properties: &[Member], name: &Spanned<String>) -> Diagnostic {
    let names: Vec<&str> = properties.iter().map(|member| member.name.as_str()).collect();
    let message = format!("`required` names `{}`, which is not among the `properties`", name.value);
    let diagnostic = Diagnostic::error(message).at(name.span.clone(), "");
    match nearest(name, &names) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic,
    }
}

impl Input {
    /// The JSON Schema of the arguments, without `request_id`.
    pub fn json_schema(&self) -> Value {
        Value::Object(object_schema(&self.members, false))
    }
}

impl Fragment {
    /// The fragment as JSON Schema. TOML has no null: where null is allowed, it is added to `enum`.
    pub fn json_schema(&self) -> Value {
        let mut schema = self.shape_schema();
        for (name, text) in [("title", &self.title), ("description", &self.description)] {
            put(&mut schema, name, text.as_ref().map(|text| Value::from(text.as_str())));
        }
        self.allow(&mut schema);
        put(&mut schema, "default", self.default.as_ref().map(|default| default.value.clone()));
        Value::Object(schema)
    }

    /// Type and bounds alone.
    fn shape_schema(&self) -> Map<String, Value> {
        let mut schema = self.shape.json_schema();
        if self.nullable {
            let name = schema.remove("type").unwrap_or_default();
            schema.shift_insert(0, "type".to_owned(), json!([name, "null"]));
        }
        schema
    }

    fn allow(&self, schema: &mut Map<String, Value>) {
        let null = self.nullable.then_some(Value::Null);
        let listed = |literals: &[Literal]| {
            let values = literals.iter().map(|literal| literal.value.clone());
            Value::Array(values.chain(null.clone()).collect())
        };
        put(schema, "enum", self.choices.as_deref().map(listed));
        match &self.constant {
            Some(constant) if self.nullable => {
                put(schema, "enum", Some(listed(std::slice::from_ref(constant))));
            }
            Some(constant) => put(schema, "const", Some(constant.value.clone())),
            None => {}
        }
    }

    /// Lets the core judge the fragment; what is within it has been judged before.
    fn judged(&self, report: &mut Report, name: &str) -> bool {
        let before = report.errors();
        if let (Some(choices), Some(constant)) = (self.choices.as_deref(), &self.constant) {
            let diagnostic = Diagnostic::error("`enum` and `const` say the same thing twice");
            let first = choices.first().map_or(self.span.clone(), |choice| choice.span.clone());
            report.push(diagnostic.at(constant.span.clone(), "").at(first, "").help("remove one of the two"));
        } else if let Some(schema) = compiled(report, self, self.shape_schema()) {
            self.literals_fit(report, name, &schema);
        }
        report.errors() == before
    }

    fn literals_fit(&self, report: &mut Report, name: &str, shape: &Schema) {
        let before = report.errors();
        for allowed in self.choices.iter().flatten() {
            fits(report, "an `enum` value", name, shape, allowed);
        }
        if let Some(constant) = &self.constant {
            fits(report, "`const`", name, shape, constant);
        }
        let Some(default) = &self.default else { return };
        fits(report, "`default`", name, shape, default);
        if report.errors() == before && (self.choices.is_some() || self.constant.is_some()) {
            let mut schema = self.shape_schema();
            self.allow(&mut schema);
            if let Some(schema) = compiled(report, self, schema) {
                fits(report, "`default`", name, &schema, default);
            }
        }
    }

    /// The keywords the core is likely to complain about when it refuses type and bounds.
    fn suspects(&self) -> Vec<Span> {
        let suspects = match &self.shape {
            Shape::Integer(bounds) => bounds.spans(),
            Shape::Number(bounds) => bounds.spans(),
            Shape::String { pattern, .. } => pattern.iter().map(|pattern| pattern.span.clone()).collect(),
            Shape::Boolean | Shape::Array { .. } | Shape::Object { .. } => Vec::new(),
        };
        if suspects.is_empty() { vec![self.span.clone()] } else { suspects }
    }
}

impl<T> Bounds<T> {
    fn spans(&self) -> Vec<Span> {
        let bounds = [&self.minimum, &self.exclusive_minimum, &self.maximum, &self.exclusive_maximum];
        bounds.into_iter().flatten().map(|bound| bound.span.clone()).collect()
    }
}

impl<T: Copy> Bounds<T> {
    fn write(&self, schema: &mut Map<String, Value>, value: fn(T) -> Value) {
        let bound = |bound: &Option<Spanned<T>>| bound.as_ref().map(|bound| value(bound.value));
        put(schema, "minimum", bound(&self.minimum));
        put(schema, "maximum", bound(&self.maximum));
        put(schema, "exclusiveMinimum", bound(&self.exclusive_minimum));
        put(schema, "exclusiveMaximum", bound(&self.exclusive_maximum));
    }
}

impl Shape {
    /// The name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Shape::Boolean => Type::Boolean.name(),
            Shape::Integer(_) => Type::Integer.name(),
            Shape::Number(_) => Type::Number.name(),
            Shape::String { .. } => Type::String.name(),
            Shape::Array { .. } => Type::Array.name(),
            Shape::Object { .. } => Type::Object.name(),
        }
    }

    fn json_schema(&self) -> Map<String, Value> {
        let mut schema = typed(self.type_name());
        let size = |size: &Option<Spanned<u32>>| size.as_ref().map(|size| Value::from(size.value));
        match self {
            Shape::Boolean => {}
            Shape::Integer(bounds) => bounds.write(&mut schema, Value::from),
            Shape::Number(bounds) => bounds.write(&mut schema, Value::from),
            Shape::String { min_length, max_length, pattern } => {
                put(&mut schema, "minLength", size(min_length));
                put(&mut schema, "maxLength", size(max_length));
                put(&mut schema, "pattern", pattern.as_ref().map(|pattern| Value::from(pattern.as_str())));
            }
            Shape::Array { items, min_items, max_items } => {
                put(&mut schema, "items", Some(items.json_schema()));
                put(&mut schema, "minItems", size(min_items));
                put(&mut schema, "maxItems", size(max_items));
            }
            Shape::Object { properties, open } => return object_schema(properties, *open),
        }
        schema
    }
}

fn typed(name: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), Value::from(name))])
}

fn put(schema: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        schema.insert(name.to_owned(), value);
    }
}

fn object_schema(members: &[Member], open: bool) -> Map<String, Value> {
    let mut schema = typed(Type::Object.name());
    let properties = members.iter().map(|member| (member.name.value.clone(), member.fragment.json_schema()));
    put(&mut schema, "properties", Some(Value::Object(properties.collect())));
    let required = members.iter().filter(|member| member.required);
    let required: Vec<Value> = required.map(|member| Value::from(member.name.as_str())).collect();
    put(&mut schema, "required", (!required.is_empty()).then_some(Value::Array(required)));
    put(&mut schema, "additionalProperties", Some(Value::Bool(open)));
    schema
}

/// The name under which a lone fragment is put into an object, which is what the core reads.
const LONE: &str = "value";

fn compiled(report: &mut Report, fragment: &Fragment, schema: Map<String, Value>) -> Option<Schema> {
    let whole = json!({ "type": "object", "properties": { LONE: schema }, "required": [LONE] });
    let failed = match to_core(&whole).map(|schema| Schema::compile(&schema)) {
        Some(Ok(schema)) => return Some(schema),
        Some(Err(error)) => error.message,
        None => "this is nested too deeply".to_owned(),
    };
    // An error of a regular expression has several lines, with a picture of its own; the last one says it.
    let mut lines = failed.lines();
    let message = lines.next().unwrap_or_default().trim_end_matches([':', ' ']);
    let message = message.trim_end_matches(": regex parse error").replace('"', "`");
    let diagnostic =
        fragment.suspects().into_iter().fold(Diagnostic::error(message), |d, span| d.at(span, ""));
    report.push(match lines.next_back() {
        Some(last) => diagnostic.note(last.trim_start_matches("error: ").to_owned()),
        None => diagnostic,
    });
    None
}

fn fits(report: &mut Report, what: &str, name: &str, schema: &Schema, literal: &Literal) {
    let value = to_core(&json!({ LONE: literal.value }));
    let Some(Err(faults)) = value.map(|value| schema.read(&value)) else { return };
    for FieldError { pointer, message, .. } in faults {
        let inner = pointer.trim_start_matches('/').trim_start_matches(LONE);
        let within = if inner.is_empty() { String::new() } else { format!(" at `{inner}`") };
        let message = format!("{what} of `{name}`{within} {message}");
        report.push(Diagnostic::error(message).at(literal.span.clone(), ""));
    }
}

/// The core reads JSON text with a strict parser of its own.
fn to_core(value: &Value) -> Option<json::Value> {
    json::parse(value.to_string().as_bytes(), JsonBounds::default()).ok()
}
