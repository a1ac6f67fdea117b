//! Which calls look like retries: a guess that costs a round trip where it is wrong, and nothing else.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::RequestId;

use crate::clock::{Clock as _, SystemClock};
use crate::key::Key;

/// Pairs of places: one mebibyte in all.
const PAIRS: usize = 1 << 16;

/// An id that carries its own time is made right before it is first sent.
const FIRST_SEND: Duration = Duration::from_secs(5);

/// The calls that came here lately. Two that meet in a pair push the older one out.
pub(super) struct Seen {
    hasher: RandomState,
    places: Box<[[AtomicU64; 2]]>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { hasher: RandomState::new(), places: (0..PAIRS).map(|_| Default::default()).collect() }
    }
}

impl Seen {
    /// Is it likely that this call is a retry? Remembers it.
    pub(super) fn likely(&self, key: Key<'_>) -> bool {
        self.remembers(key) || old(key.request_id)
    }

    fn remembers(&self, key: Key<'_>) -> bool {
        let Key { principal, tool, request_id } = key;
        let hash = self.hasher.hash_one((
            principal.workspace.as_str(),
            principal.issuer.as_str(),
            principal.subject.as_str(),
            tool.as_str(),
            request_id.as_str(),
        ));
        let Some([newer, older]) =
            usize::try_from(hash % PAIRS as u64).ok().and_then(|at| self.places.get(at))
        else {
            return false;
        };
        if newer.load(Ordering::Relaxed) == hash || older.load(Ordering::Relaxed) == hash {
            return true;
        }
        older.store(newer.swap(hash, Ordering::Relaxed), Ordering::Relaxed);
        false
    }
}

/// By this machine's clock, which is good enough for a guess.
fn old(id: &RequestId) -> bool {
    id.dated().is_some_and(|made| made < SystemClock.now().minus(FIRST_SEND))
}
