//! The writer's queue and its loop: many callers put work in, one writer takes all that waits at once.
//!
//! The protocol, explored exhaustively in `tests/queue.rs`: nothing is taken twice or lost, what was accepted is
//! settled exactly once and only after its commit, and closing drains.

use std::collections::VecDeque;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Why work was not accepted; it has not begun and never will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// As many wait as may.
    Full,
    /// The writer is shutting down.
    Closed,
}

/// A bounded queue with one taker.
pub(crate) struct Queue<W> {
    state: Mutex<State<W>>,
    arrived: Condvar,
    capacity: usize,
}

struct State<W> {
    waiting: VecDeque<W>,
    closed: bool,
}

impl<W> Queue<W> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { waiting: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), arrived: Condvar::new(), capacity }
    }

    /// A panic elsewhere leaves the queue as it was: every change to it is one step.
    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts `work`, or says why not.
    pub(crate) fn push(&self, work: W) -> Result<(), Rejected> {
        let mut state = self.state();
        if state.closed {
            return Err(Rejected::Closed);
        }
        if state.waiting.len() >= self.capacity {
            return Err(Rejected::Full);
        }
        // The one taker sleeps only while nothing waits, and to wake it is a system call.
        let first = state.waiting.is_empty();
        state.waiting.push_back(work);
        drop(state);
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits for work and takes up to `most` of it; `None` once closed and drained.
    ///
    /// A lone piece of work is taken at once: company is what arrived while the last group was committing.
    fn take(&self, most: usize) -> Option<Vec<W>> {
        let mut state = self.state();
        loop {
            if !state.waiting.is_empty() {
                let many = state.waiting.len().min(most);
                return Some(state.waiting.drain(..many).collect());
            }
            if state.closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts no more, and gives up what waits: its taker is gone.
    pub(crate) fn abandon(&self) {
        let left = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        self.arrived.notify_all();
        drop(left);
    }

    /// Accepts no more; what was accepted is still done.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_all();
    }
}

/// Runs every group of `queue` through `commit` until the queue is closed and drained.
pub(crate) fn drive<W>(queue: &Queue<W>, most: usize, mut commit: impl FnMut(Vec<W>)) {
    while let Some(group) = queue.take(most) {
        commit(group);
    }
}
