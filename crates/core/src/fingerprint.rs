//! The fingerprint by which two calls are the same.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::frame::frame;
use crate::intent::Intent;
use crate::words::ToolName;

/// SHA-256 of tool and intent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of `intent` under a tool's ledger name.
    #[must_use]
    pub fn of(tool: &ToolName, intent: &Intent) -> Self {
        Self::of_text(tool, intent.text())
    }

    /// As [`Fingerprint::of`], of an intent's canonical text as it was stored.
    #[must_use]
    pub fn of_text(tool: &ToolName, intent: &str) -> Self {
        let mut hash = Sha256::new();
        for part in ["counterfoil.intent.v1", tool.as_str(), intent] {
            frame(&mut hash, part.as_bytes());
        }
        Self(hash.finalize().into())
    }

    /// From 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 64 || !text.as_bytes().iter().all(digit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
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
