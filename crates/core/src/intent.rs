//! What a call means: its canonical arguments.

use std::fmt;

/// A top-level argument as SQL may bind it.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// `null`, or an optional member that is absent.
    Null,
    /// A boolean.
    Boolean(bool),
    /// A 64-bit integer.
    Integer(i64),
    /// A double.
    Number(f64),
    /// A string.
    Text(Box<str>),
    /// An object or array as canonical JSON text.
    Json(Box<str>),
}

/// The validated, canonical arguments of a call, the request id not among them.
#[derive(Clone, PartialEq)]
pub struct Intent {
    text: Box<str>,
    arguments: Vec<(Box<str>, Argument)>,
}

impl Intent {
    pub(crate) fn new(text: String, arguments: Vec<(Box<str>, Argument)>) -> Self {
        Self { text: text.into(), arguments }
    }

    /// The canonical text, byte for byte what is stored and hashed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The argument `name`, as SQL binds it.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|(key, _)| **key == *name).map(|(_, argument)| argument)
    }
}

/// Arguments are the caller's own: `Debug` tells their size only.
impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Intent({} bytes)", self.text.len())
    }
}
