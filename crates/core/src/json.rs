//! A strict reader of JSON (RFC 8259) that keeps what a lenient one loses: the spelling of numbers, and the right
//! to refuse duplicate members, lone surrogates and U+0000. Bounded in depth and in number of values.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::limits;

/// One JSON value. Numbers keep their spelling, objects the order of their members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number as it was spelled.
    Number(Box<str>),
    /// A string, unescaped.
    String(Box<str>),
    /// An array.
    Array(Vec<Value>),
    /// An object; no name stands twice.
    Object(Vec<(Box<str>, Value)>),
}

impl Value {
    /// The member `name`, if this is an object that has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let Value::Object(members) = self else { return None };
        members.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)
    }

    /// Takes the member `name` out, if this is an object that has it.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let Value::Object(members) = self else { return None };
        let at = members.iter().position(|(key, _)| **key == *name)?;
        Some(members.remove(at).1)
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// What kind of value this is, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// How large a document may be.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Deepest nesting of arrays and objects.
    pub nesting: usize,
    /// Most values, members and items together.
    pub values: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { nesting: limits::NESTING, values: limits::VALUES }
    }
}

/// What is wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8,
    /// Not JSON.
    #[error("this is not JSON")]
    Syntax,
    /// More text after the value.
    #[error("there is more text after the value")]
    Trailing,
    /// The same member twice in one object.
    #[error("an object has the same member twice")]
    Duplicate,
    /// An escape that names half of a surrogate pair.
    #[error("a string holds an unpaired surrogate")]
    LoneSurrogate,
    /// U+0000 in a string.
    #[error("a string holds U+0000")]
    Nul,
    /// Nested deeper than the bound.
    #[error("arrays and objects are nested too deep")]
    TooDeep,
    /// More values than the bound.
    #[error("there are too many values")]
    TooMany,
}

/// A [`Problem`] and the byte at which it was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (at byte {at})")]
pub struct Invalid {
    /// What is wrong.
    pub problem: Problem,
    /// Offset in bytes.
    pub at: usize,
}

/// Reads one document.
///
/// # Errors
/// [`Invalid`] names the first problem and where it is.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<Value, Invalid> {
    let text =
        std::str::from_utf8(bytes).map_err(|e| Invalid { problem: Problem::Utf8, at: e.valid_up_to() })?;
    let mut reader = Reader { text, at: 0, depth: bounds.nesting, values: bounds.values };
    let value = reader.value()?;
    reader.blank();
    if reader.at < text.len() { Err(reader.fail(Problem::Trailing)) } else { Ok(value) }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// Levels and values still allowed.
    depth: usize,
    values: usize,
}

impl Reader<'_> {
    fn fail(&self, problem: Problem) -> Invalid {
        Invalid { problem, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Invalid> {
        if self.take(byte) { Ok(()) } else { Err(self.fail(Problem::Syntax)) }
    }

    fn value(&mut self) -> Result<Value, Invalid> {
        self.blank();
        self.values = self.values.checked_sub(1).ok_or(self.fail(Problem::TooMany))?;
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Boolean(true)),
            Some(b'f') => self.literal("false", Value::Boolean(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.fail(Problem::Syntax)),
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, Invalid> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fail(Problem::Syntax));
        }
        self.at += word.len();
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Invalid>) -> Result<Value, Invalid> {
        self.depth = self.depth.checked_sub(1).ok_or(self.fail(Problem::TooDeep))?;
        self.at += 1;
        let value = read(self)?;
        self.depth += 1;
        Ok(value)
    }

    fn array(&mut self) -> Result<Value, Invalid> {
        let mut items = Vec::new();
        self.blank();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.blank();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            self.expect(b',')?;
        }
    }

    fn object(&mut self) -> Result<Value, Invalid> {
        let mut members = Members::default();
        self.blank();
        if self.take(b'}') {
            return Ok(Value::Object(members.list));
        }
        loop {
            self.blank();
            let start = self.at;
            let name = self.string()?;
            self.blank();
            self.expect(b':')?;
            let value = self.value()?;
            if !members.add(name, value) {
                return Err(Invalid { problem: Problem::Duplicate, at: start });
            }
            self.blank();
            if self.take(b'}') {
                return Ok(Value::Object(members.list));
            }
            self.expect(b',')?;
        }
    }

    fn number(&mut self) -> Result<Value, Invalid> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(Value::Number(self.text[start..self.at].into()))
    }

    fn digits(&mut self) -> Result<(), Invalid> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.fail(Problem::Syntax)) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Box<str>, Invalid> {
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            if self.take(b'"') {
                return Ok(out.into());
            }
            self.expect(b'\\')?;
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, Invalid> {
        let byte = self.peek().ok_or(self.fail(Problem::Syntax))?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(Invalid { problem: Problem::Syntax, at: self.at - 1 }),
        })
    }

    fn unicode(&mut self) -> Result<char, Invalid> {
        let start = self.at - 2;
        let lone = Invalid { problem: Problem::LoneSurrogate, at: start };
        let first = self.hex4()?;
        let point = match first {
            0 => return Err(Invalid { problem: Problem::Nul, at: start }),
            0xd800..=0xdbff => {
                if !(self.take(b'\\') && self.take(b'u')) {
                    return Err(lone);
                }
                match self.hex4()? {
                    second @ 0xdc00..=0xdfff => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(lone),
                }
            }
            other => other,
        };
        char::from_u32(point).ok_or(lone)
    }

    fn hex4(&mut self) -> Result<u32, Invalid> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(self.fail(Problem::Syntax))?;
        let mut all = 0;
        for digit in digits {
            let digit = char::from(*digit).to_digit(16).ok_or(self.fail(Problem::Syntax))?;
            all = all * 16 + digit;
        }
        self.at += 4;
        Ok(all)
    }
}

