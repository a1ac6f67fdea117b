//! Hashing several texts as one: each with its length before it, so that no separator can be forged.

use sha2::{Digest, Sha256};

/// Feeds one component.
pub(crate) fn frame(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}
