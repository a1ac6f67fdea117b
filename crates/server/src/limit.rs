//! How often one caller may call: a bucket for fresh writes and one for everything else, for each principal.
//!
//! The virtual scheduling of GCRA (ITU-T I.371): a bucket is the instant at which it would be full again. What counts
//! as a fresh write is known only afterwards, so a write is counted before it runs, and given back if it turns out to
//! be a replay or a refusal that never reached the writer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use counterfoil::Clock;
use counterfoil_core::{Issuer, Principal, Subject};

use crate::tools::Effect;

/// Callers that are kept in mind; the one that has been quiet longest is forgotten first.
const CALLERS: usize = 10_000;
/// A bucket holds so many seconds' worth of calls.
const BURST: i64 = 2;
const SECOND: i64 = 1_000_000_000;

/// Calls a second, for each caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Writes that are no replays.
    pub writes: u32,
    /// Everything else.
    pub reads: u32,
}

impl Default for Rates {
    fn default() -> Self {
        Self { writes: 1000, reads: 5000 }
    }
}

/// The buckets of all callers.
pub struct Limiter {
    rates: Rates,
    clock: Arc<dyn Clock>,
    callers: Mutex<HashMap<(Issuer, Subject), Buckets>>,
}

/// When each bucket is full again, in nanoseconds since 1970.
#[derive(Clone, Copy, Default)]
struct Buckets {
    writes: i64,
    reads: i64,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("rates", &self.rates).finish_non_exhaustive()
    }
}

impl Limiter {
    /// With full buckets for everybody.
    #[must_use]
    pub fn new(rates: Rates, clock: Arc<dyn Clock>) -> Self {
        Self { rates, clock, callers: Mutex::default() }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// How long until it would have been taken.
    pub fn take(&self, who: &Principal, effect: Effect) -> Result<(), Duration> {
        let (now, interval) = (self.now(), self.interval(effect));
        self.of(who, now, |buckets| {
            let full = buckets.of(effect);
            // Also after a clock has jumped back.
            let most = now.saturating_add(interval.saturating_mul(self.most(effect)));
            *full = (*full).clamp(now, most);
            let wait = full.saturating_add(interval) - most;
            if wait > 0 {
                return Err(Duration::from_nanos(wait.unsigned_abs()));
            }
            *full = full.saturating_add(interval);
            Ok(())
        })
    }

    /// What was counted as a fresh write was none: it counts with the rest, which is not refused any more.
    pub fn was_no_write(&self, who: &Principal) {
        let (write, read) = (self.interval(Effect::Write), self.interval(Effect::Read));
        self.of(who, self.now(), |buckets| {
            buckets.writes = buckets.writes.saturating_sub(write);
            buckets.reads = buckets.reads.saturating_add(read);
        });
    }

    fn of<T>(&self, who: &Principal, now: i64, then: impl FnOnce(&mut Buckets) -> T) -> T {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (who.issuer.clone(), who.subject.clone());
        if callers.len() >= CALLERS && !callers.contains_key(&key) {
            forget(&mut callers, now);
        }
        then(callers.entry(key).or_insert(Buckets { writes: now, reads: now }))
    }

    fn now(&self) -> i64 {
        self.clock.now().micros().saturating_mul(1000)
    }

    fn per_second(&self, effect: Effect) -> i64 {
        let rate = match effect {
            Effect::Write => self.rates.writes,
            Effect::Read => self.rates.reads,
        };
        i64::from(rate.max(1))
    }

    fn interval(&self, effect: Effect) -> i64 {
        SECOND / self.per_second(effect)
    }

    fn most(&self, effect: Effect) -> i64 {
        self.per_second(effect).saturating_mul(BURST)
    }
}

impl Buckets {
    fn of(&mut self, effect: Effect) -> &mut i64 {
        match effect {
            Effect::Write => &mut self.writes,
            Effect::Read => &mut self.reads,
        }
    }

    fn quiet_since(self) -> i64 {
        self.writes.max(self.reads)
    }
}

/// Full buckets are as good as none. If nobody's are full, the fullest go, many at a time.
fn forget(callers: &mut HashMap<(Issuer, Subject), Buckets>, now: i64) {
    callers.retain(|_, buckets| buckets.quiet_since() > now);
    if callers.len() >= CALLERS {
        let mut quiet: Vec<i64> = callers.values().map(|buckets| buckets.quiet_since()).collect();
        let (_, pivot, _) = quiet.select_nth_unstable(CALLERS / 8);
        let pivot = *pivot;
        callers.retain(|_, buckets| buckets.quiet_since() > pivot);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicI64, Ordering};

    use counterfoil_core::{Timestamp, Workspace};

    use super::*;

    #[derive(Default)]
    struct Hand(AtomicI64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0.load(Ordering::SeqCst))
        }
    }

    fn who(name: &str) -> Principal {
        Principal {
            issuer: Issuer::parse("local").unwrap(),
            subject: Subject::parse(name).unwrap(),
            workspace: Workspace::parse("w").unwrap(),
            scopes: BTreeSet::new(),
        }
    }

    fn limiter() -> (Limiter, Arc<Hand>) {
        let clock = Arc::new(Hand::default());
        (Limiter::new(Rates { writes: 10, reads: 100 }, clock.clone()), clock)
    }

    /// How many calls in a row are taken.
    fn taken(limiter: &Limiter, name: &str, effect: Effect) -> usize {
        (0..10_000).take_while(|_| limiter.take(&who(name), effect).is_ok()).count()
    }

    #[test]
    fn a_bucket_empties_and_fills() {
        let (limiter, clock) = limiter();
        assert_eq!(taken(&limiter, "a", Effect::Read), 200, "reads are counted apart");
        let steps =
            [(0, 20), (0, 0), (99_999, 0), (1, 1), (1_000_000, 10), (3_600_000_000, 20), (-7_200_000_000, 0)];
        for (micros, expected) in steps {
            clock.0.fetch_add(micros, Ordering::SeqCst);
            assert_eq!(taken(&limiter, "a", Effect::Write), expected, "after {micros}");
        }
        assert_eq!(limiter.take(&who("a"), Effect::Write), Err(Duration::from_millis(100)));
        assert_eq!(taken(&limiter, "b", Effect::Write), 20, "so are others");
    }

    #[test]
    fn what_was_no_write_is_given_back() {
        let (limiter, _clock) = limiter();
        for _ in 0..1000 {
            assert_eq!(limiter.take(&who("a"), Effect::Write), Ok(()));
            limiter.was_no_write(&who("a"));
        }
        assert_eq!(taken(&limiter, "a", Effect::Read), 0, "but it is not free");
        assert_eq!(taken(&limiter, "a", Effect::Write), 20);
    }

    #[test]
    fn few_are_kept_in_mind() {
        let (limiter, clock) = limiter();
        assert_eq!(taken(&limiter, "loud", Effect::Write), 20);
        for number in 0..CALLERS * 2 {
            let _one = limiter.take(&who(&number.to_string()), Effect::Read);
        }
        let count = || limiter.callers.lock().unwrap().len();
        assert!(count() <= CALLERS);
        assert_eq!(taken(&limiter, "loud", Effect::Write), 0, "whoever is loudest is not forgotten");
        // Those whose buckets are full again are forgotten first.
        clock.0.fetch_add(1_000_000, Ordering::SeqCst);
        for number in 0..CALLERS * 2 {
            let _one = limiter.take(&who(&format!("late-{number}")), Effect::Read);
        }
        assert!(count() <= CALLERS);
        assert_eq!(taken(&limiter, "loud", Effect::Write), 10);
    }
}
