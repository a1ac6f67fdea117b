//! The client's clock, in one place so that tests own theirs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use counterfoil_core::Timestamp;

use crate::transport::Pending;

/// Where time comes from.
pub trait Time: Send + Sync + 'static {
    /// The wall clock, for the journal and for ids.
    fn now(&self) -> Timestamp;
    /// Time since some fixed instant; never goes back.
    fn elapsed(&self) -> Duration;
    /// Waits.
    fn sleep(&self, how_long: Duration) -> Pending<'_, ()>;
}

/// The machine's time.
#[derive(Debug, Clone, Copy)]
pub struct SystemTimer {
    since: Instant,
}

impl Default for SystemTimer {
    fn default() -> Self {
        Self { since: Instant::now() }
    }
}

impl Time for SystemTimer {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    fn sleep(&self, how_long: Duration) -> Pending<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }
}
