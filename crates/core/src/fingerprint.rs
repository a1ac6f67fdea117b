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