/// The members of one object so far. Small objects are searched, large ones indexed.
#[derive(Default)]
struct Members {
    list: Vec<(Box<str>, Value)>,
    index: HashSet<Box<str>>,
}

impl Members {
    const SEARCHED: usize = 16;

    /// False if the name is there already.
    fn add(&mut self, name: Box<str>, value: Value) -> bool {
        if self.list.len() == Self::SEARCHED {
            self.index = self.list.iter().map(|(name, _)| name.clone()).collect();
        }
        let new = if self.list.len() < Self::SEARCHED {
            self.list.iter().all(|(other, _)| *other != name)
        } else {
            self.index.insert(name.clone())
        };
        self.list.push((name, value));
        new
    }
}

/// Writes a string as RFC 8785, section 3.2.2.2, writes it.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    // What needs an escape is one byte long, so that a string can be cut on both sides of it.
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        let (plain, escaped) = rest.split_at(at);
        out.push_str(plain);
        rest = write_escaped(out, escaped);
    }
    out.push_str(rest);
    out.push('"');
}

/// Writes the first character of `text` as an escape, and tells what follows it.
fn write_escaped<'t>(out: &mut String, text: &'t str) -> &'t str {
    let mut chars = text.chars();
    match chars.next() {
        Some('"') => out.push_str("\\\""),
        Some('\\') => out.push_str("\\\\"),
        Some('\u{8}') => out.push_str("\\b"),
        Some('\u{c}') => out.push_str("\\f"),
        Some('\n') => out.push_str("\\n"),
        Some('\r') => out.push_str("\\r"),
        Some('\t') => out.push_str("\\t"),
        Some(c) => {
            let _infallible = write!(out, "\\u{:04x}", c as u32);
        }
        None => {}
    }
    chars.as_str()
}

/// Writes a value without blanks, each number as it was spelled. The depth is bounded by whoever read it.
pub fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Boolean(true) => out.push_str("true"),
        Value::Boolean(false) => out.push_str("false"),
        Value::Number(spelled) => out.push_str(spelled),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(out, name);
                out.push(':');
                write(out, value);
            }
            out.push('}');
        }
    }
}

/// [`write`], as a text of its own.
#[must_use]
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// The order of RFC 8785, section 3.2.3: by UTF-16 code units, which is not the order of code points.
#[must_use]
pub fn member_order(a: &str, b: &str) -> std::cmp::Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: Result<(), Problem>) {
        let bounds = Bounds { nesting: 3, values: 20 };
        let got = parse(text, bounds).map(drop).map_err(|invalid| invalid.problem);
        assert_eq!(got, expected, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn strict_reading() {
        let many = format!("[{}1]", "1,".repeat(30));
        let cases: &[(&[u8], Result<(), Problem>)] = &[
            (b"{}", Ok(())),
            (b" [1, -0.5e+3, \"a\\u00e9\\ud83d\\ude00\", true, false, null] ", Ok(())),
            (b"{\"a\":1,\"b\":{\"a\":1}}", Ok(())),
            (b"", Err(Problem::Syntax)),
            (b"{\"a\":1,\"a\":2}", Err(Problem::Duplicate)),
            (b"{\"a\":1,\"\\u0061\":2}", Err(Problem::Duplicate)),
            (b"[\"\\ud800\"]", Err(Problem::LoneSurrogate)),
            (b"[\"\\ud800\\u0041\"]", Err(Problem::LoneSurrogate)),
            (b"[\"\\udc00\"]", Err(Problem::LoneSurrogate)),
            (b"[\"\\u0000\"]", Err(Problem::Nul)),
            (b"[\"\x00\"]", Err(Problem::Syntax)),
            (b"[\"\xff\"]", Err(Problem::Utf8)),
            (b"[\"\xed\xa0\x80\"]", Err(Problem::Utf8)),
            (b"1 2", Err(Problem::Trailing)),
            (b"01", Err(Problem::Trailing)),
            (b"+1", Err(Problem::Syntax)),
            (b"1.", Err(Problem::Syntax)),
            (b".5", Err(Problem::Syntax)),
            (b"1e", Err(Problem::Syntax)),
            (b"NaN", Err(Problem::Syntax)),
            (b"[1,]", Err(Problem::Syntax)),
            (b"{\"a\":1,}", Err(Problem::Syntax)),
            (b"{a:1}", Err(Problem::Syntax)),
            (b"\"\\x\"", Err(Problem::Syntax)),
            (b"\"\\u12\"", Err(Problem::Syntax)),
            (b"\"a\nb\"", Err(Problem::Syntax)),
            (b"\"open", Err(Problem::Syntax)),
            (b"tru", Err(Problem::Syntax)),
            (b"[[[1]]]", Ok(())),
            (b"[[[[1]]]]", Err(Problem::TooDeep)),
            (b"[[],[],[]]", Ok(())),
            (many.as_bytes(), Err(Problem::TooMany)),
            ("\u{feff}{}".as_bytes(), Err(Problem::Syntax)),
        ];
        for (text, expected) in cases {
            check(text, *expected);
        }
    }

    #[test]
    fn duplicates_are_found_in_large_objects_too() {
        for twin in [0, 15, 16, 17, 99] {
            let mut members: Vec<String> = (0..100).map(|n| format!("\"m{n}\":{n}")).collect();
            members.push(format!("\"m{twin}\":0"));
            let text = format!("{{{}}}", members.join(","));
            let problem = parse(text.as_bytes(), Bounds::default()).unwrap_err().problem;
            assert_eq!(problem, Problem::Duplicate, "twin of m{twin}");
        }
    }
}
