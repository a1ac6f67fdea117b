//! JSON as it was written: members are found by where they stand in the text, and cut out or put in there, so that
//! whatever is not understood passes byte for byte.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use counterfoil_core::json::write_string;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One object of a text: the names of its members, and where their values stand.
#[derive(Debug)]
pub(crate) struct Object<'t> {
    text: &'t str,
    members: Vec<(Cow<'t, str>, &'t str)>,
}

/// A name stands twice, where only one can be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Twice;

struct Members<'t>(Vec<(Cow<'t, str>, &'t RawValue)>);

/// A name as it is spelled, unescaped if it must be.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'t>(#[serde(borrow)] Cow<'t, str>);

impl<'t> Object<'t> {
    /// Reads an object, as deep as it may be: only its own members are looked at.
    pub(crate) fn read(text: &'t str) -> Option<Self> {
        let text = text.trim();
        let Members(members) = serde_json::from_str(text).ok()?;
        Some(Self { text, members: members.into_iter().map(|(name, value)| (name, value.get())).collect() })
    }

    /// The text of the member `name`, as it was spelled.
    ///
    /// # Errors
    /// [`Twice`]: two readers might take different ones.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&'t str>, Twice> {
        let mut found = self.members.iter().filter(|(key, _)| key == name).map(|(_, value)| *value);
        match (found.next(), found.next()) {
            (first, None) => Ok(first),
            (_, Some(_)) => Err(Twice),
        }
    }

    /// The member `name`, where a second one changes nothing.
    pub(crate) fn any(&self, name: &str) -> Option<&'t str> {
        self.get(name).ok().flatten()
    }

    /// The member `name`, if it is an object.
    pub(crate) fn object(&self, name: &str) -> Option<Object<'t>> {
        Object::read(self.any(name)?)
    }

    /// The member `name`, if it is a string.
    pub(crate) fn string(&self, name: &str) -> Option<Cow<'t, str>> {
        string(self.any(name)?)
    }

    /// The members that `keep` keeps, as text, without braces and in their order.
    pub(crate) fn members(&self, keep: impl Fn(&str) -> bool) -> String {
        let mut out = String::new();
        for (name, value) in self.members.iter().filter(|(name, _)| keep(name)) {
            if !out.is_empty() {
                out.push(',');
            }
            write_string(&mut out, name);
            out.push(':');
            out.push_str(value);
        }
        out
    }

    /// The object, with `value` in the place of the member `name`, or at its end.
    pub(crate) fn with(&self, name: &str, value: &str) -> String {
        if let Some(place) = self.place(name) {
            return [&self.text[..place.start], value, &self.text[place.end..]].concat();
        }
        let end = self.text.len() - 1;
        let comma = if self.members.is_empty() { "" } else { "," };
        let mut key = String::new();
        write_string(&mut key, name);
        [self.text[..end].trim_end(), comma, &key, ":", value, "}"].concat()
    }

    /// The object without the member `name`; everything else as it was, but for blanks around the commas.
    pub(crate) fn without(&self, name: &str) -> String {
        if self.members.iter().all(|(key, _)| key != name) {
            return self.text.to_owned();
        }
        format!("{{{}}}", self.members(|key| key != name))
    }

    /// Where the value of `name` stands in the text of this object.
    fn place(&self, name: &str) -> Option<Range<usize>> {
        let value = self.any(name)?;
        // The value is a part of the text: both are borrowed from it.
        let start = (value.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize)?;
        Some(start..start + value.len())
    }
}

/// The items of an array, as they were spelled.
pub(crate) fn items(text: &str) -> Option<Vec<&str>> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

/// A string's text.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Name<'_>>(text).ok().map(|name| name.0)
}

impl<'t> Deserialize<'t> for Members<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'t> Visitor<'t> for All {
            type Value = Members<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Members<'t>, A::Error> {
                let mut all = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    all.push((name, value));
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_touched_stays_byte_for_byte() {
        let text = r#"{ "id" : 1e0, "a\u0062": [1.0, "\ud800"], "x":{"x":1} , "n":12345678901234567890123 }"#;
        let object = Object::read(text).unwrap();
        assert_eq!(
            object.members.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
            ["id", "ab", "x", "n"]
        );
        assert_eq!(object.get("id"), Ok(Some("1e0")));
        assert_eq!(object.with("id", "\"7\""), text.replace("1e0", "\"7\""));
        assert_eq!(object.with("ab", "2"), text.replace(r#"[1.0, "\ud800"]"#, "2"));
        assert_eq!(Object::read("{}").unwrap().with("a", "1"), r#"{"a":1}"#);
        assert_eq!(Object::read("{\"b\": 2 }").unwrap().with("a", "1"), r#"{"b": 2,"a":1}"#);
        let without = object.without("x");
        assert_eq!(without, r#"{"id":1e0,"ab":[1.0, "\ud800"],"n":12345678901234567890123}"#);
        assert_eq!(object.without("absent"), text);
        assert_eq!(items("[1, {\"a\": 2.0} ]").unwrap(), ["1", "{\"a\": 2.0}"]);
        assert_eq!(string("\"a\\n\"").as_deref(), Some("a\n"));
    }

    #[test]
    fn what_is_no_object_or_says_a_thing_twice_is_not_guessed_at() {
        for text in ["", "[]", "{", "{\"a\"}", "{\"a\":1,}", "{\"a\":1} {}", "null", "{\"\\ud800\":1}"] {
            assert!(Object::read(text).is_none(), "{text}");
        }
        let object = Object::read(r#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!((object.get("a"), object.any("a"), object.get("b")), (Err(Twice), None, Ok(None)));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Object::read(&deep).is_some(), "depth is the upstream's business");
    }
}
