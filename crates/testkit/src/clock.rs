//! A clock that only the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use counterfoil::Clock;
use counterfoil_core::Timestamp;

/// Stands still until it is moved.
#[derive(Debug)]
pub struct OwnedClock(AtomicI64);

impl OwnedClock {
    /// A clock at `instant`, RFC 3339.
    #[must_use]
    pub fn at(instant: &str) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(Timestamp::parse(instant).unwrap().micros())))
    }

    /// Moves it to `instant`.
    pub fn set(&self, instant: Timestamp) {
        self.0.store(instant.micros(), Ordering::SeqCst);
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
    }
}

impl Clock for OwnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
