//! Futures taken step by step: started (and so in the writer's queue), then finished or dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A future that was polled once.
pub struct Pending<T>(State<T>);

enum State<T> {
    Waiting(Pin<Box<dyn Future<Output = T> + Send>>),
    Ready(T),
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("waits", &self.waits()).finish()
    }
}

impl<T> Pending<T> {
    /// Polls `future` once. A call that finds no receipt is in the writer's queue when this returns.
    pub fn start(future: impl Future<Output = T> + Send + 'static) -> Self {
        let mut future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Self(State::Waiting(future)),
            Poll::Ready(output) => Self(State::Ready(output)),
        }
    }

    /// Is it still to come?
    pub fn waits(&self) -> bool {
        matches!(self.0, State::Waiting(_))
    }

    /// Waits for it.
    pub fn finish(self) -> T {
        match self.0 {
            State::Waiting(future) => block_on(future),
            State::Ready(output) => output,
        }
    }
}

/// Waits for `future` on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
