//! What is known of the tries of one call that gave no answer.

use std::sync::atomic::{AtomicU8, Ordering};

const NONE: u8 = 0;
/// COMMIT was sent after the receipt's insertion had been answered: the receipt is in the unique index, or never
/// will be in effect.
const COMMITTING: u8 = 1;
/// Receipt and COMMIT were sent together: nobody knows how far that try has come, or whether it has begun.
const BEGUN: u8 = 2;

/// May an earlier try have committed, or still commit?
#[derive(Debug, Default)]
pub(super) struct Doubt(AtomicU8);

impl Doubt {
    pub(super) fn raised(&self) -> bool {
        self.0.load(Ordering::SeqCst) != NONE
    }

    /// May a try be under way that has not inserted its receipt yet? Then there is nothing that could be waited for,
    /// and only a receipt is an answer.
    pub(super) fn open(&self) -> bool {
        self.0.load(Ordering::SeqCst) == BEGUN
    }

    /// COMMIT is sent.
    pub(super) fn committing(&self) {
        self.0.fetch_max(COMMITTING, Ordering::SeqCst);
    }

    /// Everything up to COMMIT is sent at once. Tells what to go [`Doubt::back`] to.
    pub(super) fn begun(&self) -> u8 {
        self.0.fetch_max(BEGUN, Ordering::SeqCst)
    }

    /// The try that was begun is known to have written nothing; those before it are as they were.
    pub(super) fn back(&self, before: u8) {
        self.0.store(before, Ordering::SeqCst);
    }

    /// What was inserted has waited for every try whose receipt is in the index: they are over. Those that may not
    /// have come so far are not.
    pub(super) fn waited(&self) {
        let _same = self.0.compare_exchange(COMMITTING, NONE, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// It is decided: a receipt stands, and no other can.
    pub(super) fn settled(&self) {
        self.0.store(NONE, Ordering::SeqCst);
    }
}
