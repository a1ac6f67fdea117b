//! How often and how long: exponential pauses with jitter, bounded by tries and by time.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

use crate::limits;

/// The bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Most tries, at least one.
    pub tries: u32,
    /// Most time for all of them and the pauses between.
    pub within: Duration,
    /// Most time for one of them.
    pub one_try: Duration,
    /// The first pause, before jitter; each next one is twice as long.
    pub first_pause: Duration,
    /// The longest pause, before jitter. What a server asks for may be longer.
    pub longest_pause: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            tries: limits::TRIES,
            within: limits::WITHIN,
            one_try: limits::TRY,
            first_pause: limits::FIRST_PAUSE,
            longest_pause: limits::LONGEST_PAUSE,
        }
    }
}

/// What is left of the bounds.
#[derive(Debug)]
pub(crate) struct Budget {
    policy: Policy,
    started: Duration,
    used: u32,
    pauses: ExponentialBackoff,
}

impl Policy {
    pub(crate) fn start(&self, now: Duration) -> Budget {
        let pauses = ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .without_max_times()
            .build();
        Budget { policy: *self, started: now, used: 0, pauses }
    }
}

impl Budget {
    /// Time for the try that begins now.
    pub(crate) fn one_try(&mut self, now: Duration) -> Duration {
        self.used = self.used.saturating_add(1);
        self.left(now).min(self.policy.one_try)
    }

    /// How long to wait before the next try; `None` if there is none within the bounds.
    pub(crate) fn pause(&mut self, now: Duration, asked: Option<Duration>) -> Option<Duration> {
        let pause = self.pauses.next()?.max(asked.unwrap_or_default());
        (self.used < self.policy.tries && pause < self.left(now)).then_some(pause)
    }

    fn left(&self, now: Duration) -> Duration {
        self.policy.within.saturating_sub(now.saturating_sub(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn pauses_grow_with_jitter_and_keep_within_the_bounds() {
        let policy = Policy { tries: 6, within: seconds(100), ..Policy::default() };
        let mut budget = policy.start(seconds(1000));
        let mut least = policy.first_pause;
        for _ in 0..5 {
            assert_eq!(budget.one_try(seconds(1000)), policy.one_try);
            let pause = budget.pause(seconds(1000), None).unwrap();
            assert!(pause >= least && pause <= least * 2, "{pause:?} {least:?}");
            least = (least * 2).min(policy.longest_pause);
        }
        budget.one_try(seconds(1000));
        assert_eq!(budget.pause(seconds(1000), None), None, "six tries, no seventh");
    }

    #[test]
    fn what_the_server_asks_for_counts_and_never_beyond_the_time() {
        let mut budget = Policy::default().start(seconds(0));
        assert_eq!(budget.one_try(seconds(0)), seconds(30));
        assert_eq!(budget.pause(seconds(1), Some(seconds(20))), Some(seconds(20)));
        assert_eq!(budget.one_try(seconds(50)), seconds(10), "no longer than what is left");
        assert_eq!(budget.pause(seconds(50), Some(seconds(20))), None);
        assert_eq!(budget.pause(seconds(60), None), None);
    }
}
