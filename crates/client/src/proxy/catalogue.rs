//! Which tools may be called how often, by the server's word or by the proxy's own configuration; never by the name
//! of an argument. And the listing without what a model must not fill in.

use std::collections::HashMap;

use counterfoil_core::wire;

use super::raw::{Object, items};
use crate::limits;

/// How a tool is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Class {
    /// It changes nothing: as often as needed.
    Free,
    /// It takes request ids: as often as needed, under one id.
    Keyed(Keyed),
    /// A second call may be a second effect: once.
    Once,
}

/// A tool that takes request ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keyed {
    /// The argument that takes them; none: `_meta`.
    pub(crate) argument: Option<Box<str>>,
    /// The server says so itself, and answers as such servers do.
    pub(crate) ours: bool,
}

/// What the proxy was told about tools that say nothing of themselves: the tool, and the argument that takes its
/// request ids, if it is one.
pub type Told = HashMap<Box<str>, Option<Box<str>>>;

/// The tools of one upstream, as it listed them last.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    tools: HashMap<Box<str>, Class>,
    /// All pages have been seen.
    pub(crate) complete: bool,
    /// How often the listing had become old before.
    edition: u64,
}

impl Catalogue {
    /// How `tool` is called; `None` if it is not known yet.
    pub(crate) fn class(&self, tool: &str) -> Option<Class> {
        match self.tools.get(tool) {
            Some(class) => Some(class.clone()),
            // Not listed: nothing is known of it, so nothing is risked.
            None => self.complete.then_some(Class::Once),
        }
    }

    /// The upstream itself says of a tool that it takes request ids.
    pub(crate) fn takes_request_ids(&self) -> bool {
        self.tools.values().any(|class| matches!(class, Class::Keyed(Keyed { ours: true, .. })))
    }

    /// Forgets what an earlier edition of the listing said.
    pub(crate) fn as_of(&mut self, edition: u64) -> &mut Self {
        if self.edition != edition {
            *self = Self { edition, ..Self::default() };
        }
        self
    }

    /// Takes in a page, and gives it back as callers are to see it: `None` if nothing changes.
    pub(crate) fn learn(&mut self, result: &str, told: &Told) -> Option<String> {
        let page = Object::read(result)?;
        let tools = items(page.any("tools")?)?;
        let mut changed = false;
        let mut shown = Vec::with_capacity(tools.len());
        for tool in tools {
            let rewritten = self.tool(tool, told);
            changed |= rewritten.is_some();
            shown.push(rewritten.unwrap_or_else(|| tool.to_owned()));
        }
        changed.then(|| page.with("tools", &format!("[{}]", shown.join(","))))
    }

    fn tool(&mut self, tool: &str, told: &Told) -> Option<String> {
        let object = Object::read(tool)?;
        let name = object.string("name")?;
        let class = class(&object, &name, told);
        let argument = match &class {
            Class::Keyed(Keyed { argument: Some(argument), .. }) => Some(argument.clone()),
            Class::Keyed(Keyed { ours: true, .. }) => Some(wire::REQUEST_ID_ARGUMENT.into()),
            Class::Keyed(_) | Class::Free | Class::Once => None,
        };
        if self.tools.len() < limits::TOOLS || self.tools.contains_key(&*name) {
            self.tools.insert((*name).into(), class);
        }
        let schema = without_argument(&object.object("inputSchema")?, &argument?)?;
        Some(object.with("inputSchema", &schema))
    }
}

fn class(tool: &Object<'_>, name: &str, told: &Told) -> Class {
    let says =
        |place: &str, member: &str| tool.object(place).is_some_and(|place| place.any(member) == Some("true"));
    let ours = says("_meta", wire::META_REQUEST_IDS);
    match told.get(name) {
        Some(argument) => Class::Keyed(Keyed { argument: argument.clone(), ours }),
        None if ours => Class::Keyed(Keyed { argument: None, ours }),
        None if says("annotations", "readOnlyHint") => Class::Free,
        None => Class::Once,
    }
}

/// The schema without one of its properties, and without the demand for it.
fn without_argument(schema: &Object<'_>, argument: &str) -> Option<String> {
    let properties = schema.object("properties")?;
    properties.any(argument)?;
    let without = schema.with("properties", &properties.without(argument));
    let schema = Object::read(&without)?;
    let Some(required) = schema.any("required").and_then(items) else { return Some(without.clone()) };
    let kept: Vec<&str> =
        required.into_iter().filter(|item| super::raw::string(item).as_deref() != Some(argument)).collect();
    Some(schema.with("required", &format!("[{}]", kept.join(","))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"tools":[
        {"name":"set","inputSchema":{"type":"object","properties":{"request_id":{"type":"string"},"n":{"minimum":1.0}},"required":["request_id", "n"]},"_meta":{"dev.counterfoil/request-ids":true},"x-own":1e2},
        {"name":"foreign","inputSchema":{"properties":{"request_id":{}},"required":["request_id"]}},
        {"name":"pay","inputSchema":{"properties":{"key":{},"request_id":{}}},"annotations":{"readOnlyHint":false}},
        {"name":"get","inputSchema":{"properties":{"request_id":{}}},"annotations":{"readOnlyHint":true}},
        {"name":"liar","annotations":{"readOnlyHint":"true"},"_meta":{"dev.counterfoil/request-ids":1}}
    ],"nextCursor":"two","more":[1.0]}"#;

    #[test]
    fn tools_are_told_apart_by_what_is_said_of_them() {
        let mut catalogue = Catalogue::default();
        let told = Told::from([("pay".into(), Some("key".into()))]);
        let shown = catalogue.learn(PAGE, &told).unwrap();
        let expected = PAGE
            .replace(r#""properties":{"request_id":{"type":"string"},"n":{"minimum":1.0}},"required":["request_id", "n"]"#, r#""properties":{"n":{"minimum":1.0}},"required":["n"]"#)
            .replace(r#"{"key":{},"request_id":{}}"#, r#"{"request_id":{}}"#)
            .replace(",\n        {", ",{").replace("[\n        {", "[{").replace("}\n    ]", "}]");
        assert_eq!(shown, expected);
        let keyed = |argument: Option<&str>, ours| {
            Some(Class::Keyed(Keyed { argument: argument.map(Into::into), ours }))
        };
        for (tool, class) in [
            ("set", keyed(None, true)),
            ("pay", keyed(Some("key"), false)),
            ("foreign", Some(Class::Once)),
            ("liar", Some(Class::Once)),
            ("get", Some(Class::Free)),
            ("absent", None),
        ] {
            assert_eq!(catalogue.class(tool), class, "{tool}");
        }
        catalogue.complete = true;
        assert_eq!(catalogue.class("absent"), Some(Class::Once));
        assert_eq!(catalogue.as_of(0).class("get"), Some(Class::Free));
        assert_eq!(catalogue.as_of(1).class("get"), None);
    }

    #[test]
    fn a_page_that_needs_no_change_is_left_alone() {
        let page = r#"{"tools":[{"name":"foreign","inputSchema":{"properties":{"request_id":{}}}}]}"#;
        assert_eq!(Catalogue::default().learn(page, &Told::new()), None);
        for rubbish in ["[]", "{}", "{\"tools\":{}}", "{\"tools\":[1]}", "{\"tools\":[{}]}"] {
            assert_eq!(Catalogue::default().learn(rubbish, &Told::new()), None, "{rubbish}");
        }
    }
}
