//! A place where a thread waits until the test lets it go on: how tests order what happens without sleeping.

use std::sync::{Arc, Condvar, Mutex};

/// A gate that stays open once it was opened. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arrived: bool,
    open: bool,
}

impl Gate {
    /// Says that somebody is here, and waits until the gate is open.
    pub fn pass(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.arrived = true;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_while(state, |state| !state.open).unwrap());
    }

    /// Waits until somebody is here.
    pub fn arrived(&self) {
        let state = self.0.state.lock().unwrap();
        drop(self.0.changed.wait_while(state, |state| !state.arrived).unwrap());
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.0.state.lock().unwrap().open = true;
        self.0.changed.notify_all();
    }
}
