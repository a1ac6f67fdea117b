//! What a call means: its canonical arguments, and the fingerprint by which two calls are the same.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::json::{self, Value};
use crate::schema::free;
use crate::words::ToolName;

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
        free(value).map_err(|faults| {
            let fault = faults.first().map(|fault| format!("{} {}", fault.pointer, fault.message));
            fault.unwrap_or_default().trim_start().to_owned()
        })
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

/// SHA-256 of tool and intent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of `intent` under a tool's ledger name.
    #[must_use]
    pub fn of(tool: &ToolName, intent: &Intent) -> Self {
        let mut hash = Sha256::new();
        for part in ["counterfoil.intent.v1", tool.as_str(), intent.text()] {
            frame(&mut hash, part.as_bytes());
        }
        Self(hash.finalize().into())
    }

    /// From a stored fingerprint; `None` unless it has 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Lower-case hexadecimal.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Feeds one component with its length before it, so that no separator can be forged.
pub(crate) fn frame(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}
